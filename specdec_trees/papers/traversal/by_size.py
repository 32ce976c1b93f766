"""Traversal, Figure 3: acceptance length by the depth of a chain and of a binary tree, and Traversal's gain."""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes

from specdec_trees.artifacts import draw, frame, notes
from specdec_trees.artifacts.metrics import MAL, Metric
from specdec_trees.artifacts.outputs import Output
from specdec_trees.artifacts.table import table
from specdec_trees.papers.traversal import lines
from specdec_trees.papers.traversal.lines import ALL, ARMS, BY_ITEM, GAIN
from specdec_trees.papers.traversal.tables import DEPTH, NOTES
from specdec_trees.results.store import Results

ROWS = ("pair", "dataset", "tree", "rule")


def fig3(name: str, results: Results) -> list[Output]:
    """Two panels for chains and two for binary trees: MAL by item, and how far Traversal is ahead."""
    paper = lines.of_paper(name)
    runs = frame.standing_in(frame.finished(results), paper)
    long = lines.pooled(
        lines.of_runs(runs, paper[paper["dataset"] == ALL], ARMS[name], ("temperature",), (BY_ITEM, MAL))
    )
    long = lines.gains(frame.judge(frame.rank(long), who="label"))
    words = ("Traversal Figure 3: acceptance length and gain by depth", notes.setting(runs), "depth")
    panels: list[list[draw.Drawing]] = [
        [(draw.curve, BY_ITEM), (_printed, BY_ITEM)],
        [(_even,), (draw.curve, GAIN), (_printed, GAIN)],
    ]
    drawn = _drawn(long)
    figure = draw.curves(name, words, drawn, panels)
    below = draw.below(runs, runs, [*NOTES, DEPTH, *lines.trend(drawn, "kind", "depth")])
    return [figure, table(name, figure.title, long, ROWS, (BY_ITEM, GAIN, MAL), aside=[MAL.key], notes=below)]


def _drawn(long: pd.DataFrame) -> pd.DataFrame:
    """The lines of chains and those of binary trees, each in a block of its own."""
    kinds = [arm.params["tree"] for arm in long["arm"]]
    depths = [float(arm.params["depth"]) for arm in long["arm"]]
    setting = [f"{pair}, {kind}" for pair, kind in zip(long["pair"], kinds, strict=True)]
    rows = frame.put(long, kind=kinds, depth=depths, x=depths, line=long["rule"], setting=setting)
    rows = frame.put(rows, block=rows.groupby(["setting", "temperature", "device_name"], sort=False).ngroup())
    rows = frame.put(rows, curve=rows.groupby(["block", "line"], sort=False).ngroup())
    return rows.sort_values(["curve", "x"], kind="stable")


def _printed(axes: Axes, rows: pd.DataFrame, metric: Metric) -> None:
    """The paper's values."""
    own = rows[rows["metric"].isin([metric]) & rows["published"].notna()]
    if len(own):
        axes.plot(own["x"], own["published"].astype(float), **draw.STAR, label="the paper's")


def _even(axes: Axes, rows: pd.DataFrame) -> None:
    axes.axhline(1, **draw.ACROSS)
