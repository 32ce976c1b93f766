"""The cells of GSD's Table 1."""

from __future__ import annotations

from bench.artifacts import tables
from bench.papers.gsd.outcomes import Outcome
from bench.statistics.intervals import Interval


def printed(metric: str, value: float | None) -> str:
    """A number with the digits of the paper."""
    if value is None or metric == "graph_success":
        return tables.percent(value)
    digits = {"acceptance_rate": 3, "drafted_tokens": 1, "speedup": 2}[metric]
    return tables.number(value, digits) + ("x" if metric == "speedup" else "")


def percents(found: Interval | None) -> str:
    """A share with its interval."""
    if found is None:
        return tables.ABSENT
    low, high = (tables.percent(end) for end in (found.low, found.high))
    return f"{tables.percent(found.value)} [{low}, {high}]"


def with_failure(row: dict[str, str], outcome: Outcome, header: str) -> dict[str, str]:
    """How a run ended that did not end well stands where its number would."""
    status = outcome.status
    return row if status in (None, "ok") else row | {header: str(status)}
