"""What stands in a column of a table: which of our runs, and which of the paper's rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from bench.artifacts.blocks import Block
from bench.artifacts.runs import Run
from bench.published import params_of
from bench.results.rows import AUTOREGRESSIVE

TREE = ("tree_size", "tree_depth")
"""What they call N and levels of a tree."""
LENGTH, SECONDS = "tokens_per_step", "latency_s_per_token"
"""What they call MAL, and seconds per token."""


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
    extra: bool = False  # whether it is shown only where it was run

    def chosen(self, block: Block) -> Run | None:
        """The run of this arm, of several the last that ended well, those with the paper's budget before others."""
        for name in self.ours:
            runs = [run for run in block.every if name in _names(run)]
            runs = [run for run in runs if run.method != AUTOREGRESSIVE]
            runs = [run for run in runs if self.nodes in (None, run.nodes) and self._admits(run)]
            if runs:
                return sorted(runs, key=lambda run: (run.ok, self.budget == run.budget))[-1]
        return None

    def named(self, run: Run) -> bool:
        """Whether a run is of one of its drafters, methods or rules."""
        return not set(self.ours).isdisjoint(_names(run))

    def _admits(self, run: Run) -> bool:
        """Whether a run has the arguments and the rule that are asked for."""
        params = run.params
        ruled = not self.rules or run["verifier"] in self.rules
        known = self.free is None or params.keys() <= self.given.keys() | self.free
        return ruled and known and self.given.items() <= params.items()

    def published(self, paper: pd.DataFrame) -> dict[str, float]:
        """The paper's numbers of this arm by metric, of the rows of one setting."""
        rows = paper[paper["method"] == self.paper]
        keep = [self.params.items() <= params_of(text).items() for text in rows["params"]]
        rows = rows[pd.Series(keep, index=rows.index, dtype=bool)]
        found = {str(metric): float(value) for metric, value in zip(rows["metric"], rows["value"], strict=True)}
        of_tree = {*TREE, LENGTH}  # times are of a tree that was chosen for the machine
        return {metric: value for metric, value in found.items() if not self.printed_tree or metric in of_tree}


def has_tree(run: Run | None, published: Mapping[str, float]) -> bool:
    """Whether a run's tree has the N and the levels that the paper prints."""
    own = (run.nodes, run.levels) if run else (None, None)
    return own[0] is not None and own == tuple(published.get(name) for name in TREE)


def _names(run: Run) -> tuple[str, str, str]:
    return run["drafter"], run.method, run["verifier"]
