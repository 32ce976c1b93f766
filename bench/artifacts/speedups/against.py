"""How far one method of a table is ahead of another: the ratio of their MAL and of their speedups, ours and a paper's.

Ours is paired: the conversations that both runs decoded are drawn anew together, so that what one prompt gives to both
does not widen the interval. Which of the two is ahead, or `neither`, is what `samples.ahead` says; of two methods of
different budgets none is.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from bench.artifacts import tables
from bench.artifacts.runs import Run
from bench.artifacts.speedups.arms import METRICS
from bench.statistics import samples
from bench.statistics.intervals import Interval

NEITHER = "neither"
UNEVEN = "budgets differ"
HEADERS = {"mal": "MAL", "speedup": "speedup"}


@dataclass(frozen=True, slots=True)
class Lead:
    """The first run's metric over the other's, and 1, 0 or -1 for who is ahead (None: it cannot be said)."""

    ratio: Interval
    ahead: int | None


def lead(metric: str, first: Run | None, other: Run | None) -> Lead | None:
    """How far the first run is ahead, of the conversations that both decoded; None where one has nothing."""
    one, two = (run.sample(metric) if run and run.interval(metric) else None for run in (first, other))
    if one is None or two is None:
        return None
    found = samples.paired_ratio(one, two)
    return None if math.isnan(found.value) else Lead(found, samples.ahead(one, two))


def published_ratio(metric: str, first: Mapping[str, float], other: Mapping[str, float]) -> float | None:
    """The same of the paper's numbers of two methods; None where it does not print both."""
    values = [numbers.get(METRICS[metric]) for numbers in (first, other)]
    return None if values[0] is None or not values[1] else values[0] / values[1]


def ahead(value: Lead | float | None, names: tuple[str, str]) -> str | None:
    """Which of the two is ahead, or `neither`; None where there is no ratio, or no interval to judge ours by."""
    sign = value.ahead if isinstance(value, Lead) else None if value is None else (value > 1) - (value < 1)
    return None if sign is None else (NEITHER, *names)[sign]


def words(value: Lead | float | None, names: tuple[str, str], *, even: bool = True) -> str:
    """`1.053 [0.981, 1.127] (neither)`: the ratio, ours with its interval, and who is ahead if budgets are `even`."""
    if value is None:
        return tables.ABSENT
    text = tables.ratio(value.ratio) if isinstance(value, Lead) else tables.number(value, 3)
    return f"{text} ({(ahead(value, names) or 'no interval') if even else UNEVEN})"


def summary(leads: Mapping[str, Sequence[Lead | None]], names: tuple[str, str]) -> Iterator[str]:
    """A sentence per metric: in how many settings which of the two is ahead."""
    for metric, values in leads.items():
        counts = Counter(who for value in values if (who := ahead(value, names)))
        if counts:
            first, second, level = (counts[who] for who in (*names, NEITHER))
            cases = f"{first} of {counts.total()} settings"
            yield (
                f"Here, by {HEADERS[metric]}, {names[0]} is ahead of {names[1]} in {cases} and behind in {second}; "
                f"in {level} they are tied."
            )


def behind(pairs: Mapping[str, Sequence[tuple[str, float, float]]], names: tuple[str, str]) -> Iterator[str]:
    """What the paper itself prints: the settings, with both values, in which its first method is behind."""
    for metric, values in pairs.items():
        lost = [f"{setting} ({one:.2f} < {two:.2f})" for setting, one, two in values if one < two]
        if values:
            where = f"{len(lost)} of {len(values)} settings: {'; '.join(lost)}" if lost else "no setting"
            yield f"In the paper's own table, by {HEADERS[metric]}, {names[0]} is behind {names[1]} in {where}."
