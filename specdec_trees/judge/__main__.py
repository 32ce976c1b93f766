"""`python -m specdec_trees.judge FOLDER [FOLDER...]`: have the answers of results folders graded by a model.

The endpoint is named by the environment: JUDGE_BASE_URL (such as http://localhost:8000/v1), JUDGE_MODEL, and
JUDGE_API_KEY, which servers of one's own may do without. FOLDER is an experiment's, such as
results/improving_mcsd/table1, that was run with record_answers=true. Grades go to its table `judgements`.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from specdec_trees.judge import prompts
from specdec_trees.judge.client import Endpoint, JudgeError
from specdec_trees.judge.grading import Grading, Summary, opened
from specdec_trees.results.locks import CellBusyError
from specdec_trees.results.store import StoreError


def main(arguments: Sequence[str] | None = None, environment: Mapping[str, str] = os.environ) -> int:
    """Ask and print a summary; 0, 1 if an answer that was asked about has no grade, 2 with one sentence on stderr."""
    options = _parser().parse_args(arguments)
    try:
        endpoint = _endpoint(environment, options.timeout, options.tries)
        with opened(options.folder, endpoint) as grading:
            summary = grading.grade(limit=options.limit, parallel=options.parallel, progress=sys.stderr.isatty())
            print("\n".join(_said(grading, summary)))
    except (JudgeError, CellBusyError, StoreError) as error:
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("stopped; what was graded is kept, and the same command goes on from there", file=sys.stderr)
        return 130
    return int(summary.failed > 0)


def _endpoint(environment: Mapping[str, str], timeout_s: float, tries: int) -> Endpoint:
    """From the environment. JudgeError names what is missing."""
    given = {name: environment.get(name, "").strip() for name in ("JUDGE_BASE_URL", "JUDGE_MODEL", "JUDGE_API_KEY")}
    for name, example in (("JUDGE_BASE_URL", "http://localhost:8000/v1"), ("JUDGE_MODEL", "the judge's name there")):
        if not given[name]:
            raise JudgeError(f"{name} is not set; give it in the environment ({example})")
    return Endpoint(
        given["JUDGE_BASE_URL"], given["JUDGE_MODEL"], given["JUDGE_API_KEY"] or None, timeout_s, attempts=tries
    )


def _said(grading: Grading, summary: Summary) -> list[str]:
    """The summary and the mean grade of every run and arm."""
    judge = grading.endpoint.hidden(grading.endpoint.model)
    lines = [
        f"{summary.answers} answers: {summary.known} graded before, {summary.asked} asked about, {summary.shared} the "
        f"same as others, {summary.left} left for the limit; {summary.failed} replies without a grade"
    ]
    for run_id, book in grading.books.items():
        mine = [row for row in book.rows if (row.judge, row.prompt_version) == (judge, prompts.VERSION)]
        for arm in sorted({row.arm for row in mine}):
            grades = [row.score for row in mine if row.arm == arm and row.score is not None]
            mean = f"{math.fsum(grades) / len(grades):.2f}" if grades else "none"
            lines.append(f"{run_id} {arm}: mean grade {mean} over {len(grades)} turns")
    return lines


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m specdec_trees.judge", description=__doc__)
    parser.add_argument("folder", nargs="+", type=Path, help="of an experiment's results")
    parser.add_argument("--limit", type=_positive, help="ask about at most so many answers (default: all)")
    parser.add_argument("--parallel", type=_positive, default=4, help="requests at a time (default: %(default)s)")
    parser.add_argument("--tries", type=_positive, default=5, help="per request (default: %(default)s)")
    parser.add_argument("--timeout", type=_seconds, default=120.0, help="seconds per try (default: %(default)g)")
    return parser


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, not {text}")
    return value


def _seconds(text: str) -> float:
    value = float(text)
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"must be a positive number, not {text}")
    return value


if __name__ == "__main__":
    sys.exit(main())
