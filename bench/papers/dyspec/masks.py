"""DySpec, Figures 6, 7 and 9: the attention mask of drafted trees in several node orders, and the blocks it fills."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from numpy.typing import NDArray

from bench import published
from bench.artifacts import style, tables
from bench.artifacts.blocks import measured_blocks
from bench.artifacts.outputs import NoResultsError, Output
from bench.artifacts.runs import Run, run_ids
from bench.artifacts.tables import Table
from bench.artifacts.wording import scale, setting
from bench.results.store import Results
from bench.statistics import intervals

ORDERS = {
    "heap": "heap order",
    "creation": "as drafted, by layers",
    "dfs": "depth first",
    "heavy_path": "heavy path first",
}
"""The node orders of the rows, in the words of figures and tables."""
_ORDER = (
    "heap: as the paper's Algorithm 1 creates nodes, taken to be its original order; as drafted: here layer by "
    "layer; depth first: children in draft order; heavy path first: the child of the largest subtree first"
)
PICTURES = "DySpec Figure {}: attention mask of one tree, blocks of {} x {}"
PICTURES_LEGEND = {
    "Order": _ORDER,
    "Nodes": "rows of the mask, root included",
    "Blocks filled": "blocks of the nodes among themselves with an entry that is seen; prefix left out",
    "of at most": "blocks on and below the diagonal, the most that any order fills",
}
BY_PREFIX = "DySpec Figure 9: blocks of the tree attention mask against the length of the prefix"
BY_PREFIX_LEGEND = {
    "n": "budget of drafted nodes, root excluded",
    "Order": _ORDER,
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
_EMPTY, _MASKED, _SEEN = "#D9D9D9", "#FFFFFF", "#0072B2"
_WORDS = {_SEEN: "node (row) sees node (column)", _MASKED: "masked, in a block that is read", _EMPTY: "empty block"}


@dataclass(frozen=True)
class Mask:
    """The mask of a tree from the parents of its nodes (parents first), and its blocks."""

    parents: Sequence[int]
    block: int

    @cached_property
    def visible(self) -> NDArray[np.bool_]:
        """Row i marks node i and its ancestors."""
        mask = np.eye(len(self.parents), dtype=bool)
        for node, parent in enumerate(self.parents):
            if parent >= 0:
                mask[node] |= mask[parent]
        return mask

    @cached_property
    def blocks(self) -> NDArray[np.bool_]:
        """Which blocks have an entry that is seen; the last ones may be smaller."""
        starts = range(0, len(self.parents), self.block)
        by_rows = np.logical_or.reduceat(self.visible, starts, axis=0)
        return np.logical_or.reduceat(by_rows, starts, axis=1)

    @property
    def filled(self) -> int:
        """How many blocks have an entry that is seen."""
        return int(self.blocks.sum())

    @property
    def at_most(self) -> int:
        """How many any order in which parents come first fills at most."""
        side = len(self.blocks)
        return side * (side + 1) // 2

    def picture(self) -> NDArray[np.float64]:
        """One colour per entry, `[nodes, nodes, 3]`."""
        size = len(self.parents)
        read = self.blocks.repeat(self.block, 0).repeat(self.block, 1)[:size, :size]
        colours = np.array([to_rgb(colour) for colour in (_EMPTY, _MASKED, _SEEN)])
        return colours[read.astype(int) + self.visible]


def _recorded(results: Results) -> list[tuple[Run, pd.DataFrame]]:
    """The runs that recorded their masks, with these rows."""
    every = [(run, run.rows("masks")) for block in measured_blocks(results) for run in block.ok]
    if not any(len(masks) for _, masks in every):
        raise NoResultsError("no run recorded its masks")
    return [(run, masks) for run, masks in every if len(masks)]


@style.styled
def tree_masks(name: str, results: Results, *, orders: Sequence[str], block: int) -> list[Output]:
    """A row of panels per run, one order each: the largest tree of the run, the first of several."""
    runs = _recorded(results)
    title = PICTURES.format(name.removeprefix("fig"), block, block)
    words = setting(run.block for run, _ in runs)
    canvas, axes = style.panels(title, words, len(runs) * len(orders), panel=(5.4, 5.8))
    drawn = [(run, order, Mask(_largest(masks, order), block)) for run, masks in runs for order in orders]
    for axis, (_, order, mask) in zip(axes, drawn, strict=True):
        _picture(axis, order, mask)
    handles = [Patch(facecolor=colour, edgecolor=style.GREY, label=text) for colour, text in _WORDS.items()]
    canvas.legend(handles=handles, loc="outside lower left", ncols=len(handles))
    rows = [
        {
            "Pair": run.block.name,
            "Drafter": run.drafter,
            "Order": ORDERS[order],
            "Nodes": str(len(mask.parents)),
            "Blocks filled": str(mask.filled),
            "of at most": str(mask.at_most),
            "share": tables.percent(mask.filled / mask.at_most),
        }
        for run, order, mask in drawn
    ]
    return _outputs(name, f"{title} ({words})", canvas, rows, [run for run, *_ in drawn], PICTURES_LEGEND)


def _largest(masks: pd.DataFrame, order: str) -> list[int]:
    """The parents of the largest tree of a run in an order."""
    one = masks.iloc[int(masks["num_nodes"].argmax())]
    same = masks[(masks[["prompt_id", "turn", "step"]] == one[["prompt_id", "turn", "step"]]).all(axis=1)]
    return [int(parent) for parent in same.set_index("order")["parents"][order]]


def _picture(axes: Axes, order: str, mask: Mask) -> None:
    size = len(mask.parents)
    axes.imshow(mask.picture(), extent=(0, size, size, 0), interpolation="antialiased")
    edges = np.arange(0, size + mask.block, mask.block).clip(max=size)
    axes.grid(visible=False)
    axes.hlines(edges, 0, size, color=style.GREY, linewidth=0.35)
    axes.vlines(edges, 0, size, color=style.GREY, linewidth=0.35)
    every = -(-len(mask.blocks) // 8)
    axes.set(xlim=(-0.5, size + 0.5), ylim=(size + 0.5, -0.5), xticks=edges[::every], yticks=edges[::every])
    counts = f"{mask.filled} of {mask.at_most} blocks filled, {size} nodes"
    axes.set(xlabel="node that is seen", ylabel="node", title=f"{ORDERS[order]}: {counts}")


@style.styled
def blocks_by_prefix(name: str, results: Results) -> list[Output]:
    """One panel per run that recorded its masks: every step as a dot, means as lines, the paper's values dashed."""
    runs = sorted(_recorded(results), key=lambda recorded: recorded[0].params.get("n", 0))
    words = setting(run.block for run, _ in runs)
    canvas, axes = style.panels(BY_PREFIX, words, len(runs), panel=(5.8, 4.6))
    rows, behind = [], []
    for axis, (run, masks) in zip(axes, runs, strict=True):
        n, size = run.params.get("n"), masks["block"].iloc[0]
        means = masks.groupby("order")["num_tree_blocks"].mean()
        for order in (order for order in ORDERS if order in means):
            of_order, paper = masks[masks["order"] == order], _published(n or 0, order)
            _by_prefix(axis, order, of_order, paper)
            rows.append(
                _by_order(run, order, of_order, paper)
                | {"share": tables.number(means[order] / means.get("heap", np.nan))}
            )
            behind.append(run)
        axis.set_title(f"{run.block.name}, {run.drafter}, n = {n}, blocks of {size} x {size}")
        axis.set(xlabel="prefix length (cached tokens)", ylabel="blocks, prefix included", ylim=(0, None))
        style.legend_below(axis, columns=1)
    return _outputs(name, f"{BY_PREFIX} ({words})", canvas, rows, behind, BY_PREFIX_LEGEND)


def _published(n: int, order: str) -> float | None:
    """The paper's mean blocks for a mask of n + 1 rows in an order; None for a size that it does not have."""
    values = published.find("dyspec", "fig_text", metric="num_blocks").set_index("params")["value"]
    params = f"figure=9;size={n + 1};reorder={'true' if order == 'dfs' else 'false'}"
    return float(values[params]) if order in ("heap", "dfs") and params in values else None


def _by_prefix(axes: Axes, order: str, rows: pd.DataFrame, paper: float | None) -> None:
    index = list(ORDERS).index(order)
    colour, marker = style.COLOURS[index], style.MARKERS[index]
    axes.plot(rows["num_prefix"], rows["num_blocks"], ".", color=colour, markersize=2.5, alpha=0.35)
    means = rows.groupby(rows["num_prefix"] // _BIN)[["num_prefix", "num_blocks"]].mean()
    words = f"{ORDERS[order]}: mean {rows['num_blocks'].mean():.1f}, tree alone {rows['num_tree_blocks'].mean():.1f}"
    axes.plot(means["num_prefix"], means["num_blocks"], color=colour, marker=marker, label=words)
    if paper is not None:
        words = f"paper, {'original order' if order == 'heap' else ORDERS[order]}: {paper:g}"
        axes.axhline(paper, color=colour, linestyle="--", linewidth=1, label=words)


def _by_order(run: Run, order: str, rows: pd.DataFrame, paper: float | None) -> dict[str, str]:
    return {
        "Pair": run.block.name,
        "Drafter": run.drafter,
        "n": str(run.params.get("n", tables.ABSENT)),
        "Order": ORDERS[order],
        "steps": str(len(rows)),
        "nodes": tables.number(rows["num_nodes"].mean(), 1),
        "prefix": tables.number(rows["num_prefix"].mean(), 1),
        "blocks": tables.interval(intervals.ratio_of_sums(rows, "num_blocks"), 1),
        "published": tables.number(paper),
        "tree blocks": tables.interval(intervals.ratio_of_sums(rows, "num_tree_blocks"), 1),
    }


def _outputs(
    name: str, title: str, canvas: Figure, rows: list[dict[str, str]], runs: Sequence[Run], legend: Mapping[str, str]
) -> list[Output]:
    """The figure, and its table with a row per run and order."""
    notes = tuple(dict.fromkeys(scale(run.block) for run in runs))
    table = Table(name, title, tables.frame(rows, rows[0]), notes, legend, run_ids(runs))
    return [style.Figure(name, title, canvas, table.runs), table]
