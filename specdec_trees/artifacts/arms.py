"""The arms of a table: which runs of a block stand for a paper's method, and which of its rows beside them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from specdec_trees.artifacts import frame
from specdec_trees.artifacts.metrics import MAL, Metric
from specdec_trees.artifacts.notes import model_words
from specdec_trees.artifacts.tables import named_rows
from specdec_trees.published import params_of
from specdec_trees.results.rows import AUTOREGRESSIVE

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

    def chosen(self, block: Iterable[Any]) -> Any:
        """The run of this arm, of several the last that ended well, those with the paper's budget before others.

        Rows of `frame.load` that are of one block are asked; None where none of them is of this arm.
        """
        drafted = [run for run in block if run.method != AUTOREGRESSIVE]
        for name in self.ours:
            runs = [run for run in drafted if name in _names(run)]
            runs = [run for run in runs if self.nodes in (None, run.nodes) and self._admits(run)]
            if runs:
                return sorted(runs, key=lambda run: (run.ok, self.budget == run.budget))[-1]
        return None

    def named(self, run: Any) -> bool:
        """Whether a run is of one of its drafters, methods or rules."""
        return not set(self.ours).isdisjoint(_names(run))

    def _admits(self, run: Any) -> bool:
        """Whether a run has the arguments and the rule that are asked for."""
        params = run.params
        ruled = not self.rules or run.verifier in self.rules
        known = self.free is None or params.keys() <= self.given.keys() | self.free
        return ruled and known and self.given.items() <= params.items()

    def published(self, paper: pd.DataFrame) -> dict[str, float]:
        """The paper's numbers of this arm by metric, of the rows of one setting."""
        rows = paper[paper["method"] == self.paper]
        keep = [self.params.items() <= params_of(text).items() for text in rows["params"]]
        rows = rows[pd.Series(keep, index=rows.index, dtype=bool)]
        numbers = {str(metric): float(value) for metric, value in zip(rows["metric"], rows["value"], strict=True)}
        of_tree = {*TREE, LENGTH}  # times are of a tree that was chosen for the machine
        return {metric: value for metric, value in numbers.items() if not self.printed_tree or metric in of_tree}


def has_tree(run: Any, published: Mapping[str, float]) -> bool:
    """Whether a run's tree has the N and the levels that the paper prints."""
    own = (run.nodes, run.levels) if run is not None else (None, None)
    return own[0] is not None and own == tuple(published.get(name) for name in TREE)


def judged(
    runs: pd.DataFrame,
    paper: pd.DataFrame,
    arms: Sequence[Arm],
    on: Sequence[str],
    metrics: Sequence[Metric],
    names: Mapping[str, str],
) -> pd.DataFrame:
    """The long frame of arms: a row per block, arm and metric beside the paper's numbers, marked and judged.

    `on` has the columns that the paper states of a setting, `names` the paper's metric by the key of ours.
    """
    lines = rows(runs, paper, arms, on)
    words = [model_words(line, ("dataset", "temperature", "top_p")) for line in named_rows(lines)]
    lines = frame.put(lines, target_words=[target for target, _ in words], draft_words=[draft for _, draft in words])
    return frame.judge(rank(beside(frame.measure(lines, metrics), names)), who="label")


def rows(
    runs: pd.DataFrame, paper: pd.DataFrame, arms: Sequence[Arm], on: Sequence[str], only: pd.Series | None = None
) -> pd.DataFrame:
    """A row of every block for every arm: its run, or none; `arm`, its header as `label`, the paper's numbers `theirs`.

    The paper's rows are those of a block's models with the same in the columns `on`. `only` says which runs an arm may
    have. An arm for the printed tree has the first arm's run where that has this tree: `again`. `other_tree` says that
    a chosen tree is not the printed one.
    """
    theirs = frame.of_models(paper, runs)
    blocks = [rows for _, rows in runs.groupby("block", sort=False)]
    chosen = [list(named_rows(rows if only is None else rows[only[rows.index]])) for rows in blocks]
    parts = [_of_block(rows, theirs, arms, on, own) for rows, own in zip(blocks, chosen, strict=True)]
    return pd.concat(parts, ignore_index=True)


def _of_block(
    runs: pd.DataFrame, paper: pd.DataFrame, arms: Sequence[Arm], on: Sequence[str], candidates: Sequence[Any]
) -> pd.DataFrame:
    first = runs.iloc[0]
    facts = paper[(paper[["target", "draft", *on]] == first[["target", "draft", *on]]).all(axis=1)]
    numbers = [arm.published(facts) for arm in arms]
    chosen = [arm.chosen(candidates) for arm in arms]
    again = [arm.printed_tree and has_tree(chosen[0], own) for arm, own in zip(arms, numbers, strict=True)]
    chosen = [chosen[0] if same else run for same, run in zip(again, chosen, strict=True)]
    other = [
        (arm.chosen_tree or arm.printed_tree) and not has_tree(run, own)
        for arm, run, own in zip(arms, chosen, numbers, strict=True)
    ]
    made = pd.DataFrame([frame.unrun(first) if run is None else runs.loc[run.Index] for run in chosen], dtype=object)
    made = frame.put(made.reset_index(drop=True), arm=arms, label=[arm.header for arm in arms], theirs=numbers)
    made = frame.put(
        made, again=again, other_tree=other, hardware=["".join(facts["hardware"].unique()[:1])] * len(made)
    )
    return made[[arm.extra is False or run is not None for arm, run in zip(arms, chosen, strict=True)]]


def beside(long: pd.DataFrame, names: Mapping[str, str]) -> pd.DataFrame:
    """The paper's numbers as `published`, none of another budget; `names` has its metric by the key of ours.

    `why` says why a row has no verdict, `alone` that its tree counts in no order, `fact` which of the paper's rows it
    is set against.
    """
    lines = list(named_rows(long))
    keys = [names.get(line.metric.key, "") for line in lines]
    uneven = [other_budget(line) for line in lines]
    grown = [line.metric is MAL and line.other_tree for line in lines]
    numbers = [None if off else line.theirs.get(key) for line, key, off in zip(lines, keys, uneven, strict=True)]
    return frame.put(
        long,
        published=[
            None if number is None else number * line.metric.unit for number, line in zip(numbers, lines, strict=True)
        ],
        fact=[(line.arm.paper, str(line.arm.params)) for line in lines],
        why=[
            f"other budget ({line.budget})" if off else "other tree" if away and number is not None else ""
            for line, off, away, number in zip(lines, uneven, grown, numbers, strict=True)
        ],
        alone=grown,
    )


def other_budget(line: Any) -> bool:
    """Whether a run drafts more or fewer nodes than those of the paper's numbers."""
    return bool(line.run_id and line.arm.budget and line.theirs and line.budget not in (None, line.arm.budget))


def rank(long: pd.DataFrame) -> pd.DataFrame:
    """The `mark` of the best: MAL grows with the tree, and is ranked among runs of the first arm's N; no run twice."""
    nodes = long.drop_duplicates("block").set_index("block")["nodes"].to_dict()
    lines = named_rows(long)
    ranked = [
        not line.again and (line.metric is not MAL or line.nodes == nodes[line.block] is not None) for line in lines
    ]
    return frame.rank(long, only=pd.Series(ranked, long.index))


def _names(run: Any) -> tuple[str, str, str]:
    return run.drafter, run.method, run.verifier
