"""What became of an artifact, in one word and a sentence; and the verdicts of its tables, counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from bench.artifacts import verdict
from bench.artifacts.tables import ABSENT, Table
from bench.results.progress import Progress

MEASURED, PARTLY, RUNNING = "measured", "partly", "running"
FAILED, NOT_RUN, NOTHING = "failed", "not run", "nothing to measure"
STATES = (MEASURED, PARTLY, RUNNING, FAILED, NOT_RUN, NOTHING)
VERDICTS = (
    *(verdict.MATCHES, verdict.ORDER_HOLDS, verdict.DIFFERS, verdict.NOT_RESOLVED),
    *(verdict.not_comparable("").partition(":")[0], verdict.NOT_RUN),
)
"""The verdicts without their reasons, in the order in which they are listed."""
TONES = dict(zip(VERDICTS, ("good", "fair", "bad", "unsure", "none", "none"), strict=True))


@dataclass(frozen=True, slots=True)
class Status:
    """One of `STATES`, and why or how far."""

    state: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Attempt:
    """How building went; at most one of the three says something.

    `missing`: what there are no results of; `failure`: why they could not be read; `empty`: outputs that show nothing.
    """

    missing: str = ""
    failure: str = ""
    empty: tuple[str, ...] = ()


def judge(attempt: Attempt, progress: Progress, absent: str = "") -> Status:
    """The status of an artifact; `absent` is why this project leaves it out, which holds if nothing was built."""
    if attempt.failure:
        return Status(FAILED, attempt.failure)
    if attempt.missing:
        return _unbuilt(attempt.missing, progress, absent)
    if attempt.empty:
        return Status(FAILED, f"nothing is shown in {', '.join(attempt.empty)}")
    if progress.running:
        return Status(RUNNING, cells(progress))
    if progress.failed or progress.missing:
        return Status(PARTLY, _with_error(progress))
    return Status(MEASURED, cells(progress))


def cells(progress: Progress) -> str:
    """`3 of 8 cells, 1 failed, 2 running`; without a plan nobody knows of how many."""
    planned = progress.planned
    total = planned or progress.done
    done = (f"{progress.done} of " if planned else "") + f"{total} cell{'s' * (total != 1)}" if total else ""
    others = {"failed": progress.failed, "running": progress.running}
    return ", ".join([*filter(None, [done]), *(f"{count} {word}" for word, count in others.items() if count)])


def _unbuilt(missing: str, progress: Progress, absent: str) -> Status:
    if progress.running:
        return Status(RUNNING, cells(progress))
    if progress.failed:
        return Status(FAILED, _with_error(progress))
    if absent:
        return Status(NOTHING, absent)
    return Status(PARTLY, f"{cells(progress)}; {missing}") if progress.done else Status(NOT_RUN)


def _with_error(progress: Progress) -> str:
    return f"{cells(progress)}: {progress.detail}" if progress.failed and progress.detail else cells(progress)


def is_verdict(header: str) -> bool:
    """Whether a column holds verdicts."""
    return header.lower().startswith("verdict")


def word(cell: str) -> str:
    """The verdict of a cell without what is said of it; a word that the rule does not have stands for itself."""
    return next((known for known in VERDICTS if cell.startswith(known)), cell)


def count_verdicts(tables: Iterable[Table]) -> dict[str, int]:
    """How often each verdict was given, in the order of `VERDICTS`; cells without one do not count."""
    columns = [table.frame[header] for table in tables for header in table.frame if is_verdict(str(header))]
    found = Counter(word(str(cell)) for column in columns for cell in column)
    order = [*VERDICTS, *(other for other in found if other not in (*VERDICTS, ABSENT, ""))]
    return {one: found[one] for one in order if found[one]}
