"""One method in one block: its run, and its acceptance rate beside the paper's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import pandas as pd

from bench.artifacts import tables, ties
from bench.artifacts.blocks import Block, blocks, every_run
from bench.artifacts.runs import Run
from bench.artifacts.ties import Entry
from bench.artifacts.verdict import Pairing
from bench.papers.improving_mcsd.methods import Method
from bench.papers.improving_mcsd.rates import alpha, alpha_sample
from bench.results.store import Results


@dataclass(frozen=True)
class Cell:
    """A method in one setting and column; without a block, or a run of it in the block, nothing was measured."""

    method: Method
    block: Block | None
    paper: pd.DataFrame

    @cached_property
    def run(self) -> Run | None:
        """The run, however it ended."""
        return self.method.chosen(self.block) if self.block is not None else None

    @property
    def run_id(self) -> str:
        """The run's, "" without one."""
        return "" if self.run is None else str(self.run["run_id"])

    @property
    def failure(self) -> str:
        """How the run ended if it did not end well."""
        return "" if self.run is None or self.run.ok else str(self.run["status"])

    @cached_property
    def pairing(self) -> Pairing:
        """Our alpha and the paper's."""
        published = self.method.published(self.paper)
        if self.block is None or self.run is None or self.failure:
            return Pairing(None, published)
        return Pairing(alpha(self.block, self.run), published, alpha_sample(self.block, self.run))

    @cached_property
    def measured(self) -> Run | None:
        """What was measured of a run that ended well."""
        return None if self.run is None or self.failure else self.run

    def entry(self, metric: str) -> Entry:
        """`alpha`, `mal`, `tokens_per_s` or `speedup`, which may be the best of its block."""
        if metric != "alpha" or self.measured is None:
            return ties.of(self.measured, metric)
        return Entry(self.pairing.ours, self.pairing.sample, self.measured.lossless)

    @property
    def alpha(self) -> str:
        """As the paper prints it."""
        return self.failure or tables.number(self.pairing.ours.value if self.pairing.ours else None)


def blocks_of(results: Results, methods: Sequence[Method], temperatures: Sequence[float]) -> list[Block]:
    """The blocks of these decodings, without top-p, of the runs of these methods."""
    runs = results.runs
    decoded = runs["temperature"].isin(list(temperatures)) & (runs["top_p"] == 1)
    known = [any(one.admits(run) for one in methods) for run in every_run(results)]
    keep = decoded & pd.Series(known, index=runs.index, dtype=bool)
    return [replace(block, results=results) for block in blocks(replace(results, runs=runs[keep]))]
