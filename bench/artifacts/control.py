"""A/A controls: how far apart times of the same work lie, so that smaller differences are not taken for any.

Where autoregressive decoding was run as a method, it is set against its own baseline in the same run. The baselines of
different runs, which decode the same prompts again and again, are set against each other: two runs' tokens per second
have such a stretch of time between them, two speedups have not.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pandas as pd

from bench.artifacts import tables
from bench.artifacts.blocks import Block
from bench.artifacts.runs import Run
from bench.results.roles import Role, columns
from bench.results.rows import AUTOREGRESSIVE, METHOD, RunRow
from bench.statistics import samples
from bench.statistics.intervals import FEWEST, Interval
from bench.statistics.samples import Sample

_WORK = columns(RunRow, Role.SETTING, Role.OPTIONS)
"""What the baselines of two runs must have in common to be the same work, in blocks that sweep it."""
NONE = "A/A compares two runs of one decoding, and there is one of each: which differences are resolved is not known."
"""What is said of a block without a control."""
NO_ARM = "A/A compares autoregressive arms, and no run has one: which differences of times are resolved is not known."
TOO_FEW = "A/A: fewer than six conversations have no interval: which differences are resolved here is not known."
"""What is said of a block whose controls decoded fewer conversations than have an interval."""

LIMIT = "Plain decoding runs at {:.0%} of what memory bandwidth allows: the nearer it comes, the smaller are speedups."
"""Median over runs."""

RESUMED = "Resumed after a kill or preemption: {}. Both arms of a prompt are of one start; tokens/s mix several."
LEFT_OUT = "{} of {} outputs are left out of times: their GPU was throttled or shared, or their CPU stalled thrice."
REPEATED = "{} of {} turns were decoded again in both arms, since their CPU stalled; the last decoding counts."


@dataclass(frozen=True, slots=True)
class Arms:
    """The baselines of several runs: the two whose interval reaches furthest, as a ratio of speeds of 1 or more."""

    runs: int
    widest: Interval
    typical: float
    """The median of how far from 1 the intervals reach."""

    @property
    def too_noisy(self) -> bool:
        """Whether most may lie further apart than times that are to rank anything."""
        return self.typical > samples.TOO_BUSY


def notes(found: Iterable[Block]) -> Iterator[str]:
    """What controls, shared baselines, memory bandwidth and what disturbed say of every block; several are named."""
    told = (_note, _shared, _limit, _repeated, _left_out, _resumed)
    parts = ((block, [tell(block) for tell in told]) for block in found)
    every = [(block, text) for block, said in parts if (text := " ".join(filter(None, said)))]
    for block, text in every:
        yield f"{block.name}: {text}" if len(every) > 1 else text


def itself(block: Block) -> Interval | None:
    """The speedup of autoregressive decoding over itself, of several runs the widest; None where it was not run."""
    found = [run.speedup for run in block.ok if run.method == AUTOREGRESSIVE]
    return max((one for one in found if one and _known(one)), key=samples.resolution, default=None)


def arms(block: Block) -> dict[str, Arms]:
    """The baselines of the block's runs in pairs, over the conversations of both, by decoding, as times are ranked.

    A decoding of which no two can be compared is left out.
    """
    every = [(words, _arms([run for run in block.ok if _decoding(run) == words])) for words in _decodings(block)]
    return {words: found for words, found in every if found}


def _decodings(block: Block) -> list[str]:
    return list(dict.fromkeys(map(_decoding, block.ok)))


def _decoding(run: Run) -> str:
    if run["temperature"] == 0:
        return "of greedy decoding"
    return f"at temperature {run['temperature']:g}" + (f", top-p {run['top_p']:g}" if run["top_p"] != 1 else "")


def _arms(every: Iterable[Run]) -> Arms | None:
    groups: dict[tuple[object, ...], list[Sample]] = {}
    for run in every:
        sample = run.sample("autoregressive_tokens_per_s")
        if sample and len(sample.sums) and _own(run):
            groups.setdefault(_work(run), []).append(sample)
    ratios = [_apart(*pair) for of_work in groups.values() for pair in itertools.combinations(of_work, 2)]
    known = [ratio for ratio in ratios if _known(ratio)]
    runs = sum(len(of_work) for of_work in groups.values() if len(of_work) > 1)
    reach = [samples.resolution(ratio) for ratio in known]
    return Arms(runs, max(known, key=samples.resolution), statistics.median(reach)) if known else None


def _note(block: Block) -> str:
    own, sentences, several = itself(block), [], len(_decodings(block)) > 1
    if own is not None:
        sentences.append(
            f"A/A (autoregressive against itself in one run): speedup {tables.interval(own)} in {own.n} conversations: "
            f"a speedup within {_percent(own)} of 1 is not told from 1; between runs the machine may change by more."
        )
    for words, others in arms(block).items():
        of = f" {words}" if several else ""
        sentences.append(
            f"A/A (the autoregressive arms of {others.runs} runs{of} against each other): the least certain pair is "
            f"{tables.interval(others.widest)} times as fast in {others.widest.n} conversations: in such a pair "
            f"tokens/s that differ by less than {_percent(others.widest)} are not resolved."
        )
        if others.too_noisy:
            sentences.append(
                f"Most pairs do not resolve {samples.TOO_BUSY:.0%}: times here are too noisy to rank anything."
            )
    if sentences or not block.ran:
        return " ".join(sentences)
    return _reason(block)


def _shared(block: Block) -> str:
    """Which runs have no baseline of their own (`runtime.baseline=shared`)."""
    lent = {run.name: str(run["baseline_of"]) for run in block.ok if not _own(run)}
    if not lent:
        return ""
    return (
        f"One autoregressive arm (run {', '.join(dict.fromkeys(lent.values()))}) is shared by {', '.join(lent)}: their "
        "speedups rest on it, and no control between arms tells what the machine did meanwhile."
    )


def _limit(block: Block) -> str:
    """How near the baselines come to the fastest that memory allows."""
    limits = {run: run.row.get("limit_tokens_per_s") for run in block.ok if _own(run)}
    known = {run: limit for run, limit in limits.items() if pd.notna(limit)}
    speeds = {run: run.interval("autoregressive_tokens_per_s") for run in known}
    shares = [speed.value / known[run] for run, speed in speeds.items() if speed]
    return LIMIT.format(statistics.median(shares)) if shares else ""


def _left_out(block: Block) -> str:
    """How many outputs have times that do not count."""
    counts = [run.row.get("num_contaminated") for run in block.ok]
    total = sum(int(count) for count in counts if pd.notna(count))
    return LEFT_OUT.format(total, sum(len(run.prompts) for run in block.ok)) if total else ""


def _repeated(block: Block) -> str:
    """How many turns were measured again."""
    counts = [run.row.get("num_repeated") for run in block.ok]
    total = sum(int(count) for count in counts if pd.notna(count))
    turns = sum(int((run.prompts["arm"] == METHOD).sum()) for run in block.ok) if total else 0
    return REPEATED.format(total, turns) if total else ""


def _resumed(block: Block) -> str:
    """Which runs were decoded in several starts."""
    starts = {run.name: run.row.get("num_starts") for run in block.ok}
    names = [name for name, count in starts.items() if pd.notna(count) and count > 1]
    return RESUMED.format(", ".join(names)) if names else ""


def _reason(block: Block) -> str:
    """Why no two of its arms can be compared."""
    arms_of = [(run, len(sample.sums)) for run in block.ok if (sample := run.sample("autoregressive_tokens_per_s"))]
    decoded = [(run, conversations) for run, conversations in arms_of if conversations and _own(run)]
    works = [_work(run) for run, _ in decoded]
    if not decoded:
        return NO_ARM
    compared = len(set(works)) < len(works) or any(run.method == AUTOREGRESSIVE for run, _ in decoded)
    few = all(conversations < FEWEST for _, conversations in decoded)
    return TOO_FEW if compared and few else NONE


def _own(run: Run) -> bool:
    """Whether it decoded its baseline itself."""
    return bool(pd.isna(run.row.get("baseline_of")))


def _apart(first: Sample, other: Sample) -> Interval:
    """The ratio of the faster to the slower one."""
    ratio = samples.paired_ratio(first, other)
    return samples.paired_ratio(other, first) if ratio.value < 1 else ratio


def _work(run: Run) -> tuple[object, ...]:
    return tuple(run[column] for column in _WORK)


def _known(ratio: Interval) -> bool:
    return ratio.known


def _percent(ratio: Interval) -> str:
    """Rounded up, since what is said not to be resolved is not; whole percents from 10 on."""
    percent = samples.resolution(ratio) * 100
    digits = 1 if percent < 10 else 0
    scale = 10**digits
    return f"{math.ceil(round(percent * scale, 6)) / scale:.{digits}f}%"
