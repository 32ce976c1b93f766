"""What is said of decision models: how many trees they ended early, on how many prompts they learnt, and which."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import pandas as pd

from specdec_trees.artifacts import tables
from specdec_trees.artifacts.outputs import read_results
from specdec_trees.papers.improving_mcsd import methods as mcsd
from specdec_trees.results import store
from specdec_trees.results.store import Results
from specdec_trees.statistics import metrics


def kind(model: Any) -> str | None:
    """What a drafter's decision model reads of the draft; None without a model."""
    return str(model["kind"] if isinstance(model, dict) else model) if model else None


def levels(run: Any) -> pd.Series:
    """The levels that were drafted, of every step."""
    return metrics.drafted_levels(run.steps, virtual=mcsd.virtual(run))


def early(run: Any) -> pd.Series:
    """Of every step whether its tree has fewer levels than it may."""
    return levels(run) < mcsd.draft_levels(run)


def trained(results: Results, pair: str, name: str) -> str:
    """`, trained on 140 prompts of alpaca`: a pair's models of a kind; empty where no row says it."""
    rows = results.decisions
    rows = rows[(rows["pair"] == pair) & (rows["kind"] == name)]
    trained = rows[["num_prompts", "dataset"]].drop_duplicates().sort_values("num_prompts")
    words = " / ".join(f"{row.num_prompts} prompts of {row.dataset}" for row in tables.named_rows(trained))
    return f", trained on {words}" if words else ""


def about(results: Results, runs: Iterable[Any]) -> Iterator[str]:
    """A sentence for every kind of a pair's decision models: how many trees of these runs they ended early."""
    groups: dict[tuple[str, str], list[Any]] = {}
    for run in runs:
        if run and run.ok and (name := kind(run.params.get("decision"))):
            groups.setdefault((str(run.pair), name), []).append(run)
    for (pair, name), own in groups.items():
        ended = pd.concat([early(run) for run in own])
        same = "" if ended.any() else ": they are the trees without a model"
        yield (
            f"{pair}, decision model {name}{trained(results, pair, name)}: trees ended early in {ended.sum():,} of "
            f"{len(ended):,} steps ({tables.percent(ended.mean())}){same}."
        )


@dataclass(frozen=True, slots=True)
class Beside(Results):
    """The results of one of Figures 7 and 8, and the tokens that the decision models of the other one scored."""

    others: pd.DataFrame


def read_beside(other: str) -> Callable[[Path, str | None], Beside]:
    """How a figure's results are read with another's models, of the same paper."""

    def read(folder: Path, pair: str | None) -> Beside:
        results = read_results(folder, pair)
        mine = {table.name: getattr(results, table.name) for table in fields(Results)}
        return Beside(**mine, others=store.at(folder.parent / other).read("decisions"))

    return read


def not_those_of(figure: str, results: Results) -> Iterator[str]:
    """A sentence for every pair of which the other figure has decision models, and none of them is one of these."""
    others = results.others if isinstance(results, Beside) else results.decisions[:0]
    for pair, mine in results.decisions.groupby("pair", sort=False):
        theirs = others[others["pair"] == pair]
        if len(theirs) and set(mine["run_id"]).isdisjoint(theirs["run_id"]):
            here, there = (_prompts(rows) for rows in (mine, theirs))
            yield (
                f"{pair}: these decision models, trained on {here} prompts, are not those of {figure}, trained on "
                f"{there}."
            )


def _prompts(rows: pd.DataFrame) -> str:
    return " / ".join(map(str, sorted(rows["num_prompts"].unique())))
