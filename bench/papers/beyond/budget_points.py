"""The runs of a comparison at equal budget: their measured sizes, MAL and speedup, and which of them are ahead."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

import pandas as pd

from bench.artifacts import ties
from bench.artifacts.blocks import Block
from bench.artifacts.names import method_label
from bench.artifacts.runs import Run
from bench.results.rows import AUTOREGRESSIVE
from bench.statistics import samples
from bench.statistics.intervals import Interval
from bench.statistics.samples import Sample

METRICS = ("MAL", "speedup")
Standing = Mapping[tuple[str, str], str]
"""The marks of `ties` by run and metric."""
ORDER = (
    *(AUTOREGRESSIVE, "chain", "binary", "mcsd", "spec_infer", "sequoia"),
    *("opt_tree", "eagle2", "dyspec", "tsd", "gsd", "prompt_lookup_tree"),
)
"""Methods from fixed trees to grown ones; others follow."""
_LABELS = {"mcsd": "MCSD"}
_SIZES = ("n", "total", "verify_cap", "shape", "acceptance")
"""Parameters that say how large a drafter's trees are, or what shape they have at that size."""


@dataclass(frozen=True, eq=False)
class Point:
    """One run: a method at a budget."""

    block: Block
    run: Run
    label: str

    @property
    def run_id(self) -> str:
        """The run."""
        return str(self.run["run_id"])

    @property
    def method(self) -> str:
        """The method, as runs name it."""
        return str(self.run.method)

    @property
    def ok(self) -> bool:
        """Whether it ended well; else nothing is taken of it."""
        return str(self.run["status"]) == "ok"

    @cached_property
    def budget(self) -> int | None:
        """The most nodes that its trees may have; None for a bare root."""
        return budget(self.run, self.block.steps(self.run_id))

    @cached_property
    def nodes(self) -> float:
        """Drafted nodes a step, mean: what the target did read."""
        return float(self.block.steps(self.run_id)["num_drafted"].mean()) if self.ok else math.nan

    @cached_property
    def samples(self) -> Mapping[str, Sample]:
        """MAL and speedup by conversation; of a run without a baseline MAL alone, of one that failed nothing."""
        if not self.ok:
            return {}
        found = {
            "MAL": samples.mal(self.block.steps(self.run_id)),
            "speedup": samples.speedup(self.block.prompts(self.run_id)),
        }
        return {metric: sample for metric, sample in found.items() if len(sample.sums)}

    @cached_property
    def intervals(self) -> Mapping[str, Interval]:
        """MAL and speedup with their intervals."""
        return {metric: samples.interval(sample) for metric, sample in self.samples.items()}


def budget(run: Run, steps: pd.DataFrame) -> int | None:
    """The size a run was given: n, EAGLE-2's total less its root, a graph's cap; else the largest tree it drew."""
    params = run.params
    if isinstance(params.get("total"), int):
        return int(params["total"]) - 1
    if isinstance(params.get("verify_cap"), int) and params.get("k") != 1:
        return int(params["verify_cap"])
    shape = params.get("shape")
    if run.method == "chain" and isinstance(shape, dict) and isinstance(shape.get("depth"), int):
        return int(shape["depth"])
    return run.size


def points(block: Block) -> list[Point]:
    """The lossless runs of a setting, the autoregressive first, then by method, variant and budget."""
    runs = [run for run in block.every if run["lossless"]]
    rests: dict[str, list[str]] = {}
    for run in runs:
        mine = rests.setdefault(run.method, [])
        mine += [_rest(run)] * (_rest(run) not in mine)
    found = [Point(block, run, _label(run.method, _rest(run), rests[run.method])) for run in runs]
    return sorted(found, key=lambda point: (_place(point.method), point.method, point.label, point.budget or 0))


def standing(found: Iterable[Point]) -> Standing:
    """By run and metric: what is the best of its setting and budget, and what the paired bootstrap cannot tell from it.

    Runs without an interval (one conversation) are not set against others, nor is one alone.
    """
    groups: dict[tuple[int, int], list[Point]] = {}
    for point in found:
        if point.budget:
            groups.setdefault((id(point.block), point.budget), []).append(point)
    marks: dict[tuple[str, str], str] = {}
    for group in groups.values():
        for metric in METRICS:
            entries = [ties.Entry(point.intervals.get(metric), point.samples.get(metric)) for point in group]
            ranked = zip(group, ties.marks(entries), strict=True)
            marks |= {(point.run_id, metric): mark for point, mark in ranked if mark}
    return marks


def place(block: Block, pairs: bool, *, temperature: bool = True) -> str:
    """The words for a setting among others: pair if there are several, dataset, temperature, and what else differs."""
    marks = [mark for mark in block.mark.split(", ") if mark and not mark.startswith(("dataset ", "temperature "))]
    words = [block.pair] * pairs + [str(block.first["dataset"])]
    return ", ".join([*words, *[f"temperature {block.first['temperature']:g}"] * temperature, *marks])


def _rest(run: Run) -> str:
    """A method's parameters but for its size."""
    params = {key: value for key, value in run.params.items() if key not in _SIZES}
    return json.dumps(params, sort_keys=True)


def _label(method: str, rest: str, rests: list[str]) -> str:
    """The method, and in what it is not like its other runs of the setting."""
    mine, others = json.loads(rest), [json.loads(other) for other in rests]
    differ = [key for key in mine if any(other.get(key) != mine[key] for other in others)]
    words = [f"{key}={mine[key]}" for key in differ]
    return ", ".join([_LABELS.get(method) or method_label(method), *words])


def _place(method: str) -> int:
    return ORDER.index(method) if method in ORDER else len(ORDER)
