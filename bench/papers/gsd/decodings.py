"""A row of a GSD table: one method in greedy decoding and in sampling, beside the paper's numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import pandas as pd

from bench.artifacts.blocks import Block
from bench.artifacts.speedups.arms import Arm
from bench.artifacts.ties import Entry
from bench.artifacts.verdict import Pairing
from bench.papers.gsd.classes import is_greedy, is_sampled
from bench.papers.gsd.outcomes import Outcome
from bench.statistics import samples
from bench.statistics.intervals import Interval
from bench.statistics.samples import Sample

PRINTED = {"acceptance_rate": 1.0, "drafted_tokens": 1.0, "graph_success": 0.01, "speedup": 1.0}
"""The paper's metrics, and their unit in ours."""


@dataclass(frozen=True)
class Method:
    """A row of a table: what an arm came to in greedy decoding and in sampling, and the paper's rows for it."""

    arm: Arm
    greedy: Outcome
    sampled: Outcome
    paper: pd.DataFrame = field(repr=False)
    sampling: bool = False  # the table is of sampling; else its counts are those of greedy decoding

    @property
    def counts(self) -> Outcome:
        """The decoding whose acceptance rate and counts the table gives."""
        return self.sampled if self.sampling else self.greedy

    @cached_property
    def published(self) -> Mapping[str, float]:
        """The paper's numbers, shares as fractions."""
        return {name: value * PRINTED.get(name, 1.0) for name, value in self.arm.published(self.paper).items()}

    @cached_property
    def mean_speedup(self) -> Interval | None:
        """The mean of both decodings' speedups over the conversations of both; None where one is missing."""
        found = samples.interval(self._speedups) if self._speedups else samples.NOTHING
        return None if math.isnan(found.value) else found

    @property
    def run(self) -> bool:
        """Whether there is a run of it, however it ended."""
        return bool(self.runs)

    @property
    def runs(self) -> str:
        """Its runs."""
        found = (one.run_id for one in (self.greedy, self.sampled))
        return " ".join(run_id for run_id in found if run_id)

    def pairing(self, metric: str, *, mean: bool = False) -> Pairing:
        """Ours and the paper's value of one of `PRINTED`; `mean` is the speedup of both decodings together."""
        ours = {
            "acceptance_rate": lambda: self.counts.acceptance_rate,
            "drafted_tokens": lambda: self.counts.mean("drafted"),
            "graph_success": lambda: self.counts.graph_success,
            "speedup": lambda: self.mean_speedup if mean else self.counts.speedup,
        }
        sample = self._speedups if mean and metric == "speedup" else self.counts.sums[metric]
        return Pairing(ours[metric](), self.published.get(metric), sample)

    def entry(self, metric: str, decoding: str = "counts") -> Entry:
        """A value that may be the best of its block: of `greedy` decoding, of what is `sampled`, or of the `counts`."""
        one: Outcome = getattr(self, decoding)
        run = one.run
        return Entry(getattr(one, metric), one.sums[metric], run.lossless if run else True)

    @property
    def mean_entry(self) -> Entry:
        """The mean speedup, which may be the best of its block; lossless if the rules of both decodings are."""
        found = [one.run for one in (self.greedy, self.sampled)]
        return Entry(self.mean_speedup, self._speedups, all(run.lossless for run in found if run))

    @cached_property
    def _speedups(self) -> Sample | None:
        """The sums behind the mean of both decodings' speedups; None where one is missing."""
        both = self.greedy.sums["speedup"], self.sampled.sums["speedup"]
        return samples.mean_of(both[0], both[1]) if both[0] and both[1] else None


def method(arm: Arm, block: Block | None, paper: pd.DataFrame, *, sampling: bool = False) -> Method:
    """An arm in a block of one or both decodings, beside the paper's rows of its setting."""
    greedy, sampled = (Outcome(arm, decoded(block, greedy=greedy)) for greedy in (True, False))
    return Method(arm, greedy, sampled, paper, sampling)


def decoded(block: Block | None, *, greedy: bool) -> Block | None:
    """The part of a block in greedy decoding or in the paper's sampling; None if there is none."""
    if block is None:
        return None
    runs = block.runs[is_greedy(block.runs) if greedy else is_sampled(block.runs)]
    return None if runs.empty else replace(block, runs=runs.reset_index(drop=True))
