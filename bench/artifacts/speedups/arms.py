"""What stands in a column of a table: which of our runs, and which of the paper's rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from bench.artifacts.blocks import Block, drafter_params
from bench.artifacts.measured import Measured, measure, tree_size
from bench.artifacts.verdict import Pairing
from bench.results.rows import AUTOREGRESSIVE, METHOD
from bench.statistics import intervals
from bench.statistics.intervals import Interval

METRICS = {"speedup": "speedup", "mal": "tokens_per_step"}
"""Our metrics by the name that the published rows give them."""
TREE = ("tree_size", "tree_depth")
"""What they call N and levels of a tree."""


@dataclass(frozen=True, slots=True)
class Arm:
    """One method of a table. Of the drafters (or methods, or rules) in `ours` the first that was run counts."""

    header: str
    ours: tuple[str, ...]
    paper: str  # method of the published rows
    params: Mapping[str, str] = field(default_factory=dict)  # what their params must hold
    nodes: int | None = None  # the tree size N that a run must have
    budget: int | None = None  # drafted nodes of the paper's runs, whose numbers stand beside no other budget
    given: Mapping[str, Any] = field(default_factory=dict)  # what the arguments of our drafter must be
    free: frozenset[str] | None = None  # arguments beside them that a run may have; None: any
    rules: tuple[str, ...] = ()  # of which a run's rule must be one; of none any may
    chosen_tree: bool = False  # whether an optimiser chose its tree, of the paper's runs on the paper's machine
    printed_tree: bool = False  # whether it is there for MAL alone, with the tree that the paper prints

    def pick(self, block: Block) -> Cell:
        """What the run of this arm came to; empty if there is none."""
        run = self.chosen(block)
        return Cell() if run is None else cell(block, run)

    def chosen(self, block: Block) -> pd.Series | None:
        """The run of this arm, of several the last that ended well, those with the paper's budget before others."""
        for name in self.ours:
            runs = [run for _, run in block.runs.iterrows() if name in _names(run)]
            runs = [run for run in runs if run["method"] != AUTOREGRESSIVE]
            runs = [run for run in runs if self.nodes in (None, nodes_of(block, run)) and self._admits(run)]
            if runs:
                return sorted(runs, key=lambda run: (run["status"] == "ok", self.budget == budget_of(block, run)))[-1]
        return None

    def named(self, run: pd.Series) -> bool:
        """Whether a run is of one of its drafters, methods or rules."""
        return not set(self.ours).isdisjoint(_names(run))

    def _admits(self, run: pd.Series) -> bool:
        """Whether a run has the arguments and the rule that are asked for."""
        params = drafter_params(run)
        ruled = not self.rules or run["verifier"] in self.rules
        known = self.free is None or params.keys() <= self.given.keys() | self.free
        return ruled and known and self.given.items() <= params.items()

    def published(self, paper: pd.DataFrame) -> dict[str, float]:
        """The paper's numbers of this arm by metric, of the rows of one setting."""
        rows = paper[paper["method"] == self.paper]
        keep = [self.params.items() <= params_of(text).items() for text in rows["params"]]
        rows = rows[pd.Series(keep, index=rows.index, dtype=bool)]
        found = {str(metric): float(value) for metric, value in zip(rows["metric"], rows["value"], strict=True)}
        of_tree = {*TREE, METRICS["mal"]}  # times are of a tree that was chosen for the machine
        return {metric: value for metric, value in found.items() if not self.printed_tree or metric in of_tree}


@dataclass(frozen=True, slots=True)
class Cell:
    """What one arm came to in one block; everything is None where it was not run or did not end well."""

    measured: Measured | None = None
    nodes: int | None = None  # N, root counted
    levels: int | None = None
    size: float | None = None  # drafted nodes a step, on average
    budget: int | None = None  # and at most
    predicted_speedup: float | None = None
    predicted_mal: float | None = None
    seconds: Interval | None = None  # per decoded token

    def has_tree(self, published: Mapping[str, float]) -> bool:
        """Whether its tree has the N and the levels that the paper prints."""
        return self.nodes is not None and (self.nodes, self.levels) == tuple(published.get(name) for name in TREE)

    @property
    def status(self) -> str | None:
        """How the run ended; None if there is none."""
        return self.measured.status if self.measured else None

    @property
    def run_id(self) -> str:
        """The run behind it, "" for none."""
        return self.measured.run_id if self.measured else ""

    def pairing(self, metric: str, published: Mapping[str, float]) -> Pairing:
        """Ours and the paper's value of `speedup` or `mal`."""
        sample = self.measured.samples.get(metric) if self.measured else None
        return Pairing(getattr(self.measured, metric, None), published.get(METRICS[metric]), sample)


def cell(block: Block, run: pd.Series) -> Cell:
    """A run's numbers. N and levels are those of the largest tree drawn; static trees never change."""
    measured, steps = measure(block, run), block.steps(str(run["run_id"]))
    return Cell(
        measured=measured,
        nodes=nodes_of(block, run),
        levels=None if steps.empty else int(steps["depth"].max()) + 1,
        size=None if steps.empty else float(steps["num_drafted"].mean()),
        budget=budget_of(block, run),
        predicted_speedup=_number(run.get("predicted_speedup")),
        predicted_mal=_number(run.get("predicted_mal")),
        seconds=seconds_per_token(block.prompts(measured.run_id)) if measured.tokens_per_s else None,
    )


def nodes_of(block: Block, run: pd.Series) -> int | None:
    """N of the largest tree drawn, or of the one that was asked for where none was; None if neither is known."""
    steps = block.steps(str(run["run_id"]))
    size = tree_size(run, steps) if steps.empty else int(steps["num_drafted"].max())
    return size + 1 if size else None


def budget_of(block: Block, run: pd.Series) -> int | None:
    """How many nodes a run may draft in a step: its n, or the nodes of its shape; None if it is not known."""
    shape = drafter_params(run).get("shape")
    if isinstance(shape, dict) and {"num_sequences", "depth"} <= shape.keys():
        return int(shape["num_sequences"]) * int(shape["depth"])
    return tree_size(run, block.steps(str(run["run_id"])))


def seconds_per_token(prompts: pd.DataFrame, arm: str = METHOD) -> Interval:
    """Seconds of decoding per decoded token of an arm, prefill excluded, with its interval."""
    rows = prompts[(prompts["arm"] == arm) & (prompts["status"] == "ok")]
    return intervals.ratio_of_sums(rows, "decode_s", "num_decoded_tokens")


def _names(run: pd.Series) -> tuple[str, str, str]:
    return run["drafter"], run["method"], run["verifier"]


def params_of(text: str) -> dict[str, str]:
    """The `params` of a published row: `key=value;key=value`."""
    return dict(item.split("=", 1) for item in text.split(";") if "=" in item)


def _number(value: float | None) -> float | None:
    return None if value is None or pd.isna(value) else float(value)
