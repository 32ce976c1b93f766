"""What intervals can tell: which value of a block is the best, and which are tied with it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce

import pandas as pd

from specdec_trees.statistics import intervals, samples
from specdec_trees.statistics.intervals import Interval
from specdec_trees.statistics.samples import Sample

BEST, TIED, UNRANKED = " *", " =", " !"
NOTE = (
    "* best of its setting, = tied with it (the paired 95% interval of their difference holds 0, or, of times, the two "
    "runs' autoregressive arms lie as far apart); rows that do not keep the target's distribution are ranked among "
    "themselves."
)
KEY = "* best, = tied with it."
"""The same in few words, for a terminal."""
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


def marks(entries: Sequence[Entry], busy: bool | None = None) -> list[str]:
    """What stands behind each value: `BEST`, `TIED` or nothing; nothing anywhere below two values with intervals.

    `UNRANKED` behind all of them where they are times and too noisy to rank any, by `busy` or else by these alone.
    """
    known = [one.sample for one in entries if one.sample and _known(one)]
    timed = len(known) > 1 and any(sample.controls for sample in known)
    if samples.too_busy(known) if busy is None else busy and timed:
        return [UNRANKED if _known(one) else "" for one in entries]
    signs = [""] * len(entries)
    for kept in (True, False):
        places = {place: one.sample for place, one in enumerate(entries) if one.lossless == kept and _known(one)}
        shared = _shared([sample for sample in places.values() if sample])
        alike = {place: sample.of(shared) for place, sample in places.items() if sample}
        if len(places) < 2 or len(shared) < intervals.FEWEST:
            continue
        best = max(alike, key=lambda place: samples.interval(alike[place]).value)
        for place, sample in alike.items():
            signs[place] = BEST if place == best else TIED if samples.ahead(alike[best], sample) == 0 else ""
    return signs


def over_common(entries: Sequence[Entry]) -> list[Entry]:
    """The entries over the conversations that all of them have: values over others do not say which is the best."""
    shared = _shared([one.sample for one in entries if one.sample and one.value])
    return [
        replace(one, value=samples.interval(alike), sample=alike)
        if one.value and one.sample and len((alike := one.sample.of(shared)).sums)
        else Entry(None, None, one.lossless)
        for one in entries
    ]


def _shared(several: Sequence[Sample]) -> pd.Index:
    """The conversations that all of them have."""
    conversations = [sample.sums.index for sample in several]
    return reduce(pd.Index.intersection, conversations) if conversations else pd.Index([])


def note(frame: pd.DataFrame) -> tuple[str, ...]:
    """What the marks mean that cells have."""
    cells = [str(cell) for cell in frame.to_numpy().flat]
    meanings = {NOTE: (BEST, TIED), BUSY_NOTE: (UNRANKED,)}
    return tuple(text for text, signs in meanings.items() if any(cell.endswith(signs) for cell in cells))


def _known(one: Entry) -> bool:
    return one.value is not None and one.sample is not None and one.value.known
