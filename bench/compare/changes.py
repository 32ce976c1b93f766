"""What changed from one run to another: the ratio of a metric over the turns that both decoded, and a word for it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import pandas as pd

from bench import samples
from bench.compare.sides import Run
from bench.records import AUTOREGRESSIVE, METHOD
from bench.samples import Sample
from bench.stats import Interval

FASTER, SLOWER, TIED, NO_INTERVAL = "faster", "slower", "tied", "no interval"
METRICS = {"mal": "MAL", "tokens_per_s": "tokens/s", "speedup": "speedup"}
"""Their headers."""
JUDGED = ("mal", "speedup")
"""Metrics in which a run can be worse: tokens/s changes with the machine."""
ROUNDING = 1e-9
"""Sums that are multiplied in another order differ in their last bits."""
_TURN = ["prompt_id", "turn", "arm"]


@dataclass(frozen=True, slots=True)
class Change:
    """A metric of both runs over what both decoded, and the second's over the first's."""

    first: float
    second: float
    ratio: Interval
    word: str


@dataclass(frozen=True, slots=True)
class _Rows:
    prompts: pd.DataFrame
    steps: pd.DataFrame


@dataclass(frozen=True)
class Couple:
    """Two runs; `first` is what the other is set against."""

    first: Run
    second: Run

    @property
    def ok(self) -> bool:
        """Whether both ended well."""
        return self.first.ok and self.second.ok

    @property
    def broken(self) -> bool:
        """Whether the first ended well and the second did not."""
        return self.first.ok and not self.second.ok

    @property
    def num_conversations(self) -> int:
        """Those of which both decoded a turn."""
        return int(self._turns["prompt_id"].nunique())

    @cached_property
    def changes(self) -> dict[str, Change]:
        """By metric; a difference of tokens/s that the control does not resolve is a tie."""
        floor = samples.resolution(self.control)
        return {
            "mal": self._change(lambda rows: samples.mal(rows.steps)),
            "tokens_per_s": self._change(lambda rows: samples.tokens_per_s(rows.prompts), floor),
            "speedup": self._change(lambda rows: samples.speedup(rows.prompts)),
        }

    @cached_property
    def control(self) -> Interval:
        """Tokens/s of autoregressive decoding, the second run's over the first's: what the machine did to both."""
        first, second = (samples.tokens_per_s(rows.prompts, AUTOREGRESSIVE) for rows in self._rows)
        return samples.paired_ratio(second, first)

    @cached_property
    def identical(self) -> float:
        """Share of the turns for which both methods gave the same tokens; nan if they share none."""
        first, second = (rows.prompts.set_index(_TURN)["output_sha256"] for rows in self._rows)
        turns = pd.MultiIndex.from_frame(self._turns)
        return float((first.loc[turns] == second.loc[turns]).mean()) if len(turns) else math.nan

    def worse(self, metric: str) -> bool:
        """Whether the metric fell, beyond its interval."""
        return self.ok and self.changes[metric].word == SLOWER

    def _change(self, of: Callable[[_Rows], Sample], floor: float = 0.0) -> Change:
        first, second = map(of, self._rows)
        ratio = samples.paired_ratio(second, first)
        return Change(samples.interval(first).value, samples.interval(second).value, ratio, word(ratio, floor))

    @cached_property
    def _shared(self) -> pd.DataFrame:
        """The turns, by arm, that ended well in both runs."""
        ok = [run.prompts.loc[run.prompts["status"] == "ok", _TURN] for run in (self.first, self.second)]
        return ok[0].merge(ok[1], on=_TURN, validate="one_to_one")

    @property
    def _turns(self) -> pd.DataFrame:
        return self._shared[self._shared["arm"] == METHOD]

    @cached_property
    def _rows(self) -> tuple[_Rows, _Rows]:
        """Of either run the rows of the turns that both have."""
        turns = self._turns[["prompt_id", "turn"]]
        first, second = (
            _Rows(run.prompts.merge(self._shared, on=_TURN), run.steps.merge(turns, on=["prompt_id", "turn"]))
            for run in (self.first, self.second)
        )
        return first, second


def word(ratio: Interval, floor: float = 0.0) -> str:
    """Which way a ratio points; `floor`: how far from 1 it may be without saying anything."""
    if math.isnan(ratio.low + ratio.high):
        return NO_INTERVAL
    if ratio.low - ROUNDING <= 1 <= ratio.high + ROUNDING or abs(ratio.value - 1) <= floor + ROUNDING:
        return TIED
    return FASTER if ratio.low > 1 else SLOWER
