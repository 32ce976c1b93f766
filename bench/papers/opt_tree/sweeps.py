"""Sweeps of one parameter: OPT-Tree's Figures 8 (threshold) and 9 (temperature), and the draft's temperature."""

from __future__ import annotations

import math
from collections.abc import Callable

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas

from bench import published
from bench.artifacts import control, definitions, style, tables, ties
from bench.artifacts.blocks import Block, measured_blocks
from bench.artifacts.measured import SPEED_LEGEND, SPEEDS, cost_ratio, expected, measure, speeds
from bench.artifacts.outputs import NoResultsError, Output
from bench.artifacts.series import Series, series
from bench.artifacts.tables import Table
from bench.artifacts.wording import scale, setting
from bench.results.store import Results
from bench.statistics import samples

DELTA_TITLE = "OPT-Tree Figure 8: MAL and tokens/s against the threshold delta"
TEMPERATURE_TITLE = "OPT-Tree Figure 9: MAL and tokens/s against the temperature"
DRAFT_TITLE = "MAL and E(A) against the temperature of the draft"
Found = list[tuple[Block, list[Series]]]
Panel = Callable[[Axes, Block, list[Series]], None]


@style.styled
def by_delta(name: str, results: Results) -> list[Output]:
    """Figure 8: one panel per pair; a dashed line stands at the measured cost ratio mu."""
    found = _lines(measured_blocks(results), "delta")
    canvas, axes, words = _draw(DELTA_TITLE, found, "threshold delta", _speeds)
    notes = []
    for axis, (block, lines) in zip(axes, found, strict=True):
        notes += [f"{block.name}: {note}" for note in _mark_delta(axis, block, lines)]
    table = _table(name, f"{DELTA_TITLE} ({words})", found, "delta", tuple(notes))
    return [style.Figure(name, table.title, canvas, table.runs), table]


@style.styled
def by_temperature(name: str, results: Results) -> list[Output]:
    """Figure 9: one panel per pair, one line per drafter."""
    blocks = measured_blocks(results, across=["temperature"])
    found = _lines(blocks, "temperature", lambda run: run["temperature"])
    canvas, _, words = _draw(TEMPERATURE_TITLE, found, "temperature", _speeds, but=("temperature",))
    table = _table(name, f"{TEMPERATURE_TITLE} ({words})", found, "temperature", ())
    return [style.Figure(name, table.title, canvas, table.runs), table]


@style.styled
def by_draft_temperature(name: str, results: Results) -> list[Output]:
    """One panel per pair, a colour per drafter: MAL, and dashed what the draft itself expects, E(A)."""
    found = _lines(measured_blocks(results), "draft_temperature")
    canvas, _, words = _draw(DRAFT_TITLE, found, "draft temperature (the papers: 1; DySpec: 0.6)", _against_expected)
    table = _table(name, f"{DRAFT_TITLE} ({words})", found, "draft_temperature", ())
    return [style.Figure(name, table.title, canvas, table.runs), table]


def _lines(blocks: list[Block], swept: str, x: Callable[[pd.Series], float | None] | None = None) -> Found:
    found = [(block, lines) for block in blocks if (lines := series(block, swept, x))]
    if not found:
        raise NoResultsError(f"no run sweeps the {swept}")
    return found


def _draw(
    title: str, found: Found, label: str, panel: Panel, but: tuple[str, ...] = ()
) -> tuple[Canvas, list[Axes], str]:
    words = setting((block for block, _ in found), but=but)
    canvas, axes = style.panels(title, words, len(found))
    for axis, (block, lines) in zip(axes, found, strict=True):
        panel(axis, block, lines)
        axis.set(title=block.name, xlabel=label)
        style.legend_below(axis)
    return canvas, axes, words


def _against_expected(axes: Axes, block: Block, lines: list[Series]) -> None:
    """MAL and, dashed with open markers, E(A); where they meet the draft is as sure as it is right."""
    for index, line in enumerate(lines):
        steps = [block.steps(run["run_id"]) for run in line.runs]
        style.band(axes, line.x, [samples.interval(samples.mal(rows)) for rows in steps], index, label=line.label)
        colour, marker = style.COLOURS[index % len(style.COLOURS)], style.MARKERS[index % len(style.MARKERS)]
        values = [expected(rows).value for rows in steps]
        axes.plot(line.x, values, "--", color=colour, marker=marker, markerfacecolor="white")
    axes.plot([], [], "--", color=style.GREY, marker="o", markerfacecolor="white", label="E(A)")
    axes.set_ylabel("MAL (95% interval)")


def _speeds(axes: Axes, block: Block, lines: list[Series]) -> None:
    """MAL on the left axis in one colour, tokens/s on the right in another; lines differ in their markers."""
    right = axes.twinx()
    right.grid(visible=False)
    right.spines["right"].set_visible(True)
    left_colour, right_colour = style.COLOURS[:2]
    for index, line in enumerate(lines):
        mal = [samples.interval(samples.mal(block.steps(run["run_id"]))) for run in line.runs]
        speed = [samples.interval(samples.tokens_per_s(block.prompts(run["run_id"]))) for run in line.runs]
        style.band(axes, line.x, mal, index, color=left_colour, label=f"MAL, {line.label}")
        style.band(right, line.x, speed, index, color=right_colour, linestyle="--", markerfacecolor="white")
        axes.plot([], [], color=right_colour, marker=style.MARKERS[index % 7], linestyle="--", markerfacecolor="white")
        axes.lines[-1].set_label(f"tokens/s, {line.label}")
    axes.set_ylabel("MAL (95% interval)", color=left_colour)
    right.set_ylabel("tokens/s (95% interval)", color=right_colour)


def _mark_delta(axes: Axes, block: Block, lines: list[Series]) -> list[str]:
    """Draw mu and the paper's best delta, and say both with our best one."""
    runs = [(x, run) for line in lines for x, run in zip(line.x, line.runs, strict=True)]
    mu = cost_ratio(block, [str(run["run_id"]) for _, run in runs])
    best, _ = max(runs, key=lambda point: measure(block, point[1]).rank)
    notes = [f"largest speedup at delta = {best:g}."]
    if not math.isnan(mu):
        axes.axvline(mu, color=style.GREY, linestyle="--", linewidth=1.2, label=f"measured mu = {mu:.2f}")
        notes.append(f"measured mu = {mu:.3f} (draft forward / autoregressive step of the target).")
    target, draft = block.published_as or ("", "")
    for fact in tables.named_rows(published.find("opt_tree", "fig8", target=target, draft=draft)):
        words = f"paper's best delta = {fact.value:g} ({target} + {draft})"
        axes.axvline(fact.value, color=style.COLOURS[2], linestyle=":", linewidth=2, label=words)
        notes.append(f"{words}.")
    style.legend_below(axes)
    return notes


def _table(name: str, title: str, found: Found, swept: str, notes: tuple[str, ...]) -> Table:
    points = [
        (block, line.label, x, run)
        for block, lines in found
        for line in lines
        for x, run in zip(line.x, line.runs, strict=True)
    ]
    rows = [
        {
            "Pair": block.name,
            "Line": label,
            swept: f"{x:g}",
            "MAL": tables.interval(samples.interval(samples.mal(block.steps(run["run_id"])))),
            "E(A)": tables.number(expected(block.steps(run["run_id"])).value),
            **speeds(measure(block, run)),
            "speedup": tables.interval(samples.interval(samples.speedup(block.prompts(run["run_id"])))),
        }
        for block, label, x, run in points
    ]
    for place in dict.fromkeys((id(block), x) for block, _, x, _ in points):
        even = [n for n, (block, _, x, _) in enumerate(points) if (id(block), x) == place]
        entries = [ties.of(measure(points[n][0], points[n][3]), "mal") for n in even]
        ties.mark([rows[n] for n in even], {"MAL": entries})
    blocks = [block for block, _ in found]
    frame = tables.frame(rows, ("Pair", "Line", swept, "MAL", "E(A)", *SPEEDS, "speedup"))
    said = (f"MAL is marked among the lines of a pair at one {swept.replace('_', ' ')}.", *ties.note(frame))
    notes = (*map(scale, blocks), *notes, *control.notes(blocks), *(said if len(said) > 1 else ()))
    legend = {
        "MAL": definitions.MAL,
        "E(A)": definitions.EXPECTED,
        **SPEED_LEGEND,
        "speedup": definitions.SPEEDUP,
    }
    return Table(name, title, frame, notes, legend, tuple(str(run["run_id"]) for _, _, _, run in points))
