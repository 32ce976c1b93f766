"""One method of a table in one decoding of one block: its metrics with intervals, beside the paper's numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bench import graph_metrics, stats
from bench.report import tables
from bench.report.blocks import Block
from bench.report.gsd.classes import is_greedy, is_sampled
from bench.report.measured import lossless_words
from bench.report.speedups import against
from bench.report.speedups.arms import Arm, Cell
from bench.report.verdict import Pairing
from bench.stats import Interval

COUNTS = {
    "drafted": "Drafted Token Num",
    "created": "created nodes",
    "aliases": "merge edges",
    "sib_leaves": "sibling leaves",
    "verified": "verified nodes",
}
"""Headers of the counts per sample, by their name in `graph_metrics.samples`."""
PRINTED = {"acceptance_rate": 1.0, "drafted_tokens": 1.0, "graph_success": 0.01, "speedup": 1.0}
"""The paper's metrics, and their unit in ours."""


@dataclass(frozen=True)
class Outcome:
    """An arm in a block, in which it may not have been run; without a block nothing was."""

    arm: Arm
    block: Block | None

    @cached_property
    def cell(self) -> Cell:
        """What its run came to."""
        return self.arm.pick(self.block) if self.block is not None else Cell()

    @cached_property
    def steps(self) -> pd.DataFrame:
        """The steps of its run, none where it did not end well."""
        return self.block.steps(self.cell.run_id) if self.block and self.cell.status == "ok" else pd.DataFrame()

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
        return self._share((self.steps["num_behind_merge"] > 0) if len(self.steps) else None)

    @cached_property
    def capped(self) -> float | None:
        """Share of the steps whose tree was cut."""
        found = graph_metrics.capped_share(self.steps)
        return None if math.isnan(found) else found

    @cached_property
    def variation(self) -> Interval | None:
        """Mean total variation of the steps' first tokens; None where it was not recorded."""
        if self.block is None or self.cell.status != "ok":
            return None
        rows = self.block.variation(self.cell.run_id)
        return None if rows.empty else mean_of(rows, "total_variation")

    @property
    def speedup(self) -> Interval | None:
        """Of this decoding."""
        return self.cell.measured.speedup if self.cell.measured else None

    @property
    def mal(self) -> Interval | None:
        """Mean acceptance length."""
        return self.cell.measured.mal if self.cell.measured else None

    @property
    def lossless(self) -> str:
        """Whether its rule is, and how often the output was the target's own."""
        run = self.cell.measured
        return lossless_words(run) if run and run.status == "ok" else tables.ABSENT

    def _share(self, happened: pd.Series | None) -> Interval | None:
        if happened is None or happened.isna().all():
            return None
        return mean_of(self.steps.assign(happened=happened.astype(float)), "happened")


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
        if not self.greedy.speedup or not self.sampled.speedup:
            return None
        sums = [against.sums(one.block, "speedup", one.cell.run_id) for one in (self.greedy, self.sampled) if one.block]
        both = sums[0].add_suffix("/0").join(sums[1].add_suffix("/1"), how="inner")
        found = stats.of_totals(both.reset_index(names="prompt"), _mean_of_two, by="prompt")
        return None if math.isnan(found.value) else found

    @property
    def run(self) -> bool:
        """Whether there is a run of it, however it ended."""
        return bool(self.runs)

    @property
    def runs(self) -> str:
        """Its runs."""
        found = (one.cell.run_id for one in (self.greedy, self.sampled))
        return " ".join(run_id for run_id in found if run_id)

    def pairing(self, metric: str, *, mean: bool = False) -> Pairing:
        """Ours and the paper's value of one of `PRINTED`; `mean` is the speedup of both decodings together."""
        ours = {
            "acceptance_rate": lambda: self.counts.acceptance_rate,
            "drafted_tokens": lambda: self.counts.mean("drafted"),
            "graph_success": lambda: self.counts.graph_success,
            "speedup": lambda: self.mean_speedup if mean else self.counts.speedup,
        }
        return Pairing(ours[metric](), self.published.get(metric))


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


def mean_of(rows: pd.DataFrame, column: str) -> Interval | None:
    """Mean of a column over the rows that have it, conversations resampled; None where none has it."""
    known = rows.dropna(subset=[column])
    return stats.ratio_of_sums(known, column) if len(known) else None


def _mean_of_two(total: Mapping[str, NDArray[np.float64]]) -> NDArray[np.float64]:
    both = [
        total[f"seconds_base/{one}"] * total[f"tokens/{one}"] / (total[f"tokens_base/{one}"] * total[f"seconds/{one}"])
        for one in (0, 1)
    ]
    return (both[0] + both[1]) / 2
