"""DySpec, Figure 9: blocks of the attention mask of real trees against the length of the prefix, by node order."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd
from matplotlib.axes import Axes

from bench import published
from bench.artifacts import style, tables
from bench.artifacts.blocks import Block, measured_blocks
from bench.artifacts.outputs import NoResultsError, Output
from bench.artifacts.runs import Run, drafter_params
from bench.artifacts.tables import Table
from bench.artifacts.wording import scale, setting
from bench.papers.dyspec.masks import ORDER, ORDERS
from bench.results.store import Results
from bench.statistics import intervals

TITLE = "DySpec Figure 9: blocks of the tree attention mask against the length of the prefix"
COLUMNS = ("Pair", "Drafter", "n", "Order", "steps", "nodes", "prefix", "blocks", "published", "tree blocks", "share")
LEGEND = {
    "n": "budget of drafted nodes, root excluded",
    "Order": ORDER,
    "nodes": "mean rows of the mask, root included",
    "prefix": "mean number of cached tokens before the tree",
    "blocks": "mean blocks with an entry that is seen, prefix included, counted from the first cached token; in "
    "brackets the 95% interval (bootstrap over conversations)",
    "published": "the paper's text for a mask of so many rows; it states neither pair nor prefix, nor whether its size "
    "counts the root: its blocks depth first fit a root that is counted (one row more adds some ten)",
    "tree blocks": "the same of the nodes among themselves, prefix left out",
    "share": "tree blocks of this order / of the heap order",
}
_BIN = 16
"""Prefix lengths that are averaged for a point of a line; half a block."""


@style.styled
def blocks_by_prefix(name: str, results: Results) -> list[Output]:
    """One panel per run that recorded its masks: every step as a dot, means as lines, the paper's values dashed."""
    found = measured_blocks(results)
    runs = [(block, run, masks) for block in found for run in block.ok if len(masks := block.masks(run["run_id"]))]
    if not runs:
        raise NoResultsError("no run recorded its masks")
    runs.sort(key=lambda part: drafter_params(part[1]).get("n", 0))
    words = setting(block for block, _, _ in runs)
    canvas, axes = style.panels(TITLE, words, len(runs), panel=(5.8, 4.6))
    for axis, (block, run, masks) in zip(axes, runs, strict=True):
        _panel(axis, masks, _published(run))
        size = int(masks["block"].iloc[0])
        axis.set_title(f"{block.name}, {run.drafter}, n = {run.params.get('n')}, blocks of {size} x {size}")
    rows = [row for block, run, masks in runs for row in _rows(block, run, masks)]
    ids = tuple(run.run_id for _, run, masks in runs for _ in _orders(masks))
    notes = tuple(dict.fromkeys(scale(block) for block, _, _ in runs))
    table = Table(name, f"{TITLE} ({words})", tables.frame(rows, COLUMNS), notes, LEGEND, ids)
    return [style.Figure(name, table.title, canvas, ids), table]


def _orders(masks: pd.DataFrame) -> list[str]:
    """The orders of the rows, as they are known here first."""
    return [order for order in ORDERS if (masks["order"] == order).any()]


def _published(run: Run) -> dict[str, float]:
    """The paper's mean blocks for as many rows as the run's masks have, by order; none for a size it does not have."""
    facts = published.find("dyspec", "fig_text", metric="num_blocks")
    size = run.params.get("n", 0) + 1
    printed = {"heap": f"figure=9;size={size};reorder=false", "dfs": f"figure=9;size={size};reorder=true"}
    values = facts.set_index("params")["value"]
    return {order: float(values[params]) for order, params in printed.items() if params in values}


def _panel(axes: Axes, masks: pd.DataFrame, paper: dict[str, float]) -> None:
    for order in _orders(masks):
        index, rows = list(ORDERS).index(order), masks[masks["order"] == order]
        colour = style.COLOURS[index]
        axes.plot(rows["num_prefix"], rows["num_blocks"], ".", color=colour, markersize=2.5, alpha=0.35)
        means = rows.groupby(rows["num_prefix"] // _BIN)[["num_prefix", "num_blocks"]].mean()
        words = (
            f"{ORDERS[order]}: mean {rows['num_blocks'].mean():.1f}, tree alone {rows['num_tree_blocks'].mean():.1f}"
        )
        marker = style.MARKERS[index]
        axes.plot(means["num_prefix"], means["num_blocks"], color=colour, marker=marker, label=words)
        if order in paper:
            words = f"paper, {'original order' if order == 'heap' else ORDERS[order]}: {paper[order]:g}"
            axes.axhline(paper[order], color=colour, linestyle="--", linewidth=1, label=words)
    axes.set(xlabel="prefix length (cached tokens)", ylabel="blocks, prefix included", ylim=(0, None))
    style.legend_below(axes, columns=1)


def _rows(block: Block, run: Run, masks: pd.DataFrame) -> Iterator[dict[str, str]]:
    paper, original = _published(run), masks.loc[masks["order"] == "heap", "num_tree_blocks"].mean()
    for order in _orders(masks):
        rows = masks[masks["order"] == order]
        yield {
            "Pair": block.name,
            "Drafter": run.drafter,
            "n": str(run.params.get("n", tables.ABSENT)),
            "Order": ORDERS[order],
            "steps": str(len(rows)),
            "nodes": tables.number(rows["num_nodes"].mean(), 1),
            "prefix": tables.number(rows["num_prefix"].mean(), 1),
            "blocks": tables.interval(intervals.ratio_of_sums(rows, "num_blocks"), 1),
            "published": tables.number(paper.get(order)),
            "tree blocks": tables.interval(intervals.ratio_of_sums(rows, "num_tree_blocks"), 1),
            "share": tables.number(rows["num_tree_blocks"].mean() / original),
        }
