"""`python -m specdec_trees.compare A B`: what changed from A to B, with intervals, for those who change a method.

A and B are two runs, also of two drafts for one target (the id, or its start, of a run below --results, as the column
run_id of a table's CSV has it; or <folder>/<id>), or two folders: of one experiment, such as results/opt_tree/table1,
or of several. B may have some of A's cells only: those that it lacks are
listed and count as nothing. Exit status: 0 if nothing got worse, 1 if MAL or speedup fell (beyond the 95% interval of
the paired difference and, for speedup, beyond what the autoregressive arms of both runs differ by), if a run does not
end well any more, fails in more conversations or is lossless no more, 2 if nothing can be compared or judged.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from specdec_trees.artifacts.outputs import write_all
from specdec_trees.artifacts.tables import to_markdown
from specdec_trees.compare.changes import JUDGED
from specdec_trees.compare.joined import check, join
from specdec_trees.compare.sides import ComparisonError, find
from specdec_trees.compare.table import table


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the comparison; see above for the exit status."""
    options = _parser().parse_args(arguments)
    judged = JUDGED if options.metric == "both" else (options.metric,)
    try:
        first, second = (find(name, options.results) for name in (options.a, options.b))
        joined = join(first, second)
        check(joined, judged)
        output = table(joined, judged)
        print(to_markdown(output))
        if options.out:
            print("\n".join(map(str, write_all([output], options.out))))
    except ComparisonError as error:
        print(error, file=sys.stderr)
        return 2
    except BrokenPipeError:
        raise
    except OSError as error:
        print(f"{error.filename or options.out}: {error.strerror or error}", file=sys.stderr)
        return 2
    return int(any(couple.broken or any(map(couple.worse, judged)) for couple in joined.couples))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m specdec_trees.compare",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("a", metavar="A", help="what B is set against: before the change")
    parser.add_argument("b", metavar="B", help="after it")
    parser.add_argument(
        "--results", type=Path, default=Path("results"), help="where run ids are looked up (default: %(default)s)"
    )
    parser.add_argument("--out", type=Path, help="also write compare.md, .tex, .csv and .json there")
    parser.add_argument(
        "--metric", choices=(*JUDGED, "both"), default="both", help="what counts as worse (default: %(default)s)"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
