"""One method of a table in one decoding of one block: its metrics with intervals, beside the paper's numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import pandas as pd

from bench.artifacts import tables
from bench.artifacts.blocks import Block
from bench.artifacts.metric import lossless_words
from bench.artifacts.runs import Run, per_row
from bench.artifacts.speedups.arms import Arm
from bench.statistics import graph_metrics, intervals
from bench.statistics.intervals import Interval
from bench.statistics.samples import Sample

COUNTS = {
    "drafted": "Drafted Token Num",
    "created": "created nodes",
    "aliases": "merge edges",
    "sib_leaves": "sibling leaves",
    "verified": "verified nodes",
}
"""Headers of the counts per sample, by their name in `graph_metrics.samples`."""


@dataclass(frozen=True)
class Outcome:
    """An arm in a block, in which it may not have been run; without a block nothing was."""

    arm: Arm
    block: Block | None

    @cached_property
    def run(self) -> Run | None:
        """Its run, however it ended."""
        return self.arm.chosen(self.block) if self.block is not None else None

    @property
    def status(self) -> str | None:
        """How the run ended; None if there is none."""
        return self.run.status if self.run else None

    @property
    def run_id(self) -> str:
        """The run's, "" for none."""
        return self.run.run_id if self.run else ""

    @cached_property
    def steps(self) -> pd.DataFrame:
        """The steps of its run, none where it did not end well."""
        return self.run.steps if self.run and self.run.ok else pd.DataFrame()

    @cached_property
    def samples(self) -> pd.DataFrame:
        """What `graph_metrics` averages over samples, a row each."""
        return pd.DataFrame() if self.steps.empty else graph_metrics.samples(self.steps)

    @cached_property
    def acceptance_rate(self) -> Interval | None:
        """GSD's Acceptance Rate."""
        return self.mean("acceptance_rate")

    def mean(self, column: str) -> Interval | None:
        """The mean over samples of a column of `samples`."""
        return None if self.samples.empty else mean_of(self.samples, column)

    @cached_property
    def graph_success(self) -> Interval | None:
        """`graph_metrics.graph_success` with its interval."""
        return None if self._successes.empty else mean_of(self._successes, "happened")

    @property
    def sums(self) -> Mapping[str, Sample | None]:
        """The sums over conversations behind its metrics, by the paper's names."""
        return {
            "acceptance_rate": self.sample("acceptance_rate"),
            "drafted_tokens": self.sample("drafted"),
            "graph_success": per_row(self._successes, "happened"),
            **{name: self.run.sample(name) if self.run else None for name in ("speedup", "mal")},
        }

    def sample(self, column: str) -> Sample | None:
        """The sums behind `mean`."""
        return None if self.samples.empty else per_row(self.samples.dropna(subset=[column]), column)

    @cached_property
    def capped(self) -> float | None:
        """Share of the steps whose tree was cut."""
        found = graph_metrics.capped_share(self.steps)
        return None if math.isnan(found) else found

    @cached_property
    def variation(self) -> Interval | None:
        """Mean total variation of the steps' first tokens; None where it was not recorded."""
        if self.block is None or self.status != "ok":
            return None
        rows = self.block.variation(self.run_id)
        return None if rows.empty else mean_of(rows, "total_variation")

    @property
    def speedup(self) -> Interval | None:
        """Of this decoding."""
        return self.run.speedup if self.run else None

    @property
    def mal(self) -> Interval | None:
        """Mean acceptance length."""
        return self.run.mal if self.run else None

    @property
    def lossless(self) -> str:
        """Whether its rule is, and how often the output was the target's own."""
        run = self.run
        return lossless_words(run) if run and run.status == "ok" else tables.ABSENT

    @cached_property
    def shared_success(self) -> Interval | None:
        """Share of the steps that accepted a token of a shared subtree; None where no row tells, as of older ones."""
        if self.steps.empty:
            return None
        known = self.steps.dropna(subset=["num_in_shared_subtree"])
        return mean_of(known.assign(happened=(known["num_in_shared_subtree"] > 0).astype(float)), "happened")

    @cached_property
    def _successes(self) -> pd.DataFrame:
        """The steps that have a graph, with whether they were a success."""
        if self.steps.empty:
            return self.steps
        known = self.steps.dropna(subset=["num_behind_merge"])
        return known.assign(happened=(known["num_behind_merge"] > 0).astype(float))


def mean_of(rows: pd.DataFrame, column: str) -> Interval | None:
    """Mean of a column over the rows that have it, conversations resampled; None where none has it."""
    known = rows.dropna(subset=[column])
    return intervals.ratio_of_sums(known, column) if len(known) else None
