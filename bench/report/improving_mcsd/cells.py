"""One method in one block: its run, and its acceptance rate beside the paper's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import pandas as pd

from bench.report import tables
from bench.report.blocks import Block, blocks
from bench.report.improving_mcsd.methods import Method
from bench.report.improving_mcsd.rates import alpha
from bench.report.verdict import Pairing
from bench.store import Results


@dataclass(frozen=True)
class Cell:
    """A method in one setting and column; without a block, or a run of it in the block, nothing was measured."""

    method: Method
    block: Block | None
    paper: pd.DataFrame

    @cached_property
    def run(self) -> pd.Series | None:
        """The run, however it ended."""
        return self.method.chosen(self.block) if self.block is not None else None

    @property
    def run_id(self) -> str:
        """The run's, "" without one."""
        return "" if self.run is None else str(self.run["run_id"])

    @property
    def failure(self) -> str:
        """How the run ended if it did not end well."""
        return "" if self.run is None or self.run["status"] == "ok" else str(self.run["status"])

    @cached_property
    def pairing(self) -> Pairing:
        """Our alpha and the paper's."""
        ok = self.block is not None and self.run is not None and not self.failure
        ours = alpha(self.block, self.run) if ok else None  # type: ignore[arg-type]
        return Pairing(ours, self.method.published(self.paper))

    @property
    def alpha(self) -> str:
        """As the paper prints it."""
        return self.failure or tables.number(self.pairing.ours.value if self.pairing.ours else None)


def blocks_of(results: Results, methods: Sequence[Method], temperatures: Sequence[float]) -> list[Block]:
    """The blocks of these decodings, without top-p, of the runs of these methods."""
    runs = results.runs
    decoded = runs["temperature"].isin(list(temperatures)) & (runs["top_p"] == 1)
    known = [any(one.admits(run) for one in methods) for _, run in runs.iterrows()]
    keep = decoded & pd.Series(known, index=runs.index, dtype=bool)
    return [replace(block, results=results) for block in blocks(replace(results, runs=runs[keep]))]
