"""DySpec, Figures 6 and 7: the attention mask of one drafted tree in several node orders, and the blocks it fills."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.patches import Patch
from numpy.typing import NDArray

from bench.artifacts import style, tables
from bench.artifacts.blocks import Block, measured_blocks
from bench.artifacts.outputs import NoResultsError, Output
from bench.artifacts.runs import Run
from bench.artifacts.tables import Table
from bench.artifacts.wording import scale, setting
from bench.results.store import Results

ORDERS = {
    "heap": "heap order",
    "creation": "as drafted, by layers",
    "dfs": "depth first",
    "heavy_path": "heavy path first",
}
"""The node orders of the rows, in the words of figures and tables."""
ORDER = (
    "heap: as the paper's Algorithm 1 creates nodes, taken to be its original order; as drafted: here layer by "
    "layer; depth first: children in draft order; heavy path first: the child of the largest subtree first"
)
TITLE = "DySpec Figure {}: attention mask of one tree, blocks of {} x {}"
COLUMNS = ("Pair", "Drafter", "Order", "Nodes", "Blocks filled", "of at most", "share")
LEGEND = {
    "Order": ORDER,
    "Nodes": "rows of the mask, root included",
    "Blocks filled": "blocks of the nodes among themselves with an entry that is seen; prefix left out",
    "of at most": "blocks on and below the diagonal, the most that any order fills",
}
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


@style.styled
def tree_masks(name: str, results: Results, *, orders: Sequence[str], block: int) -> list[Output]:
    """A row of panels per run, one order each: the largest tree of the run, the first of several."""
    found = measured_blocks(results)
    runs = [(part, run, trees) for part in found for run in part.ok if (trees := _trees(part, run, orders, block))]
    if not runs:
        raise NoResultsError("no run recorded its masks")
    title = TITLE.format(name.removeprefix("fig"), block, block)
    words = setting(part for part, _, _ in runs)
    canvas, axes = style.panels(title, words, len(runs) * len(orders), panel=(5.4, 5.8))
    drawn = [(part, run, order, mask) for part, run, trees in runs for order, mask in trees.items()]
    for axis, (_, _, order, mask) in zip(axes, drawn, strict=True):
        _panel(axis, order, mask)
    handles = [Patch(facecolor=colour, edgecolor=style.GREY, label=text) for colour, text in _WORDS.items()]
    canvas.legend(handles=handles, loc="outside lower left", ncols=len(handles))
    frame = tables.frame([_row(part, run, order, mask) for part, run, order, mask in drawn], COLUMNS)
    ids = tuple(run.run_id for _, run, _, _ in drawn)
    notes = tuple(dict.fromkeys(scale(part) for part, _, _ in runs))
    table = Table(name, f"{title} ({words})", frame, notes, LEGEND, ids)
    return [style.Figure(name, table.title, canvas, ids), table]


def _trees(part: Block, run: Run, orders: Sequence[str], block: int) -> dict[str, Mask]:
    """The largest tree of a run in each order; none if its masks were not recorded."""
    masks = part.masks(run["run_id"])
    if masks.empty:
        return {}
    one = masks.iloc[int(masks["num_nodes"].argmax())]
    same = masks[(masks[["prompt_id", "turn", "step"]] == one[["prompt_id", "turn", "step"]]).all(axis=1)]
    parents = same.set_index("order")["parents"]
    return {order: Mask([int(parent) for parent in parents[order]], block) for order in orders}


def _panel(axes: Axes, order: str, mask: Mask) -> None:
    size = len(mask.parents)
    axes.imshow(mask.picture(), extent=(0, size, size, 0), interpolation="antialiased")
    edges = np.arange(0, size + mask.block, mask.block).clip(max=size)
    axes.grid(visible=False)
    axes.hlines(edges, 0, size, color=style.GREY, linewidth=0.35)
    axes.vlines(edges, 0, size, color=style.GREY, linewidth=0.35)
    every = -(-len(mask.blocks) // 8)
    axes.set(xlim=(-0.5, size + 0.5), ylim=(size + 0.5, -0.5), xticks=edges[::every], yticks=edges[::every])
    axes.set(xlabel="node that is seen", ylabel="node", title=f"{ORDERS[order]}: {_counts(mask)}")


def _counts(mask: Mask) -> str:
    return f"{mask.filled} of {mask.at_most} blocks filled, {len(mask.parents)} nodes"


def _row(part: Block, run: Run, order: str, mask: Mask) -> dict[str, str]:
    return {
        "Pair": part.name,
        "Drafter": run.drafter,
        "Order": ORDERS[order],
        "Nodes": str(len(mask.parents)),
        "Blocks filled": str(mask.filled),
        "of at most": str(mask.at_most),
        "share": tables.percent(mask.filled / mask.at_most),
    }
