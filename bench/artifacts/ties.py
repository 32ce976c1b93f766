"""Which value of a block is the best, and which of the others are tied with it."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from functools import reduce

import pandas as pd

from bench.artifacts.runs import Run
from bench.statistics import samples
from bench.statistics.intervals import Interval
from bench.statistics.samples import Sample

BEST, TIED, UNRANKED = " *", " =", " !"
NOTE = (
    "* best of its block, = tied with it (the paired 95% interval of their difference holds 0, or, of times, the two "
    "runs' autoregressive arms lie as far apart); rows that do not keep the target's law are ranked among themselves."
)
BUSY_NOTE = (
    f"! not ranked: times are too noisy, since the autoregressive arms of most pairs of runs, which do the same work, "
    f"cannot be told to lie within {samples.TOO_BUSY:.0%} (see A/A)."
)


@dataclass(frozen=True, slots=True)
class Entry:
    """A value of one row and the sums behind it; None where nothing was measured."""

    value: Interval | None
    sample: Sample | None
    lossless: bool = True


def of(run: Run | None, metric: str) -> Entry:
    """`mal`, `tokens_per_s` or `speedup` of a run."""
    return Entry(None, None) if run is None else Entry(run.interval(metric), run.sample(metric), run.lossless)


def marks(entries: Sequence[Entry]) -> list[str]:
    """What stands behind each value: `BEST`, `TIED` or nothing; nothing anywhere below two values with intervals.

    `UNRANKED` behind all of them where they are times and too noisy to rank any.
    """
    if samples.too_busy([one.sample for one in entries if one.sample and _known(one)]):
        return [UNRANKED if _known(one) else "" for one in entries]
    found = [""] * len(entries)
    for kept in (True, False):
        places = {place: one.sample for place, one in enumerate(entries) if one.lossless == kept and _known(one)}
        shared = _shared([sample for sample in places.values() if sample])
        alike = {place: sample.of(shared) for place, sample in places.items() if sample}
        if len(places) < 2 or len(shared) < 2:
            continue
        best = max(alike, key=lambda place: samples.interval(alike[place]).value)
        for place, sample in alike.items():
            found[place] = BEST if place == best else TIED if samples.ahead(alike[best], sample) == 0 else ""
    return found


def _shared(every: Sequence[Sample]) -> pd.Index:
    """The conversations that all of them have."""
    return (
        reduce(
            lambda kept, index: kept.intersection(index), (sample.sums.index for sample in every), every[0].sums.index
        )
        if every
        else pd.Index([])
    )


def mark(
    rows: Sequence[MutableMapping[str, str]],
    columns: Mapping[str, Sequence[Entry]],
    among: Sequence[Hashable] | None = None,
) -> None:
    """Put the marks behind the cells of the rows of one block; `columns` has an entry per row.

    Rows of several blocks, or of other groups, are told apart by what `among` has for each.
    """
    groups: dict[Hashable, list[int]] = {}
    for place, group in enumerate(among or [None] * len(rows)):
        groups.setdefault(group, []).append(place)
    for column, entries in columns.items():
        for places in groups.values():
            for place, sign in zip(places, marks([entries[place] for place in places]), strict=True):
                rows[place][column] += sign


def note(frame: pd.DataFrame) -> tuple[str, ...]:
    """What the marks mean that cells have."""
    cells = [str(cell) for cell in frame.to_numpy().flat]
    meanings = {NOTE: (BEST, TIED), BUSY_NOTE: (UNRANKED,)}
    return tuple(text for text, signs in meanings.items() if any(cell.endswith(signs) for cell in cells))


def _known(one: Entry) -> bool:
    return one.value is not None and one.sample is not None and math.isfinite(one.value.low + one.value.high)
