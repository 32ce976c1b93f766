"""Runs that no paper has: all methods by speed, MAL and speedup by tree size, and both by category and turn."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pandas as pd

from specdec_trees import published
from specdec_trees.artifacts import frame, notes
from specdec_trees.artifacts.metrics import MAL, SPEEDUP
from specdec_trees.artifacts.outputs import Output
from specdec_trees.artifacts.table import table
from specdec_trees.papers.beyond.budget import CONVERSATIONS, by_size
from specdec_trees.papers.beyond.by_speedup import by_speedup, told_apart
from specdec_trees.papers.opt_tree import tables as opt_tree
from specdec_trees.results.rows import AUTOREGRESSIVE
from specdec_trees.results.store import Results
from specdec_trees.statistics import samples

PARTS = (MAL, SPEEDUP, CONVERSATIONS)
HEADERS = {"part": "Prompts"}
MEANS = {"part": "a category of the dataset, or one turn of all its conversations"}
MANY = 20
"""More categories than these are no categories, but topics."""


def on_dataset(name: str, results: Results) -> list[Output]:
    """OPT-Tree's table where its paper has numbers of one of the pairs, else what `own` makes."""
    printed = frame.of_models(published.load(opt_tree.PAPER), frame.load(results))
    return opt_tree.dataset_table(name, results) if len(printed) else own(name, "Trees", results)


def own(name: str, title: str, results: Results) -> list[Output]:
    """The table of all methods, then a figure where one was run at several sizes, then a table of parts of prompts."""
    methods, runs = by_speedup(name, title, results), frame.load(results)
    first = replace(methods, notes=(*_models(runs), *methods.notes))
    finished = frame.done(runs)
    return [first, *by_size(f"{name}_sizes", finished), *_by_part(f"{name}_parts", finished)]


def _models(runs: pd.DataFrame) -> Iterator[str]:
    """Of each pair what its models are called."""
    for run in frame.named_rows(runs.drop_duplicates("pair")):
        draft = f", draft {run.draft_id}" if run.draft_id else ""
        yield f"{run.pair}: target {run.target_id}{draft}."


def _by_part(name: str, runs: pd.DataFrame) -> list[Output]:
    """MAL and speedup of every method over each category and each turn; nothing where prompts have no such parts."""
    drafting = runs[runs["method"] != AUTOREGRESSIVE]
    drafting = frame.put(drafting, who=told_apart(drafting))
    parts = [part for run in frame.named_rows(drafting) for part in _parts(run)]
    if not parts:
        return []
    several = drafting["block"].nunique() > 1
    long = frame.measure(pd.DataFrame(parts), PARTS)
    long = frame.rank(long, ["block", "part"], only=~long["metric"].isin([MAL]))
    rows = (*["setting"] * several, "part", "who")
    title = notes.titled("By category and turn", drafting)
    long = long.sort_values(["block", "order"], kind="stable")
    return [table(name, title, long, rows, PARTS, headers=HEADERS, means=MEANS)]


def _parts(run: Any) -> Iterator[dict[str, Any]]:
    """The run as it is over the turns of a part alone, for each part that is not all of it."""
    prompts, steps = run.prompts, run.steps
    of = prompts.drop_duplicates(["prompt_id", "turn"]).set_index(["prompt_id", "turn"])["category"]
    place = pd.MultiIndex.from_frame(steps[["prompt_id", "turn"]])
    turns = sorted(prompts["turn"].unique())
    kinds = list(dict.fromkeys(of.dropna()))
    own = [(kind, prompts["category"] == kind, of.reindex(place).eq(kind).to_numpy()) for kind in kinds]
    own = own if 1 < len(kinds) <= MANY else []
    if len(turns) > 1:
        own += [(f"turn {turn + 1}", prompts["turn"] == turn, steps["turn"] == turn) for turn in turns]
    for order, (part, turns_of, steps_of) in enumerate(own):
        kept = prompts[turns_of]
        more = {"part": part, "order": order, "prompts": kept, "steps": steps[steps_of], "gain": samples.speedup(kept)}
        yield run._asdict() | more
