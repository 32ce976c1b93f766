"""Which value of a block is the best, and which of the others are tied with it."""

from __future__ import annotations

import math
from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass

import pandas as pd

from bench import samples
from bench.report.measured import Measured
from bench.samples import Sample
from bench.stats import Interval

BEST, TIED = " *", " ="
NOTE = (
    "* best of its block, = tied with it (the paired 95% interval of the ratio of the two holds 1); rows that do not "
    "keep the target's law are ranked among themselves."
)


@dataclass(frozen=True, slots=True)
class Entry:
    """A value of one row and the sums behind it; None where nothing was measured."""

    value: Interval | None
    sample: Sample | None
    lossless: bool = True


def of(run: Measured | None, metric: str) -> Entry:
    """`mal`, `tokens_per_s` or `speedup` of a run."""
    if run is None:
        return Entry(None, None)
    return Entry(getattr(run, metric), run.samples.get(metric), run.lossless)


def marks(entries: Sequence[Entry]) -> list[str]:
    """What stands behind each value: `BEST`, `TIED` or nothing; nothing anywhere below two values with intervals."""
    found = [""] * len(entries)
    for kept in (True, False):
        places = [place for place, one in enumerate(entries) if one.lossless == kept and _known(one)]
        if len(places) < 2:
            continue
        best = max(places, key=lambda place: _value(entries[place]))
        for place in places:
            found[place] = BEST if place == best else TIED if _tied(entries[best], entries[place]) else ""
    return found


def mark(rows: Sequence[MutableMapping[str, str]], columns: Mapping[str, Sequence[Entry]]) -> None:
    """Put the marks behind the cells of the rows of one block; `columns` has an entry per row."""
    for column, entries in columns.items():
        for row, sign in zip(rows, marks(entries), strict=True):
            row[column] += sign


def note(frame: pd.DataFrame) -> tuple[str, ...]:
    """What the marks mean, if a cell has one."""
    return (NOTE,) if any(str(cell).endswith((BEST, TIED)) for cell in frame.to_numpy().flat) else ()


def _known(one: Entry) -> bool:
    return one.value is not None and one.sample is not None and math.isfinite(one.value.low + one.value.high)


def _value(one: Entry) -> float:
    return one.value.value if one.value else -math.inf


def _tied(best: Entry, other: Entry) -> bool:
    assert best.sample is not None and other.sample is not None  # noqa: PT018 - both are known
    return samples.tied(samples.paired_ratio(best.sample, other.sample))
