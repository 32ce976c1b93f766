"""The smoke run: every tree method on the embedded pair and prompts, in one table and two figures."""

from __future__ import annotations

from dataclasses import replace

from matplotlib.axes import Axes

from bench.artifacts import control, definitions, style, tables, ties
from bench.artifacts.blocks import Block, blocks, measured_blocks
from bench.artifacts.metric import EXPECTED, KEEPS_LAW, MAL, SPEEDS, SPEEDUP, Metric, cells, headers, legend
from bench.artifacts.outputs import Output
from bench.artifacts.run_figure import expected_actual
from bench.artifacts.runs import Run
from bench.artifacts.tables import Table
from bench.artifacts.wording import draft_temperatures, scale, setting
from bench.results.rows import AUTOREGRESSIVE
from bench.results.store import Results
from bench.statistics import metrics


def _by_depth(depth: int, means: str = "") -> Metric:
    return Metric(f"d={depth}", lambda run: metrics.acceptance_by_depth(run.steps).get(depth), means)


COLUMNS = (
    Metric("Drafter", lambda run: f"{run.name} [{run.block.mark}]" if run.block.mark else run.name),
    Metric("n", lambda run: str(run.size or 0), f"the most {definitions.SIZE}"),
    Metric("nodes", lambda run: run.mean_size, f"{definitions.SIZE}, mean over steps", 1),
    replace(MAL, of=lambda run: run.mal if run.ok else run.status),
    EXPECTED,
    _by_depth(
        1, "share of steps that accepted 1 drafted token or more, of those whose tree is so deep (d=2: 2 or more, ...)"
    ),
    *map(_by_depth, (2, 3, 4)),
    Metric("forwards", lambda run: run.draft_forwards, "draft forwards per decoding step", 1),
    *SPEEDS,
    replace(SPEEDUP, means=definitions.CONTROLLED_SPEEDUP),
    Metric("identical", lambda run: tables.percent(run.identical), definitions.IDENTICAL),
    KEEPS_LAW,
)
EVEN = (
    "MAL is marked among trees of the same n alone, where there are several: larger trees accept more, and what they "
    "cost is in tokens/s and speedup, which are marked among all rows."
)
EXPECTED_ACTUAL = expected_actual("Expected against actual acceptance length, number of decoding steps")
BARS = "Mean acceptance length by method"


def smoke(name: str, results: Results) -> list[Output]:
    """The table of all methods, MAL by method, and E(A) against A."""
    bars = mal_by_method(f"{name}_mal", results)
    return [smoke_table(results), bars, *EXPECTED_ACTUAL(f"{name}_expected_actual", results)]


def smoke_table(results: Results) -> Table:
    """One row per drafter, autoregressive decoding first, then by method and size."""
    found = blocks(results)
    runs = [run for block in found for run in sorted(block.every, key=_order)]
    rows = [cells(COLUMNS, run) for run in runs]
    for metric in (*SPEEDS, SPEEDUP, MAL):
        among = [(id(run.block), run.size if metric is MAL else None) for run in runs]
        ties.mark(rows, {metric.header: [metric.entry(run) for run in runs]}, among)
    frame = tables.frame(rows, headers(COLUMNS))
    notes = [*map(scale, found), *draft_temperatures(run for block in found for run in block.ok), *control.notes(found)]
    if marks := ties.note(frame):
        notes += [*marks, EVEN]
    title = f"All tree methods ({setting(found)})"
    return Table("smoke", title, frame, tuple(notes), legend(COLUMNS), tuple(run.run_id for run in runs))


def _order(run: Run) -> tuple[bool, str, int, str]:
    return run.method != AUTOREGRESSIVE, run.method, run.size or 0, run.drafter


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
    reach = [[mal.value - mal.low for mal, _ in bars], [mal.high - mal.value for mal, _ in bars]]
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
