"""The smoke run: every tree method on the embedded pair and prompts, in one table and two figures."""

from __future__ import annotations

from matplotlib.axes import Axes

from bench.artifacts import style
from bench.artifacts.blocks import Block, measured_blocks
from bench.artifacts.outputs import Output
from bench.artifacts.run_figure import expected_actual
from bench.artifacts.wording import setting
from bench.papers.beyond.by_speedup import by_speedup
from bench.results.store import Results

EXPECTED_ACTUAL = expected_actual("Expected against actual acceptance length, number of decoding steps")
BARS = "Mean acceptance length by method"


def smoke(name: str, results: Results) -> list[Output]:
    """The table of all methods, its details, MAL by method, and E(A) against A."""
    tables = by_speedup(name, "All tree methods", results)
    bars = mal_by_method(f"{name}_mal", results)
    return [*tables, bars, *EXPECTED_ACTUAL(f"{name}_expected_actual", results)]


@style.styled
def mal_by_method(name: str, results: Results) -> style.Figure:
    """One panel per block; methods in ascending order of MAL."""
    found = measured_blocks(results)
    words, most = setting(found), max(len(block.runs) for block in found)
    canvas, axes = style.panels(BARS, words, len(found), panel=(7.0, 1.2 + 0.32 * most))
    for axis, block in zip(axes, found, strict=True):
        _bars(axis, block, most)
    ids = tuple(run.run_id for block in found for run in block.ok)
    return style.Figure(name, f"{BARS} ({words})", canvas, ids)


def _bars(axes: Axes, block: Block, most: int) -> None:
    """MAL with its interval, E(A) beside it."""
    bars = sorted(((run.mal, run) for run in block.ok if run.mal), key=lambda bar: bar[0].value)
    places, values = range(len(bars)), [mal.value for mal, _ in bars]
    reach = [[abs(mal.value - mal.ends[end]) for mal, _ in bars] for end in (0, 1)]
    axes.barh(places, values, height=0.62, color=style.COLOURS[5], label="MAL (95% interval)")
    axes.errorbar(values, places, xerr=reach, fmt="none", ecolor="black", elinewidth=1.1, capsize=3)
    for place, value in enumerate(values):
        axes.annotate(f"{value:.2f}", (0, place), xytext=(4, 0), textcoords="offset points", va="center", fontsize=8)
    words, expected = "E(A), where edges are probabilities", [run.expected.value for _, run in bars]
    axes.plot(expected, places, linestyle="none", marker="D", color=style.COLOURS[1], label=words)
    axes.set_yticks(places, [run.name for _, run in bars])
    axes.set(title=block.mark, xlabel="new tokens per decoding step")
    axes.set(xlim=(0, None), ylim=(-0.6, most - 0.4))
    axes.grid(axis="y", visible=False)
    style.legend_below(axes)
