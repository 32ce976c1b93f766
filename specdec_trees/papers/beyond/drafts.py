"""Drafts of one target side by side: MAL of every method against the size of its trees, and what bounds them.

The bound is the best-first tree of the target's own distribution: a draft that is the whole target, under OPT-Tree with
delta 0. While the target samples, no tree of its size that draws nothing accepts more in the mean. Under greedy
decoding a draft that is surer than the target may.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pandas as pd
from matplotlib.axes import Axes

from specdec_trees.artifacts import draw, frame, notes, style
from specdec_trees.artifacts.metrics import MAL, Metric
from specdec_trees.artifacts.outputs import Output
from specdec_trees.artifacts.table import table
from specdec_trees.papers.beyond.budget import labelled
from specdec_trees.results.store import Results
from specdec_trees.statistics import samples
from specdec_trees.statistics.samples import Sample

BOUND, PART, NO_DRAFT = "the target itself", "the target without some layers", "no draft model"
ROWS = ("dataset", "temperature", "drafted_by", "label")
HEADERS = {"drafted_by": "Draft"}
TITLE = "Drafts of one target: MAL against tree size"
BELOW = (
    "Columns are budgets: the most nodes that a step drafts. Marked is the best draft and method of a budget.",
    "The target itself is the best-first tree of its own distribution, which bounds trees that draw nothing while the "
    "target samples; under greedy decoding it is the tree of a draft that is as sure as the target.",
)


def drafts(name: str, results: Results) -> list[Output]:
    """A panel for each draft, and a row for each draft and method; NoResultsError where no tree ended well."""
    loaded = frame.finished(results, across=("pair", "draft_id", "draft_revision"))
    done = draw.drafting(loaded[loaded["lossless"].astype(bool)])
    runs = pd.concat([labelled(own) for _, own in done.groupby("pair")], ignore_index=True)
    runs = runs[runs["asked"].notna()]
    runs = frame.put(runs, drafted_by=[_drafted_by(run) for _, run in runs.iterrows()])
    runs = runs.drop_duplicates(["block", "drafted_by", "label", "asked"])  # without a draft all pairs are alike
    runs = runs.sort_values(["block", "drafted_by", "rank", "label", "asked"], kind="stable", ignore_index=True)
    words = ", ".join([*dict.fromkeys(runs["target_id"]), notes.setting(runs, but=("pair",))])
    return [_figure(name, words, runs), _table(name, words, loaded, runs)]


def _drafted_by(run: pd.Series) -> str:
    """The draft's id; other words for none, and for the target's own layers."""
    if not run["steps"]["draft_forwards"].sum():
        return NO_DRAFT
    draft = json.loads(run["config"])["pair"].get("draft") or {}
    left_out = any(draft.get(part) for part in ("skipped_layers", "skipped_attention", "skipped_mlp"))
    if draft.get("kind") == "layer_skip":
        return PART if left_out else BOUND
    return str(run["draft_id"])


def _figure(name: str, words: str, runs: pd.DataFrame) -> style.Figure:
    """A panel for each setting and draft, with the bound in each."""
    panels: list[pd.DataFrame] = []
    for _, setting in runs.groupby("block", sort=False):
        bound = setting[setting["drafted_by"] == BOUND].assign(label=BOUND)
        for draft, lines in setting.groupby("drafted_by", sort=False):
            where = [f"{draft} ({row.dataset}, temperature {row.temperature:g})" for row in lines.itertuples()]
            both = pd.concat([lines.assign(setting=where), bound.assign(setting=where[0])])
            panels += [both.assign(panel=len(panels))] if draft != BOUND else []
    shown = pd.concat(panels or [runs.assign(panel=0)], ignore_index=True)
    shown = shown.assign(block=shown["panel"], line=shown["label"], x=shown["mean_size"].astype(float))
    shown = shown.assign(curve=shown.groupby(["block", "line"], sort=False).ngroup())
    labels = TITLE, words, "drafted nodes a step"
    long = frame.measure(shown, [MAL])
    return draw.curves(name, labels, long, [[(_curve, MAL)]], columns=2, across=3, panel=(4.4, 3.6))


def _curve(axes: Axes, rows: pd.DataFrame, metric: Metric) -> None:
    """The lines of a draft, over doublings of the size."""
    draw.curve(axes, rows, metric)
    style.powers_of_two(axes, rows["x"])


def _table(name: str, words: str, loaded: pd.DataFrame, runs: pd.DataFrame) -> Output:
    """A column for each budget."""
    lines = []
    for _, sizes in runs.groupby(["block", "drafted_by", "label"], sort=False):
        steps = dict(zip(sizes["asked"], sizes["steps"], strict=True))
        lines.append(frame.put(sizes.iloc[:1], by_size=[steps], run_ids=[" ".join(sizes["run_id"])]))
    rows = pd.concat(lines, ignore_index=True)
    metrics = [_at(size, MAL.means * (place == 0)) for place, size in enumerate(sorted(runs["asked"].unique()))]
    long = frame.measure(rows, metrics)
    long = frame.rank(long, only=long["drafted_by"] != BOUND)
    title, below = f"{TITLE} ({words})", [*draw.below(loaded, runs, timed=False), *BELOW]
    return table(name, title, long, ROWS, metrics, notes=below, headers=HEADERS)


def _at(size: int, means: str) -> Metric:
    """MAL of the run of this budget."""
    return Metric(f"mal_{size}", f"n={size}", means, _of(size), MAL.digits, ranked=True)


def _of(size: int) -> Callable[[Any], Sample | None]:
    return lambda row: samples.mal(row.by_size[size]) if size in row.by_size else None
