"""Sequoia, Figure 5c: speedup against tree size, and the hardware-aware tree."""

from __future__ import annotations

from matplotlib.axes import Axes

from bench.artifacts import style
from bench.artifacts.blocks import Block, drafted_blocks
from bench.artifacts.outputs import NoResultsError, Output
from bench.artifacts.runs import Run
from bench.artifacts.wording import setting
from bench.papers.sequoia.run_table import run_table
from bench.results.store import Results

TITLE = "Sequoia Figure 5c: speedup against tree size, and the hardware-aware tree"
_SIZED, _CHOSEN = "sequoia", "sequoia_hardware"


@style.styled
def speedup_by_size(name: str, results: Results) -> list[Output]:
    """One panel per block: a line over trees of any depth, and the chosen tree, measured and predicted."""
    found = drafted_blocks(results, [_SIZED, _CHOSEN])
    drawn = [block for block in found if _cells(block, _SIZED) or _cells(block, _CHOSEN)]
    if not drawn:
        raise NoResultsError("no run has a speedup: the autoregressive arm was not run")
    words = setting(drawn)
    canvas, axes = style.panels(TITLE, words, len(drawn))
    for axis, block in zip(axes, drawn, strict=True):
        _panel(axis, block)
    table = run_table(name, f"{TITLE} ({words})", [(block, run) for block in found for run in block.every])
    ids = tuple(run.run_id for block in drawn for run in block.ok)
    return [style.Figure(name, table.title, canvas, ids), table]


def _panel(axes: Axes, block: Block) -> None:
    sized, chosen = (_cells(block, method) for method in (_SIZED, _CHOSEN))
    if sized:
        sizes, speedups = [one.nodes or 1 for one in sized], [one.speedup for one in sized if one.speedup]
        style.band(axes, sizes, [value for value in speedups if value], 0, label="Sequoia, any depth (95% interval)")
    for place, one in enumerate(chosen):
        _mark_chosen(axes, one, place + 1)
    axes.set(title=block.name, xlabel="tree size N (root counted)", ylabel="speedup")
    style.powers_of_two(axes, [one.nodes or 1 for one in (*sized, *chosen)])
    style.legend_below(axes, columns=1)


def _cells(block: Block, method: str) -> list[Run]:
    """The runs of a method that have a size and a speedup, by size."""
    every = [run for run in block.ok if run.method == method]
    found = [one for one in every if one.nodes and one.speedup]
    return sorted(found, key=lambda one: one.nodes or 0)


def _mark_chosen(axes: Axes, one: Run, index: int) -> None:
    """A horizontal line at the measured speedup with a marker at N, and a dashed one at the predicted speedup."""
    speedup, colour = one.speedup, style.COLOURS[index % len(style.COLOURS)]
    if speedup is None or one.nodes is None:
        return
    words = f"hardware-aware, N = {one.nodes}, {one.levels} levels: {speedup.value:.2f}x"
    axes.axhline(speedup.value, color=colour, linewidth=1.4)
    style.points(axes, [one.nodes], [speedup], index, markersize=8)
    axes.plot([], [], color=colour, marker=style.MARKERS[index % len(style.MARKERS)], markersize=8, label=words)
    if (predicted := one.predicted("speedup")) is not None:
        words = f"predicted for it: {predicted:.2f}x"
        axes.axhline(predicted, color=colour, linestyle="--", linewidth=1.2, label=words)
