"""MAL by method as bars with intervals, E(A) beside it."""

from __future__ import annotations

from matplotlib.axes import Axes

from bench.artifacts import style
from bench.artifacts.blocks import Block, measured_blocks
from bench.artifacts.outputs import Output
from bench.artifacts.runs import Run
from bench.artifacts.wording import setting
from bench.results.store import Results

TITLE = "Mean acceptance length by method"


@style.styled
def mal_by_method(name: str, results: Results) -> list[Output]:
    """One panel per block; methods in ascending order of MAL, each with its tree size n."""
    found = measured_blocks(results)
    words = setting(found)
    most = max(len(block.runs) for block in found)
    canvas, axes = style.panels(TITLE, words, len(found), panel=(7.0, 1.2 + 0.32 * most))
    for axis, block in zip(axes, found, strict=True):
        runs = [run for run in block.ok if run.mal]
        _bars(axis, block, sorted(runs, key=lambda run: run.mal.value if run.mal else 0.0), most)
    ids = tuple(run.run_id for block in found for run in block.ok)
    return [style.Figure(name, f"{TITLE} ({words})", canvas, ids)]


def _bars(axes: Axes, block: Block, runs: list[Run], most: int) -> None:
    places = range(len(runs))
    intervals = [run.mal for run in runs if run.mal]
    values = [value.value for value in intervals]
    reach = [[value.value - value.low for value in intervals], [value.high - value.value for value in intervals]]
    axes.barh(places, values, height=0.62, color=style.COLOURS[5], label="MAL (95% interval)")
    axes.errorbar(values, places, xerr=reach, fmt="none", ecolor="black", elinewidth=1.1, capsize=3)
    for place, value in zip(places, intervals, strict=True):
        axes.annotate(
            f"{value.value:.2f}", (0, place), xytext=(4, 0), textcoords="offset points", va="center", fontsize=8
        )
    e_a = [run.expected.value for run in runs]
    axes.plot(
        e_a, places, linestyle="none", marker="D", color=style.COLOURS[1], label="E(A), where edges are probabilities"
    )
    axes.set_yticks(places, [f"{run.drafter} ({run.size or 0})" for run in runs])
    axes.set(title=block.mark, xlabel="new tokens per decoding step")
    axes.set(xlim=(0, None), ylim=(-0.6, most - 0.4))
    axes.grid(axis="y", visible=False)
    style.legend_below(axes)
