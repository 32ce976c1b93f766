"""What can be shown of a run, as data: header, meaning, digits, how it is made, and where it may be judged."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pandas as pd

from specdec_trees.artifacts import definitions, tables
from specdec_trees.results.rows import AUTOREGRESSIVE
from specdec_trees.statistics import intervals, metrics, samples
from specdec_trees.statistics.intervals import Interval
from specdec_trees.statistics.samples import Sample

Value = Sample | Interval | float | str | None


@dataclass(frozen=True, slots=True, eq=False)
class Metric:
    """`of` makes sums over conversations, an interval, a number or words of a row of `frame.load`."""

    key: str
    header: str
    means: str
    of: Callable[[Any], Value]
    digits: int = 2
    percent: bool = False
    signed: bool = False
    unit: float = 1.0
    """What the published number is multiplied by to be in ours."""
    ranked: bool = False
    """Whether the best of a block is marked."""
    judged: bool = True
    """Whether there is a verdict on what the paper prints."""
    timed: bool = False
    """Whether it is judged by order alone on another device than the paper's."""
    of_baseline: bool = False
    """Whether it is a ratio to autoregressive decoding, which is 1 then."""
    counterpart: str = ""
    """What stands above the paper's number and the verdict, if not our header."""

    @property
    def published(self) -> str:
        """The key of the paper's numbers."""
        return self.key + tables.PUBLISHED

    @property
    def verdict(self) -> str:
        """The key of the verdicts."""
        return self.key + tables.VERDICT

    @property
    def headers(self) -> dict[str, str]:
        """What stands above our numbers, the paper's and the verdicts."""
        theirs = self.counterpart or self.header
        return {self.key: self.header, self.published: f"{theirs} published", self.verdict: f"verdict {theirs}"}

    def text(self, value: Any) -> str:
        """A number or words as they stand in a cell, without an interval."""
        if value is None or isinstance(value, str):
            return value or tables.ABSENT
        if self.signed and not math.isnan(value):
            return f"{value:+.{self.digits}f}"
        return tables.percent(value) if self.percent else tables.number(value, self.digits)

    def printed(self, value: float | None) -> str:
        """The paper's number."""
        text = tables.percent(value) if self.percent else tables.printed(value, self.digits)
        return f"+{text}" if self.signed and (value or 0) > 0 else text

    def cell(self, value: Any, interval: Interval | None) -> str:
        """The same with the interval, where there is one."""
        if interval is None:
            return self.text(value)
        ends = (self.text(end) for end in (interval.low, interval.high))
        return tables.with_ends(interval, self.text(interval.value), *ends)


def per_row(rows: pd.DataFrame, above: str, below: str | None = None, most: float = math.inf) -> Sample | None:
    """Sums over conversations of a ratio per row, or of two columns, at most `most`; None where there is no row."""
    if rows.empty:
        return None
    by = rows.groupby("prompt_id")
    sums = pd.DataFrame({"above": by[above].sum(), "below": by[below].sum() if below else by.size()})
    return Sample(sums, ("above",), ("below",), most=most)


def expected_acceptance(run: Any) -> Interval | None:
    """Mean E(A) with its interval, from 1 to a whole path; None where the drafter has no probabilities."""
    if pd.isna(metrics.expected_acceptance(run.steps)):
        return None
    reach = intervals.ratio_of_sums(metrics.knowing(run.steps), "expected_acceptance", stretch=intervals.EVEN)
    return reach.within(1.0, float(run.steps["depth"].max()) + 1)


def lossless_words(run: Any) -> str:
    """`yes, 98.0% identical`: whether its rule is lossless, and the share of outputs equal to the target's own."""
    word = "yes" if run.lossless else "no"
    return word if pd.isna(run.identical) else f"{word}, {tables.percent(run.identical)} identical"


def _predicted(metric: str) -> Callable[[Any], float | None]:
    return lambda run: getattr(run, f"predicted_{metric}", None)


def _own_autoregressive(run: Any) -> float:
    return samples.interval(samples.tokens_per_s(run.prompts, AUTOREGRESSIVE)).value


def _per_step(column: str) -> Callable[[Any], float | None]:
    return lambda run: float(run.steps[column].mean()) if len(run.steps) else None


MAL = Metric("mal", "MAL", definitions.MAL, lambda run: samples.mal(run.steps), ranked=True)
EXPECTED_MAL = Metric(
    "expected_mal",
    "MAL over all draws",
    definitions.EXPECTED_MAL,
    lambda run: samples.expected_mal(run.prompts, run.steps),
    ranked=True,
)
SPEEDUP = Metric(
    "speedup",
    "speedup",
    definitions.SPEEDUP,
    lambda run: run.gain,
    ranked=True,
    timed=True,
    of_baseline=True,
)
TOKENS_PER_S = Metric(
    "tokens_per_s",
    "tokens/s",
    definitions.TOKENS_PER_S,
    lambda run: samples.tokens_per_s(run.prompts),
    1,
    ranked=True,
    timed=True,
)
AUTOREGRESSIVE_TOKENS_PER_S = Metric(
    "autoregressive_tokens_per_s", "tokens/s autoregressive", definitions.OWN_AUTOREGRESSIVE, _own_autoregressive, 1
)
SPEEDS = (TOKENS_PER_S, AUTOREGRESSIVE_TOKENS_PER_S)
"""They stand together: a speedup is of two speeds of one run, and other runs' are of other minutes."""
EXPECTED = Metric("expected_acceptance", "E(A)", definitions.EXPECTED, expected_acceptance)
FORWARDS = Metric("draft_forwards", "draft forwards", "per decoding step", _per_step("draft_forwards"), 1)
LOSSLESS = Metric("lossless", "lossless", definitions.LOSSLESS, lossless_words)
IS_LOSSLESS = Metric("is_lossless", "lossless", definitions.LOSSLESS, lambda run: "yes" if run.lossless else "no")
IDENTICAL = Metric("identical", "identical", definitions.IDENTICAL, lambda run: run.identical, percent=True)
MEAN_SIZE = Metric("mean_size", "nodes", f"{definitions.SIZE}, mean over steps", lambda run: run.mean_size, 1)
NODES = Metric("nodes", "N", definitions.NODES, lambda run: run.nodes, 0, judged=False)
LEVELS = Metric("levels", "levels", definitions.LEVELS, lambda run: run.levels, 0, judged=False)
BUDGET = Metric(
    "budget", "budget", "nodes that the method may draft in a step, root excluded", lambda run: run.budget, 0
)
SECONDS = Metric(
    "s_per_token",
    "s/token",
    definitions.SECONDS_PER_TOKEN,
    lambda run: samples.seconds_per_token(run.prompts),
    4,
    judged=False,
)
AUTOREGRESSIVE_SECONDS = Metric(
    "autoregressive_s_per_token",
    "s/token autoregressive",
    "the same of the autoregressive arm of the same run",
    lambda run: samples.seconds_per_token(run.prompts, AUTOREGRESSIVE),
    4,
    judged=False,
)
STEPS = Metric("steps", "Steps", "decoding steps", lambda run: len(run.steps), 0)
GAP = Metric("gap", "E(A) - MAL", "", lambda run: metrics.calibration(run.steps).gap)
CORRELATION = Metric(
    "correlation",
    "correlation",
    "Pearson's, of E(A) and A over steps",
    lambda run: metrics.calibration(run.steps).correlation,
)
PREDICTED_MAL = Metric("predicted_mal", "MAL predicted", definitions.PREDICTED_MAL, _predicted("mal"))
PREDICTED_SPEEDUP = Metric(
    "predicted_speedup", "speedup predicted", definitions.PREDICTED_SPEEDUP, _predicted("speedup")
)
