"""Sequoia, Figure 1 (right): what the tree structures look like at one size."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from matplotlib.axes import Axes

from bench.artifacts import style
from bench.artifacts.outputs import Output
from bench.papers.sequoia.panels import Panel
from bench.papers.sequoia.structures import STRUCTURES

DRAFTED = 31
"""Nodes of the trees that are drawn, root excluded."""
_TITLE = "Sequoia Figure 1 (right): tree structures of N = {} nodes, each at its best for the measured vector"


def drawings(name: str, words: str, panel: Panel) -> list[Output]:
    """One panel per structure, for a setting in these words; nothing where it has no trees of that size."""
    rows = panel.growth[panel.growth["n"] == DRAFTED]
    trees = {row["structure"]: row for _, row in rows.iterrows()}
    shown = [structure for structure in STRUCTURES if structure.name in trees]
    if not shown:
        return []
    title = _TITLE.format(DRAFTED + 1)
    canvas, axes = style.panels(title, words, len(shown), columns=len(shown), panel=(2.4, 3.2))
    for axis, structure in zip(axes, shown, strict=True):
        row = trees[structure.name]
        _draw(axis, list(row["parents"]), style.COLOURS[structure.index])
        best = f", k = {row['num_branches']:g}" if structure.any_k else ""
        axis.set_title(f"{structure.label}{best}\nF(T) = {row['expected_tokens']:.2f}")
    return [style.Figure(name, f"{title} ({words})", canvas, tuple(rows["run_id"].unique()))]


def places(parents: Sequence[int]) -> list[tuple[float, int]]:
    """Where each node stands: leaves side by side, a parent over the middle of its children; and its depth."""
    children = defaultdict(list)
    for node, parent in enumerate(parents):
        children[parent].append(node)
    depths, across, leaves = [0] * len(parents), [0.0] * len(parents), 0
    for node, parent in enumerate(parents):
        depths[node] = depths[parent] + 1 if parent >= 0 else 0
    stack = [(0, False)]
    while stack:
        node, done = stack.pop()
        below = children[node]
        if done:
            across[node] = (across[below[0]] + across[below[-1]]) / 2
        elif below:
            stack += [(node, True), *((child, False) for child in reversed(below))]
        else:
            across[node], leaves = float(leaves), leaves + 1
    return list(zip(across, depths, strict=True))


def _draw(axes: Axes, parents: Sequence[int], colour: str) -> None:
    at = places(parents)
    for node, parent in enumerate(parents):
        if parent >= 0:
            (x, y), (above, level) = at[node], at[parent]
            axes.plot([above, x], [level, y], color=style.GREY, linewidth=0.8, zorder=1)
    axes.scatter([x for x, _ in at], [y for _, y in at], s=14, color=colour, zorder=2)
    axes.scatter(*at[0], s=22, color="black", zorder=3)
    axes.invert_yaxis()
    axes.margins(0.08)
    axes.axis("off")
