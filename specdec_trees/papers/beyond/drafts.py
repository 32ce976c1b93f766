"""Drafts of one target side by side: MAL of every method against the size of its trees.

Beside them stands the best-first tree of the whole target, the draft that knows the target's distribution: OPT-Tree
with delta 0. While the target samples at temperature 1, no tree of so many nodes that draws nothing has a larger E(A)
in a step. Under greedy decoding it bounds nothing.
"""

from __future__ import annotations

import json
import textwrap
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

WHOLE, PART, NO_DRAFT = "the whole target", "the target without some layers", "no draft model"
BEST_FIRST = "best_first"
ACROSS = ("pair", "draft_id", "draft_revision")
ROWS = ("dataset", "temperature", "drafted_by", "label")
HEADERS = {"drafted_by": "Draft", "apart": "Setting"}
TITLE = "Drafts of one target: MAL against tree size"
FORWARDS = Metric(
    "forwards",
    "forwards",
    "draft forwards a step, mean over the steps of the largest budget of the row",
    lambda row: float(row.by_size[max(row.by_size)]["draft_forwards"].mean()),
    1,
)
BELOW = (
    "Columns are budgets: the most nodes that the target reads in a step. Trees that end earlier may be the same in "
    "several. Marked is the best draft and method of a budget in one setting.",
    "The whole target as a draft knows its own distribution, and is marked nowhere. While the target samples at "
    "temperature 1, no tree that draws nothing expects more of a step than its best-first tree; greedy decoding has no "
    "such bound.",
)


def drafts(name: str, results: Results) -> list[Output]:
    """A panel for each draft, and a row for each draft and method; NoResultsError where no tree ended well."""
    loaded = frame.finished(results, across=ACROSS)
    done = draw.drafting(loaded[loaded["lossless"].astype(bool)])
    runs = pd.concat([labelled(own) for _, own in done.groupby("pair")], ignore_index=True)
    runs = runs[runs["asked"].notna()]
    runs = frame.put(runs, drafted_by=[_drafted_by(run) for _, run in runs.iterrows()])
    runs = runs.assign(drafted_by=_told_apart(runs), apart=_apart(runs))
    again = runs.duplicated(["block", "drafted_by", "label", "asked"]) & (runs["drafted_by"] == NO_DRAFT)
    runs = runs[~again]  # without a draft all pairs draft alike
    runs = runs.sort_values(["block", "drafted_by", "rank", "label", "asked"], kind="stable", ignore_index=True)
    words = ", ".join([*dict.fromkeys(runs["target_id"]), notes.setting(runs, but=("pair",))])
    return [_figure(name, words, runs), _table(name, words, loaded, runs)]


def _drafted_by(run: pd.Series) -> str:
    """The draft's id; other words for none, and for the target's own layers."""
    if len(run["steps"]) and not run["steps"]["draft_forwards"].sum():
        return NO_DRAFT
    draft = json.loads(run["config"])["pair"].get("draft") or {}
    left_out = any(draft.get(part) for part in ("skipped_layers", "skipped_attention", "skipped_mlp"))
    if draft.get("kind") == "layer_skip":
        return PART if left_out else WHOLE
    return str(run["draft_id"])


def _told_apart(runs: pd.DataFrame) -> pd.Series:
    """The drafts' words, with the pair where several pairs have the same, and the revision where several have that."""
    words = runs["drafted_by"].astype(str)
    for name in ("pair", "draft_revision"):
        alone = runs.groupby(words)[name].transform("nunique") < 2
        words = words.where(alone | (words == NO_DRAFT), words + " (" + runs[name].astype(str) + ")")
    return words


def _apart(runs: pd.DataFrame) -> pd.Series:
    """What blocks of one dataset and temperature do not have alike, such as a revision; nothing where there is one."""
    columns = [name for name in (*frame.CELL, *frame.PLACE) if name not in ACROSS]
    words = dict.fromkeys(runs.index, "")
    for _, alike in runs.groupby(["dataset", "temperature"]):
        if alike["block"].nunique() > 1:
            differ = [name for name in columns if alike[name].nunique(dropna=False) > 1]
            lines = (
                alike[differ].astype(str).apply(lambda run: ", ".join(f"{k} {v[:12]}" for k, v in run.items()), axis=1)
            )
            words |= lines.to_dict()
    return pd.Series(words)


def _figure(name: str, words: str, runs: pd.DataFrame) -> style.Figure:
    """A panel for each setting and draft, with the whole target's best-first tree in each."""
    panels: list[pd.DataFrame] = []
    several = runs[["dataset", "temperature"]].drop_duplicates().shape[0] > 1
    for _, setting in runs.groupby("block", sort=False):
        whole = setting[(setting["drafted_by"] == WHOLE) & (setting["method"] == BEST_FIRST)]
        whole = whole.assign(label=WHOLE, method="target_sample")  # with the look that is the target's
        for draft, lines in setting.groupby("drafted_by", sort=False):
            first = lines.iloc[0]
            where = f" ({first['dataset']}, temperature {first['temperature']:g})" * several
            both = pd.concat([lines, whole if draft != WHOLE else lines[:0]])
            title = textwrap.fill(f"{draft}{where} {first['apart']}", 42)
            panels.append(both.assign(setting=title, panel=len(panels)))
    if len(panels) > 1:  # what is all of the whole target stands in the others
        panels = [rows for rows in panels if {*rows["drafted_by"]} != {WHOLE} or {*rows["method"]} != {BEST_FIRST}]
    shown = pd.concat(panels, ignore_index=True)
    shown = shown.assign(block=shown["panel"], line=shown["label"], x=shown["mean_size"].astype(float))
    shown = shown.assign(curve=shown.groupby(["block", "line"], sort=False).ngroup())
    labels = TITLE, words, "drafted nodes a step"
    long = frame.measure(shown, [MAL])
    return draw.curves(name, labels, long, [[(_curve, MAL)]], columns=2, across=3, panel=(4.4, 3.6))


def _curve(axes: Axes, rows: pd.DataFrame, metric: Metric) -> None:
    """The lines of a draft, over doublings of the size: the whole target's would flatten them on a linear scale."""
    draw.curve(axes, rows, metric)
    style.few_log_ticks(axes)
    style.powers_of_two(axes, rows["x"])


def _table(name: str, words: str, loaded: pd.DataFrame, runs: pd.DataFrame) -> Output:
    """A column for each budget."""
    lines = []
    for _, sizes in runs.groupby(["block", "drafted_by", "label"], sort=False):
        steps = dict(zip(sizes["asked"], sizes["steps"], strict=True))
        lines.append(frame.put(sizes.iloc[:1], by_size=[steps], run_ids=[" ".join(sizes["run_id"])]))
    rows = pd.concat(lines, ignore_index=True)
    metrics = [_at(size, MAL.means * (place == 0)) for place, size in enumerate(sorted(runs["asked"].unique()))]
    metrics.append(FORWARDS)
    long = frame.measure(rows, metrics)
    long = frame.rank(long, only=long["drafted_by"] != WHOLE)
    title, below = f"{TITLE} ({words})", [*draw.below(loaded, runs, timed=False), *BELOW]
    columns = [*ROWS, *["apart"] * bool(runs["apart"].any())]
    return table(name, title, long, columns, metrics, notes=below, headers=HEADERS)


def _at(size: int, means: str) -> Metric:
    """MAL of the run of this budget."""
    return Metric(f"mal_{size}", f"n={size}", means, _of(size), MAL.digits, ranked=True)


def _of(size: int) -> Callable[[Any], Sample | None]:
    return lambda row: samples.mal(row.by_size[size]) if size in row.by_size else None
