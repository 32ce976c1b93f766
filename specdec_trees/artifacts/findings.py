"""What runs of `frame.load` show, in sentences: the fastest and the longest method, identical outputs; one in lines."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pandas as pd

from specdec_trees.artifacts import frame, notes, tables, ties
from specdec_trees.artifacts.frame import done
from specdec_trees.artifacts.metrics import MAL, SPEEDUP, Metric
from specdec_trees.artifacts.tables import named_rows
from specdec_trees.artifacts.ties import Entry
from specdec_trees.results import failures
from specdec_trees.results.rows import AUTOREGRESSIVE, METHOD
from specdec_trees.statistics import intervals, samples
from specdec_trees.statistics.intervals import Interval

BUSY = (
    "Times are too noisy to tell methods apart by speed (a busy machine, or short runs): times of the same "
    "autoregressive work mostly cannot be told to lie within "
    f"{samples.TOO_BUSY:.0%} of each other (see A/A)."
)

HELPS = 1.05
"""A MAL below this is hardly more than plain decoding's 1."""
HARDLY = (
    "The draft hardly helps. Check that it was made for this very target, that both have the same tokenizer and chat "
    "template, and that the answers in the rows are text as you expect it."
)


def findings(runs: pd.DataFrame) -> tuple[str, ...]:
    """The sentences of all blocks: what each ranks, whether all outputs were identical, and what did not end well."""
    blocks = list(runs.groupby("setting", sort=False))
    ranked = [f"{name}: {words}" if len(blocks) > 1 else words for name, rows in blocks if (words := _ranked(rows))]
    lost = [f"{run.name} ({run.status})" for run in named_rows(runs) if not run.ok]
    failed = f"{len(lost)} of {len(runs)} runs did not end well: {', '.join(lost)}."
    replayed = [f"{words[0].upper()}{words[1:]}." for words in [notes.replayed(runs)] if words]
    return (*ranked, _identical(done(runs)), *replayed, *[failed] * bool(lost))


def facts(alone: pd.DataFrame) -> Iterator[str]:
    """The only run in a few lines: what it is, MAL, speedup, and whether its outputs were identical."""
    (run,) = named_rows(alone)
    of = f"{run.num_conversations} conversation{'s' * (run.num_conversations != 1)} of {run.dataset}"
    yield f"{run.name} with the pair {run.pair}, judged by {run.verifier} at temperature {run.temperature:g}, {of}:"
    lost = failures.errors(run.failed)
    if words := failures.sentence(lost, int(run.num_conversations) + len(lost)):
        yield f"  failed     {words} None of their turns counts below."
    mal, speedup = frame.measure(alone, [MAL, SPEEDUP])["interval"]
    yield f"  MAL        {written(mal)} new tokens per decoding step"
    if pd.notna(run.recording):
        yield f"  replayed   on the target's answers in recording {run.recording}, without times"
        return
    yield f"  speedup    {written(speedup)} times autoregressive decoding"
    if left := int(pd.notna(run.num_contaminated) and run.num_contaminated):
        yield f"  left out   {left} of {len(run.prompts)} outputs: no time above is of them (CPU stalled, GPU shared)"
    yield f"  outputs    {_identical(alone)}"


def _ranked(block: pd.DataFrame) -> str:
    """The fastest and the longest of a block's methods; nothing where there are no two."""
    runs = done(block[block["method"] != AUTOREGRESSIVE])
    if len(runs) < 2:
        return ""
    return " ".join((*fastest(frame.measure(runs, [SPEEDUP])), *longest(frame.measure(runs, [MAL]))))


@dataclass(frozen=True, slots=True)
class First:
    """The best of some runs by a metric: its own value, its mark and how many are tied over `common` conversations."""

    run: Any
    value: Interval
    sign: str
    tied: int
    common: int

    def words(self, metric: Metric) -> str:
        """`EAGLE's tree, speedup 1.20 [1.10, 1.34]`."""
        return _words(self.run, self.value, metric)

    @property
    def few(self) -> bool:
        """Whether all runs have too few conversations in common for an interval."""
        return self.common < intervals.FEWEST

    @property
    def others(self) -> str:
        """`, tied with 2 others`; nothing without any."""
        return f", tied with {self.tied} other{'s' * (self.tied > 1)}" if self.tied else ""


def first(long: pd.DataFrame) -> First | None:
    """The row with the largest value, of rows of one metric; None where nothing was measured."""
    rows = list(named_rows(long))
    entries = ties.over_common([Entry(row.interval, row.sample, bool(row.lossless)) for row in rows])
    known = [(entry.value.value, place) for place, entry in enumerate(entries) if entry.value]
    if not known:
        return None
    signs = ties.marks(entries, bool(long["busy"].any()))
    place = max(known, key=lambda one: one[0])[1]
    best, value = rows[place], entries[place].value
    tied = [sign for row, sign in zip(rows, signs, strict=True) if row.lossless == best.lossless].count(ties.TIED)
    return First(best, best.interval or value, signs[place], tied, value.n) if value else None


def _words(run: Any, value: Interval, metric: Metric) -> str:
    lossy = "" if run.lossless else " (not lossless)"
    return f"{run.name}{lossy}, {metric.header} {written(value)}"


def fastest(long: pd.DataFrame) -> Iterator[str]:
    """The method with the largest speedup, of rows of that metric, in a sentence; or that none is faster than 1."""
    best = first(long)
    if best is None:
        return
    value = best.words(SPEEDUP)
    known = [(row, row.interval) for row in named_rows(long) if row.interval and row.interval.n >= intervals.FEWEST]
    surely = max((one for one in known if one[1].low > 1), key=lambda one: one[1].low, default=None)
    if best.sign == ties.UNRANKED:
        yield f"Times are too noisy to say which is the fastest ({value})."
    elif best.few:
        yield f"There are too few conversations to say which is the fastest ({value})."
    elif best.value.low > 1:
        yield f"Fastest: {value}{best.others}."
    elif surely:
        yield f"Fastest: {value}{best.others}. It is not told from plain decoding; {_words(*surely, SPEEDUP)} is."
    else:
        slower = "is faster" if all(reach.high < 1 for _, reach in known) else "is shown to be faster"
        yield f"No method {slower} than plain decoding; the nearest is {value}{best.others}."


def longest(long: pd.DataFrame) -> Iterator[str]:
    """The method with the largest MAL, of rows of that metric, in a sentence; and that a draft hardly helps."""
    best = first(long)
    if best is None:
        return
    value = best.words(MAL)
    if best.few:
        yield f"There are too few conversations to say which is the longest ({value})."
    else:
        yield f"Longest: {value}{best.others}."
    if best.value.value < HELPS:
        yield HARDLY


def _identical(runs: pd.DataFrame) -> str:
    """How many outputs are those of autoregressive decoding, and of which methods not all are."""
    audits = [(run, audit) for run in named_rows(runs) if len(audit := _audited(run.prompts))]
    total, same = (sum(int(count(audit)) for _, audit in audits) for count in (len, sum))
    if not total:
        return "Outputs are compared with autoregressive decoding's in greedy decoding alone; none here was."
    if same == total:
        return f"All {total} outputs that were compared are identical to autoregressive decoding's, token for token."
    differ = ", ".join(f"{run.name} {tables.percent(run.identical)}" for run, audit in audits if not audit.all())
    compared = f"{same} of {total} outputs that were compared"
    return f"{compared} are identical to autoregressive decoding's; not all of: {differ}."


def _audited(turns: pd.DataFrame) -> pd.Series:
    """Of every output whether it is identical, where that was asked."""
    return turns.loc[turns["arm"] == METHOD, "identical"].dropna().astype(bool)


def written(value: Interval | None) -> str:
    """A value with its interval or range, which one conversation has not."""
    if value is None or math.isfinite(value.low + value.high):
        return tables.interval(value)
    return f"{tables.number(value.value)} (no interval: {value.n} conversation{'s' * (value.n != 1)})"
