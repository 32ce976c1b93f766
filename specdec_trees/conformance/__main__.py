"""`specdec conformance FILE.py:FUNCTION --draws KIND`: is a verification function of speculative decoding lossless?

FUNCTION(tokens, parents, draft_probs, target_probs, rng) -> (accepted nodes, next token), or a rejection sampler with a
serving engine's parameters (draft_token_ids, ...). It is called with small trees that a random draft drew. What it
writes is held against the target's law by a test that refuses a right function once in a million checks. Exit status 1
where it is refused, with the smallest failing case, and where it cannot be asked.
"""

import argparse
import importlib.util
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from specdec_trees.conformance.calls import ARRAYS, RETURNS, NonsenseError, raised
from specdec_trees.conformance.cases import KINDS
from specdec_trees.conformance.check import SAMPLES, check
from specdec_trees.names import unknown

MODULE = "function_that_is_asked"
"""What a file is imported as, so that none is mistaken for another module of its name."""


def loaded(reference: str) -> Callable[..., Any]:
    """The function of `FILE.py:FUNCTION`. NonsenseError where there is none."""
    file, _, name = reference.rpartition(":")
    path = Path(file)
    spec = importlib.util.spec_from_file_location(MODULE, path) if path.is_file() else None
    if spec is None or spec.loader is None:
        raise NonsenseError(f"give FILE.py:FUNCTION, of a file that exists, not {reference!r}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[MODULE] = module
    sys.path.insert(0, str(path.resolve().parent))
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:  # whatever it is: the file is not ours
        raise NonsenseError(f"{file} cannot be imported: {raised(error, 'while it ran')}") from error
    functions = {key: value for key, value in vars(module).items() if callable(value) and not key.startswith("__")}
    if name not in functions:
        raise NonsenseError(f"{file}: {unknown('function', name, functions)}")
    function: Callable[..., Any] = functions[name]
    return function


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the report; 1 if the function is refused."""
    parser = argparse.ArgumentParser(prog="specdec conformance", description=__doc__)
    parser.add_argument("function", metavar="FILE.py:FUNCTION")
    parser.add_argument("--draws", choices=KINDS, required=True, help="how the children of a node are drawn")
    parser.add_argument("--seed", type=int, default=0, help="of models, draws and rng (default: %(default)s)")
    parser.add_argument("--samples", type=int, default=SAMPLES, help="calls in all (default: %(default)s)")
    parser.add_argument("--arrays", choices=ARRAYS, default=ARRAYS[0], help="what it takes (default: %(default)s)")
    parser.add_argument("--returns", choices=RETURNS, default=RETURNS[0], help="what it accepts (default: %(default)s)")
    options = parser.parse_args(arguments)
    report = check(
        loaded(options.function),
        options.draws,
        seed=options.seed,
        samples=options.samples,
        arrays=options.arrays,
        returns=options.returns,
    )
    print(report)
    return int(not report.passed)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except ValueError as refusal:
        sys.exit(str(refusal))
