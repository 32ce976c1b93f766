"""A run with all that reports ask of it, each number computed once."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import pandas as pd

from bench.artifacts.definitions import drafter_label
from bench.artifacts.metrics import expected_acceptance
from bench.results.rows import AUTOREGRESSIVE
from bench.statistics import samples
from bench.statistics.intervals import Interval
from bench.statistics.samples import Sample

if TYPE_CHECKING:
    from bench.artifacts.blocks import Block

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Run:
    """One run of a block, however it ended; a metric is None where nothing was measured."""

    block: Block
    row: pd.Series

    def __getitem__(self, column: str) -> Any:
        """A column of its row in `runs`."""
        return self.row[column]

    def __getattr__(self, column: str) -> Any:
        """The same, as rows of `frame.load` have it."""
        if column not in self.row.index:
            raise AttributeError(column)
        return self.row[column]

    @property
    def run_id(self) -> str:
        """Its id."""
        return str(self.row["run_id"])

    @property
    def status(self) -> str:
        """How it ended."""
        return str(self.row["status"])

    @property
    def ok(self) -> bool:
        """Whether it ended well."""
        return self.status == "ok"

    @property
    def drafter(self) -> str:
        """The name of its drafter's config."""
        return str(self.row["drafter"])

    @property
    def method(self) -> str:
        """The method that the drafter is one of."""
        return str(self.row["method"])

    @property
    def verifier(self) -> str:
        """The name of the rule that judged it."""
        return str(self.row["verifier"])

    @cached_property
    def name(self) -> str:
        """Its drafter as tables and figures print it, with the config's name where another of its block is alike."""
        own = self._label
        alike = {run.drafter for run in self.block.every if run._label == own}
        return own if alike <= {self.drafter} else f"{own} ({self.drafter})"

    @property
    def lossless(self) -> bool:
        """Whether its rule keeps the target's distribution."""
        return bool(self.row["lossless"])

    @property
    def identical(self) -> float | None:
        """Share of outputs equal to the autoregressive output; None where it was not asked or did not end well."""
        return None if pd.isna(self.row["identical"]) or not self.ok else float(self.row["identical"])

    @cached_property
    def params(self) -> dict[str, Any]:
        """The arguments of its drafter, such as n and delta."""
        params = json.loads(self["drafter_params"])
        return params if isinstance(params, dict) else {}

    def rows(self, table: str) -> pd.DataFrame:
        """Its rows of one of the tables of its results; empty if they were not recorded."""
        every: pd.DataFrame = getattr(self.block.results, table)
        return every[every["run_id"] == self.run_id]

    @cached_property
    def steps(self) -> pd.DataFrame:
        """Its decoding steps."""
        return self.rows("steps")

    @cached_property
    def prompts(self) -> pd.DataFrame:
        """Its turns, both arms."""
        return self.rows("prompts")

    def once(self, make: Callable[[Run], T]) -> T:
        """What a function makes of it, computed once."""
        if make not in self._made:
            self._made[make] = make(self)
        return self._made[make]

    def sample(self, metric: Counted) -> Sample | None:
        """The sums over conversations behind a metric; None of a run that did not end well."""
        return self.once(_SAMPLES[metric] if isinstance(metric, str) else metric) if self.ok else None

    def interval(self, metric: Counted) -> Interval | None:
        """The same with its 95% interval; None where nothing was measured."""
        if metric not in self._intervals:
            sample = self.sample(metric)
            found = samples.interval(sample) if sample else samples.NOTHING
            self._intervals[metric] = None if math.isnan(found.value) else found
        return self._intervals[metric]

    @property
    def mal(self) -> Interval | None:
        """Mean acceptance length."""
        return self.interval("mal")

    @property
    def tokens_per_s(self) -> Interval | None:
        """Decoded tokens per second of decoding."""
        return self.interval("tokens_per_s")

    @property
    def speedup(self) -> Interval | None:
        """Over its own autoregressive arm."""
        return self.interval("speedup")

    @property
    def rank(self) -> float:
        """The speedup, by which papers choose among runs; none comes last."""
        return self.speedup.value if self.speedup else -math.inf

    @cached_property
    def expected(self) -> Interval:
        """Mean E(A); nan where the drafter has no probabilities."""
        return expected_acceptance(self) or samples.NOTHING

    @cached_property
    def draft_forwards(self) -> float:
        """Draft forwards per decoding step."""
        return float(self.steps["draft_forwards"].mean()) if len(self.steps) else math.nan

    @property
    def size(self) -> int | None:
        """The tree size n of the drafter or of its shape, else the largest tree it drew; None for a bare root."""
        shape = self.params.get("shape")
        size = self.params.get("n", shape.get("n", shape.get("size")) if isinstance(shape, dict) else None)
        if not isinstance(size, int):
            size = self._largest
        return int(size) if size else None

    @property
    def budget(self) -> int | None:
        """How many nodes it may draft in a step: n, or the nodes of its shape; None if it is not known."""
        shape = self.params.get("shape")
        if isinstance(shape, dict) and {"num_sequences", "depth"} <= shape.keys():
            return int(shape["num_sequences"]) * int(shape["depth"])
        return self.size

    @property
    def nodes(self) -> int | None:
        """N, root counted, of the largest tree drawn, or of the one asked for where none was; None if not known."""
        size = self.size if self._largest is None else self._largest
        return size + 1 if size else None

    @cached_property
    def levels(self) -> int | None:
        """Levels of the deepest tree drawn, root counted."""
        return None if self.steps.empty else int(self.steps["depth"].max()) + 1

    @cached_property
    def mean_size(self) -> float | None:
        """Drafted nodes a step, on average."""
        return None if self.steps.empty else float(self.steps["num_drafted"].mean())

    @cached_property
    def _largest(self) -> int | None:
        return None if self.steps.empty else int(self.steps["num_drafted"].max())

    @cached_property
    def _label(self) -> str:
        return drafter_label(self.method, self.params)

    @cached_property
    def _made(self) -> dict[Callable[[Run], Any], Any]:
        return {}

    @cached_property
    def _intervals(self) -> dict[Counted, Interval | None]:
        return {}


Counted = str | Callable[[Run], Sample | None]
"""A metric: a name of `_SAMPLES`, or what sums it up over a run's conversations."""
_SAMPLES: Mapping[str, Callable[[Run], Sample]] = {
    "mal": lambda run: samples.mal(run.steps),
    "tokens_per_s": lambda run: samples.tokens_per_s(run.prompts),
    "speedup": lambda run: samples.speedup(run.prompts),
    "autoregressive_tokens_per_s": lambda run: samples.tokens_per_s(run.prompts, AUTOREGRESSIVE),
    # as OPT-Tree's script counts
    "mal_as_published": lambda run: samples.mal_as_published(run.steps),
    "tokens_per_s_with_prefill": lambda run: samples.tokens_per_s(run.prompts, prefill=True),
    "speedup_with_prefill": lambda run: samples.speedup(run.prompts, prefill=True),
}


def per_row(rows: pd.DataFrame, column: str, denominator: str | None = None, most: float = math.inf) -> Sample | None:
    """The sums over conversations of a ratio that is at most `most` by definition; None where there is no row."""
    if rows.empty:
        return None
    grouped = rows.groupby("prompt_id")
    below = grouped.size() if denominator is None else grouped[denominator].sum()
    return Sample(pd.DataFrame({"above": grouped[column].sum(), "below": below}), ("above",), ("below",), most=most)


def run_ids(runs: Iterable[Run]) -> tuple[str, ...]:
    """Their ids."""
    return tuple(run.run_id for run in runs)
