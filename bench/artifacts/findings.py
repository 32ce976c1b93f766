"""What runs show, in sentences: the fastest and the longest method, identical outputs; and one run in lines."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import pandas as pd

from bench.artifacts import tables, ties
from bench.artifacts.blocks import Block
from bench.artifacts.metric import MAL, SPEEDUP, Metric
from bench.artifacts.runs import Run
from bench.results import failures
from bench.results.rows import AUTOREGRESSIVE, METHOD
from bench.statistics import samples
from bench.statistics.intervals import Interval

BUSY = (
    "Times are too noisy to tell methods apart by speed (a busy machine, or short runs): times of the same "
    "autoregressive work mostly cannot be told to lie within "
    f"{samples.TOO_BUSY:.0%} of each other (see A/A)."
)


def findings(found: Sequence[Block]) -> tuple[str, ...]:
    """The sentences of all blocks: what each ranks, whether all outputs were identical, and what did not end well."""
    every = [run for block in found for run in block.every]
    ranked = [(block, _ranked(block)) for block in found]
    lines = [f"{block.name}: {words}" if len(found) > 1 else words for block, words in ranked if words]
    lost = [f"{run.name} ({run.status})" for run in every if not run.ok]
    failed = f"{len(lost)} of {len(every)} runs did not end well: {', '.join(lost)}."
    return (*lines, _identical([run for run in every if run.ok]), *[failed] * bool(lost))


def facts(run: Run) -> Iterator[str]:
    """A run in a few lines: what it is, MAL, speedup, and whether its outputs were identical."""
    of = f"{run['num_conversations']} conversation{'s' * (run['num_conversations'] != 1)} of {run['dataset']}"
    rule = f"judged by {run['verifier']} at temperature {run['temperature']:g}"
    yield f"{run.name} with the pair {run['pair']}, {rule}, {of}:"
    lost = failures.errors(run.block.results.failed)
    if said := failures.sentence(lost, int(run["num_conversations"]) + len(lost)):
        yield f"  failed     {said} None of their turns counts below."
    yield f"  MAL        {_written(run.mal)} new tokens per decoding step"
    yield f"  speedup    {_written(run.speedup)} times autoregressive decoding"
    yield f"  outputs    {_identical([run])}"


def _ranked(block: Block) -> str:
    """The fastest and the longest of a block's methods; nothing where there are no two."""
    runs = [run for run in block.ok if run.method != AUTOREGRESSIVE]
    if len(runs) < 2:
        return ""
    fastest = _first("Fastest", SPEEDUP, runs, busy=ties.busy(block.ok))
    return " ".join(filter(None, (fastest, _first("Longest", MAL, runs))))


def _first(word: str, metric: Metric, runs: Sequence[Run], *, busy: bool = False) -> str:
    """`Fastest: EAGLE's tree, speedup 1.20 [1.10, 1.34], tied with 2 others.`"""
    entries = ties.over_common([metric.entry(run) for run in runs])
    known = [(entry.value.value, place) for place, entry in enumerate(entries) if entry.value]
    if not known:
        return ""
    place, signs = max(known)[1], ties.marks(entries, busy)
    best, value = runs[place], f"{metric.header} {_written(entries[place].value)}"
    if signs[place] == ties.UNRANKED:
        return f"{word}: not told, since times are too noisy ({best.name} has {value})."
    tied = [sign for run, sign in zip(runs, signs, strict=True) if run.lossless == best.lossless].count(ties.TIED)
    others = f", tied with {tied} other{'s' * (tied > 1)}" if tied else ""
    lossy = "" if best.lossless else " (not lossless)"
    return f"{word}: {best.name}{lossy}, {value}{others}."


def _identical(runs: Sequence[Run]) -> str:
    """How many outputs are those of autoregressive decoding, and of which methods not all are."""
    audits = [(run, audit) for run in runs if len(audit := _audited(run))]
    total, same = (sum(int(count(audit)) for _, audit in audits) for count in (len, sum))
    if not total:
        return "Outputs are compared with autoregressive decoding's in greedy decoding alone; none here was."
    if same == total:
        return f"All {total} outputs are identical to autoregressive decoding's, token for token."
    differ = ", ".join(f"{run.name} {tables.percent(run.identical)}" for run, audit in audits if not audit.all())
    return f"{same} of {total} outputs are identical to autoregressive decoding's; not all of: {differ}."


def _audited(run: Run) -> pd.Series:
    """Of every output whether it is identical, where that was asked."""
    rows = run.prompts
    return rows.loc[rows["arm"] == METHOD, "identical"].dropna().astype(bool)


def _written(value: Interval | None) -> str:
    """With its interval or range, which one conversation has not."""
    if value is None or math.isfinite(value.low + value.high):
        return tables.interval(value)
    return f"{tables.number(value.value)} (no interval: {value.n} conversation{'s' * (value.n != 1)})"
