"""`python -m bench.report <paper>/<artifact> | smoke`: write one artifact's tables and figures from its results."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from bench.report.artifacts import ARTIFACTS, build
from bench.report.outputs import NoResultsError, write_all
from bench.report.tables import Table, to_markdown


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the tables and the paths written; 0, or 2 with one sentence on stderr."""
    options = _parser().parse_args(arguments)
    try:
        outputs = build(options.artifact, options.results, options.pair)
    except NoResultsError as missing:
        pair = f" for pair {options.pair}" if options.pair else ""
        return _fail(f"no results of {options.artifact}{pair}: {missing}; run `{_command(options)}` first")
    except (KeyError, ValueError) as error:
        return _fail(str(error.args[0]))
    try:
        paths = write_all(outputs, (options.out / options.artifact).parent)
    except OSError as error:
        return _fail(f"the report cannot be written to {options.out} ({error.strerror or error}); give another --out")
    print("\n".join(to_markdown(output) for output in outputs if isinstance(output, Table)))
    print("\n".join(map(str, paths)))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.report", description=__doc__)
    parser.add_argument("artifact", help=f"one of {', '.join(ARTIFACTS)}")
    parser.add_argument(
        "--results", type=Path, default=Path("results"), help="folder of the results (default: %(default)s)"
    )
    parser.add_argument("--pair", help="the runs of this pair alone (default: all)")
    parser.add_argument(
        "--out", type=Path, default=Path("results/report"), help="where to write (default: %(default)s)"
    )
    return parser


def _command(options: argparse.Namespace) -> str:
    if options.artifact == "smoke":
        return "make smoke"
    if options.artifact.startswith("bench/"):
        return f"make bench-{Path(options.artifact).name.replace('_', '')} PAIR={options.pair or 'tiny'}"
    return f"make reproduce TABLE={options.artifact} PAIR={options.pair or 'tiny'}"


def _fail(sentence: str) -> int:
    print(sentence, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
