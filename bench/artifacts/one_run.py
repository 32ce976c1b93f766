"""One run of a block, however it ended."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import pandas as pd

from bench.artifacts.blocks import Block
from bench.artifacts.measured import Measured, measure


@dataclass(frozen=True)
class OneRun:
    """A run and the block it belongs to; it may have failed."""

    block: Block
    run: pd.Series

    @property
    def run_id(self) -> str:
        """The run's."""
        return str(self.run["run_id"])

    @property
    def ok(self) -> bool:
        """Whether it ended well."""
        return bool(self.run["status"] == "ok")

    @cached_property
    def measured(self) -> Measured:
        """What was measured, with intervals."""
        return measure(self.block, self.run)

    @cached_property
    def steps(self) -> pd.DataFrame:
        """Its decoding steps."""
        return self.block.steps(self.run_id)
