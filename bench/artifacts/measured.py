"""What the reports say about one run, computed from its rows."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import pandas as pd

from bench.artifacts import definitions, tables
from bench.artifacts.blocks import Block, drafter_params
from bench.statistics import intervals, metrics, samples
from bench.statistics.intervals import Interval
from bench.statistics.samples import Sample

_LABELS = {
    "autoregressive": "None (autoregressive)",
    "binary": "Binary",
    "chain": "Chain",
    "dyspec": "DySpec",
    "dyspec_threshold": "DySpec, threshold",
    "eagle_tree": "EAGLE tree",
    "eagle2": "EAGLE-2",
    "gsd": "GSD",
    "opt_tree": "OPT-Tree",
    "k_sequences": "K sequences",
    "prompt_lookup": "Prompt lookup",
    "prompt_lookup_tree": "Prompt lookup, tree",
    "sequoia": "Sequoia",
    "sequoia_hardware": "Sequoia, hardware-aware",
    "sequoia_printed": "Sequoia, printed tree",
    "spec_infer": "SpecInfer",
    "ssd": "SSD",
    "ssd_iid": "SSD, drawn",
    "ssd_noexit": "SSD, no exit",
    "tsd": "TSD",
    "tsd_sib": "TSD, sibling pruning",
}


SPEEDS = ("tokens/s", "tokens/s autoregressive")
"""Headers that stand together: a speedup is of two speeds of one run, and other runs' are of other minutes."""
SPEED_LEGEND = dict(zip(SPEEDS, (definitions.TOKENS_PER_S, definitions.OWN_AUTOREGRESSIVE), strict=True))


@dataclass(frozen=True, slots=True)
class Measured:
    """One run: who, how it ended, and its intervals (None where nothing was measured)."""

    run_id: str
    drafter: str
    method: str
    status: str
    size: int | None  # tree size n; None for a bare root
    lossless: bool
    identical: float | None
    mal: Interval | None
    tokens_per_s: Interval | None
    speedup: Interval | None
    autoregressive_tokens_per_s: Interval | None = None  # of its own autoregressive arm
    mal_as_published: Interval | None = None  # these three where asked for, as OPT-Tree's script counts
    tokens_per_s_with_prefill: Interval | None = None
    speedup_with_prefill: Interval | None = None
    samples: Mapping[str, Sample] = field(default_factory=dict, repr=False, compare=False)  # of these, by name

    @property
    def rank(self) -> float:
        """The paired speedup, by which papers choose among sizes, with prefill if so asked for; none comes last."""
        found = self.speedup_with_prefill or self.speedup
        return found.value if found else -math.inf


def method_label(method: str) -> str:
    """The method as the papers print it; a name they do not know stands as it is."""
    return _LABELS.get(method, method)


def lossless_words(run: Measured) -> str:
    """`yes, 98.0% identical`: whether its rule is lossless, and the share of outputs equal to the target's own."""
    word = "yes" if run.lossless else "no"
    return word if run.identical is None else f"{word}, {tables.percent(run.identical)} identical"


def measure(block: Block, run: pd.Series, *, as_published: bool = False) -> Measured:
    """The intervals of a run, from its steps and prompts; of a run that did not end well nothing is taken.

    `as_published` adds those that are counted as OPT-Tree's script does.
    """
    run_id, ok = str(run["run_id"]), run["status"] == "ok"
    steps = block.steps(run_id)
    found = _samples(steps, block.prompts(run_id), as_published=as_published) if ok else {}
    return Measured(
        run_id=run_id,
        drafter=str(run["drafter"]),
        method=str(run["method"]),
        status=str(run["status"]),
        size=tree_size(run, steps),
        lossless=bool(run["lossless"]),
        identical=None if pd.isna(run["identical"]) or not ok else float(run["identical"]),
        samples=found,
        **{name: _interval(found.get(name)) for name in ("mal", "tokens_per_s", "speedup", *found)},
    )


def speeds(run: Measured | None) -> dict[str, str]:
    """The cells of a run's tokens/s, and of those of its own autoregressive arm."""
    own, plain = (run.tokens_per_s, run.autoregressive_tokens_per_s) if run else (None, None)
    return dict(zip(SPEEDS, (tables.interval(own, 1), tables.number(plain.value if plain else None, 1)), strict=True))


def tree_size(run: pd.Series, steps: pd.DataFrame) -> int | None:
    """The budget n of the drafter or of its shape, else the largest tree it drew; None for a bare root."""
    params = drafter_params(run)
    shape = params.get("shape")
    size = params.get("n", shape.get("n", shape.get("size")) if isinstance(shape, dict) else None)
    if not isinstance(size, int):
        size = None if steps.empty else steps["num_drafted"].max()
    return int(size) if size else None


def per_row(rows: pd.DataFrame, column: str, denominator: str | None = None) -> Sample | None:
    """The sums over conversations of which `intervals.ratio_of_sums` makes an interval; None where there is no row."""
    if rows.empty:
        return None
    grouped = rows.groupby("prompt_id")
    below = grouped.size() if denominator is None else grouped[denominator].sum()
    return Sample(pd.DataFrame({"above": grouped[column].sum(), "below": below}), ("above",), ("below",))


def draft_forwards(steps: pd.DataFrame) -> float:
    """Draft forwards per decoding step."""
    return float(steps["draft_forwards"].mean()) if len(steps) else math.nan


def expected(steps: pd.DataFrame) -> Interval:
    """Mean E(A) with its interval; nan where the drafter has no probabilities."""
    if math.isnan(metrics.expected_acceptance(steps)):
        return samples.NOTHING
    return intervals.ratio_of_sums(steps, "expected_acceptance")


def cost_ratio(block: Block, run_ids: list[str]) -> float:
    """The cost ratio mu, pooled over the runs of a sweep."""
    runs = block.results.prompts["run_id"].isin(run_ids), block.results.steps["run_id"].isin(run_ids)
    return metrics.cost_ratio(block.results.prompts[runs[0]], block.results.steps[runs[1]])


def _samples(steps: pd.DataFrame, prompts: pd.DataFrame, *, as_published: bool) -> dict[str, Sample]:
    """By the name of the metric."""
    speed = samples.tokens_per_s(prompts)
    found = {"mal": samples.mal(steps), "tokens_per_s": speed, "speedup": samples.speedup(prompts)}
    found["autoregressive_tokens_per_s"] = speed.controls[0]
    if as_published:
        found["mal_as_published"] = samples.mal_as_published(steps)
        found["tokens_per_s_with_prefill"] = samples.tokens_per_s(prompts, prefill=True)
        found["speedup_with_prefill"] = samples.speedup(prompts, prefill=True)
    return found


def _interval(sample: Sample | None) -> Interval | None:
    """None where nothing was measured."""
    found = samples.interval(sample) if sample else samples.NOTHING
    return None if math.isnan(found.value) else found
