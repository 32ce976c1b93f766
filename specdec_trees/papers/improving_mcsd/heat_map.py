"""Improved MCSD, Figure 4: speed over static target-initialised trees, two of whose widths are swept."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from specdec_trees import published
from specdec_trees.artifacts import draw, frame, notes, style, tables, ties
from specdec_trees.artifacts.definitions import rule_label
from specdec_trees.artifacts.metrics import FORWARDS, LOSSLESS, MAL, SPEEDS, SPEEDUP, TOKENS_PER_S, Metric
from specdec_trees.artifacts.outputs import NoResultsError, Output
from specdec_trees.artifacts.table import table
from specdec_trees.artifacts.tables import named_rows
from specdec_trees.papers.improving_mcsd import methods as mcsd
from specdec_trees.papers.improving_mcsd.widths import ALPHA, NODES
from specdec_trees.published import params_of
from specdec_trees.results.store import Results
from specdec_trees.statistics import samples

METHOD = "target_init_mcsd"
TITLE = "Improved MCSD Figure 4: speed of static target-initialised trees"
BEST, LEVEL, BEHIND, AHEAD = "best", "level", "behind", "ahead"
_PREPOSITIONS = {LEVEL: "with the", AHEAD: "of the", BEHIND: "the"}
_PRINTED = published.find(mcsd.PAPER, "table2", method=METHOD)
PAPERS = tuple(map(int, params_of(_PRINTED["params"].iloc[0])["k_config"].split("-")))
"""The tree that the paper's tables have."""
_MAP = "cividis"
"""Its lightness rises from end to end, and it looks alike with every common colour vision."""
AGAINST = Metric(
    "against_best",
    "against the best",
    f"{BEST}: the largest speedup. The others by the ratio of their speedup to its, paired over conversations: "
    f"{LEVEL} if the 95% interval holds 1, {BEHIND} below, {AHEAD} above it",
    lambda run: run.standing or tables.ABSENT,
)
METRICS = (NODES, *SPEEDS, AGAINST, SPEEDUP, ALPHA, MAL, FORWARDS, LOSSLESS)
ASIDE = (SPEEDS[1].key, MAL.key, FORWARDS.key, LOSSLESS.key)
PANELS = ((SPEEDUP, "speedup, below it tokens/s"), (ALPHA, "alpha, below it the number of verified nodes"))
"""What is coloured, and its label."""


def trees(results: Results) -> pd.DataFrame:
    """The runs by `grid`, whose trees have the same rule and the same `widths` but the swept ones `a` and `b`.

    Of the runs that draft as their decoding asks for, and of several runs of a tree the last that ended well.
    """
    runs = results.runs[results.runs["method"] == METHOD]
    if runs.empty:
        raise NoResultsError(f"there is no run of {METHOD}")
    loaded = frame.standing_in(frame.load(replace(results, runs=runs)), _PRINTED)
    widths = [tuple(params.get("widths", ())) for params in loaded["params"]]
    loaded = frame.put(loaded, widths=widths, tree=["-".join(map(str, own)) for own in widths])
    asked = [len(run.widths) > 2 and mcsd.drafts_as_asked(run, ["widths"]) for run in named_rows(loaded)]
    runs = loaded[pd.Series(asked, loaded.index, dtype=bool)]
    if runs.empty:
        raise NoResultsError(
            "no run is of a target-initialised tree with two draft levels or more that drafts as its decoding asks for"
        )
    if not runs["ok"].any():
        states = ", ".join(f"{status}: {count}" for status, count in runs["status"].value_counts().items())
        raise NoResultsError(f"no run of {METHOD} ended well ({states})")
    several = runs.groupby("block")["verifier"].transform("nunique") > 1
    names = [_name(run, rule) for run, rule in zip(named_rows(runs), several, strict=True)]
    runs = frame.put(runs, grid=names, a=[own[1] for own in runs["widths"]], b=[own[2] for own in runs["widths"]])
    number = runs.groupby("grid", sort=False).ngroup()
    runs = runs.assign(number=number).sort_values("ok", kind="stable")
    runs = runs.drop_duplicates(["grid", "tree"], keep="last")
    return runs.sort_values(["number", "a", "b"], kind="stable", ignore_index=True)


def _name(run: Any, ruled: bool) -> str:
    first, _, _, *others = run.widths
    rule = f", {run.verifier}" if ruled else ""
    return f"{run.setting}, ({', '.join(map(str, [first, 'a', 'b', *others]))}){rule}{mcsd.lossy_mark(run)}"


def standings(runs: pd.DataFrame) -> pd.DataFrame:
    """The runs with how each stands against the fastest of its grid as `standing`, and the `ratio` of its speedup.

    None where nothing is the fastest or nothing can be compared; `!` in place of it where times are too noisy.
    """
    speeds = frame.measure(runs, [SPEEDUP])
    runs = frame.put(runs, speedup=speeds["interval"], sample=speeds["sample"])
    known = speeds.loc[~speeds["busy"].astype(bool), "value"].astype(float).dropna()
    first = known.groupby(runs["grid"]).idxmax().to_dict()
    best = [runs.loc[first[grid]] if grid in first else None for grid in runs["grid"]]
    ratios = [
        None if top is None or run.speedup is None else samples.paired_ratio(run.sample, top["sample"])
        for run, top in zip(named_rows(runs), best, strict=True)
    ]
    fastest = [first.get(run.grid) == run.Index for run in named_rows(runs)]
    words = [
        tables.ABSENT + ties.UNRANKED
        if run.busy and run.speedup
        else BEST
        if top
        else mcsd.ahead(ratio, AHEAD, BEHIND, LEVEL)
        for run, top, ratio in zip(named_rows(runs), fastest, ratios, strict=True)
    ]
    return frame.put(runs, best=fastest, ratio=ratios, standing=words, rule=runs["verifier"].map(rule_label))


def heat_map(name: str, results: Results) -> list[Output]:
    """Two panels per block and rule, tokens/s and alpha, a number in every cell; and a table of all cells."""
    runs = standings(trees(results))
    long = frame.measure(runs, METRICS)
    panels = [(own, *panel) for _, own in long.groupby("number") for panel in PANELS]
    figure = style.drawn(name, TITLE, notes.setting(runs), _draw, panels, runs["run_id"], panel=(5.6, 4.4))
    said = [line for _, own in runs.groupby("number") for line in _said(own)]
    said = draw.below(runs, runs, [_PAPER, mcsd.NOT_LOSSLESS, *said, *mcsd.unshown(results, runs["run_id"])])
    means = {"tree": "children per node from the first level on; the first level is the target's own"}
    rows = ("setting", "rule", "tree")
    return [figure, table(name, figure.title, long, rows, METRICS, aside=ASIDE, notes=said, means=means)]


def readable(background: Sequence[float]) -> str:
    """Black or white, whichever has the higher contrast with a colour (WCAG); one of them has 4.5:1 or more."""
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in background[:3]]
    luminance = float(np.dot([0.2126, 0.7152, 0.0722], linear))
    return "black" if (luminance + 0.05) ** 2 >= 0.05 * 1.05 else "white"


def _draw(axes: Axes, cells: pd.DataFrame, metric: Metric, label: str) -> None:
    rows, columns = (sorted(cells[key].unique()) for key in ("a", "b"))
    own = {(one.a, one.b): one for one in named_rows(cells[cells["metric"].isin([metric])])}
    speeds = {(one.a, one.b): one.value for one in named_rows(cells[cells["metric"].isin([TOKENS_PER_S])])}
    numbers = [[own[a, b].value if (a, b) in own else None for b in columns] for a in rows]
    values = np.array(numbers, dtype=float)
    colours = np.ones((*values.shape, 4))
    if np.isfinite(values).any():
        mesh = axes.pcolormesh(np.ma.masked_invalid(values), cmap=_MAP, edgecolors="white", linewidth=1)
        label += "; times too noisy to rank" * bool(cells["busy"].any() and metric is SPEEDUP)
        axes.figure.colorbar(mesh, ax=axes, label=label)
        colours = np.asarray(mesh.cmap(mesh.norm(values)))
    for (row, column), value in np.ndenumerate(values):
        colour = readable(colours[row, column].tolist()) if np.isfinite(value) else "black"
        key = rows[row], columns[column]
        text = _words(own.get(key), value, metric, speeds.get(key))
        axes.text(column + 0.5, row + 0.5, text, color=colour, ha="center", va="center", fontsize=8)
    axes.set_xticks([place + 0.5 for place in range(len(columns))], [str(b) for b in columns])
    axes.set_yticks([place + 0.5 for place in range(len(rows))], [str(a) for a in rows])
    axes.set(xlim=(0, len(columns)), ylim=(0, len(rows)), facecolor="#EEEEEE", title=cells["grid"].iloc[0])
    axes.set(xlabel="b: children per node of the first draft level", ylabel="a: drafted children per first token")
    axes.grid(visible=False)
    axes.tick_params(length=0)
    _mark(axes, list(own.values()), rows, columns)


def _words(run: Any, value: float, metric: Metric, speed: float | None) -> str:
    """A number with what stands below it, or why there is none."""
    if run is None:
        return "not run"
    if not np.isfinite(value):
        return str(run.status)
    if metric is SPEEDUP:
        return f"{value:.2f}\n{'' if speed is None else f'{speed:.0f}'}".strip()
    return f"{value:.2f}\n{f'n = {run.mean_size:.0f}' if run.mean_size else ''}".strip()


def _mark(axes: Axes, runs: Sequence[Any], rows: Sequence[int], columns: Sequence[int]) -> None:
    """A frame in the best cell, a dashed one in the paper's tree; the legend says which is which."""
    best: dict[str, Any] = {"edgecolor": style.COLOURS[1], "linewidth": 3, "label": "largest speedup"}
    papers: dict[str, Any] = {"edgecolor": "black", "linestyle": "--", "label": "the tree of the paper's Table 2"}
    handles = []
    fastest = [run for run in runs if run.best]
    printed = [run for run in runs if run.widths == PAPERS]
    for run, inset, look in [*((run, 0.04, best) for run in fastest), *((run, 0.12, papers) for run in printed)]:
        corner, side = (columns.index(run.b) + inset, rows.index(run.a) + inset), 1 - 2 * inset
        plate = Rectangle(corner, side, side, fill=False, edgecolor="white", linewidth=3.6)  # on dark colours
        axes.add_patch(plate)
        handles.append(axes.add_patch(Rectangle(corner, side, side, fill=False, **look)))
    style.legend_below(axes, handles=handles)


_TREE = "-".join(map(str, PAPERS))
_PAPER = (
    "The paper states neither the axes nor a number of this figure; a and b are our choice. What its text says of "
    f"it (section 4.2): the grid search in Figure 4 finds {_TREE} to yield the optimal speedup on MT-Bench."
)


def _said(runs: pd.DataFrame) -> Iterator[str]:
    """Which tree of a grid is the fastest, and where the paper's own stands."""
    counts, first = Counter(runs["standing"]), runs.iloc[0]
    if runs["busy"].any():
        yield f"{first['grid']}: times are too noisy to rank the trees (!)."
    for one in named_rows(runs[runs["best"].astype(bool)]):
        yield (
            f"{one.grid}: largest speedup at a = {one.a}, b = {one.b}: {tables.interval(one.speedup)}. Of "
            f"the other trees, {counts[LEVEL]} are level with it, {counts[AHEAD]} ahead, {counts[BEHIND]} behind; "
            f"{counts[None]} cannot be compared."
        )
    same = first["widths"][0], *first["widths"][3:]
    if same == (PAPERS[0], *PAPERS[3:]):
        yield f"{first['grid']}, {first['dataset']}: the paper's tree, {_TREE}, {_place(runs)}."


def _place(runs: pd.DataFrame) -> str:
    """`takes place 4 of 25 by speedup, level with the best (0.981 [..] of its speedup)`."""
    run = next(named_rows(runs[[widths == PAPERS for widths in runs["widths"]]]), None)
    if run is None or not run.ok:
        return f"has no number ({run.status})" if run else "was not run"
    if run.speedup is None:
        return "has no speedup"
    if not runs["best"].any():
        return f"has a speedup of {tables.interval(run.speedup)}; its place is not told"
    values = [one.value for one in runs["speedup"] if one is not None]
    words = f"takes place {1 + sum(value > run.speedup.value for value in values)} of {len(values)} by speedup"
    if run.standing in (None, BEST):
        return words
    return f"{words}, {run.standing} {_PREPOSITIONS[run.standing]} best ({tables.ratio(run.ratio)} of its speedup)"
