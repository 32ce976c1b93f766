"""Sequoia, Figures 1, 2 and 5a: tokens per step of tree structures against tree size, expected and measured."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes

from bench.artifacts import style
from bench.artifacts.outputs import Output
from bench.papers.sequoia.bounds import limits
from bench.papers.sequoia.drawings import drawings
from bench.papers.sequoia.gains import draw_published
from bench.papers.sequoia.panels import Panel, panel_words, panels
from bench.papers.sequoia.structures import K_SEQUENCES, SEQUOIA, STRUCTURES, Structure
from bench.papers.sequoia.tokens_table import tokens_table
from bench.results.store import Results

Spans = list[tuple[float, float]]
_ROOM = 1.35  # a limit that far above all else is still drawn


@dataclass(frozen=True, slots=True)
class Plot:
    """One of the figures: its structures, and whether Sequoia's gain over k sequences and the trees are shown."""

    title: str
    structures: tuple[Structure, ...] = STRUCTURES
    gains: bool = False
    trees: bool = False


PLOTS = {
    "fig1": Plot("Sequoia Figure 1: tokens per step against tree size, by structure", trees=True),
    "fig2": Plot("Sequoia Figure 2: tokens per step against tree size, by structure and pair"),
    "fig5a": Plot(
        "Sequoia Figure 5a: tokens per step against tree size, Sequoia's tree and k sequences",
        (SEQUOIA, K_SEQUENCES),
        gains=True,
    ),
}


@style.styled
def tokens_by_size(name: str, results: Results) -> list[Output]:
    """One panel per setting: F(T) as lines, measured MAL as markers, the limits of Table 1 dotted; and all points."""
    plot = PLOTS[name]
    found = panels(results, plot.structures)
    drawn = [panel for panel in found if panel.drawn]
    words = panel_words(drawn)
    how = "lines: F(T), markers: MAL with 95% interval, dotted: limits for N → ∞ (Table 1)"
    canvas, axes = style.panels(plot.title, f"{words}; {how}", len(drawn))
    for axis, panel in zip(axes, drawn, strict=True):
        _panel(axis, panel, plot)
    table = tokens_table(name, f"{plot.title} ({words})", found, plot.structures, gained=plot.gains)
    figure = style.Figure(name, table.title, canvas, tuple(run for run in table.runs if run))
    first = [panel for panel in drawn if len(panel.growth)][:1] if plot.trees else []
    return [figure, table, *(tree for panel in first for tree in drawings(f"{name}_trees", panel_words(first), panel))]


def _panel(axes: Axes, panel: Panel, plot: Plot) -> None:
    spans = [span for structure in plot.structures for span in _draw(axes, panel, structure)]
    _legend(axes, panel, plot.structures, highest=max(value for _, value in spans))
    if plot.gains:
        draw_published(axes, panel)
    axes.set(title=panel.name, xlabel="tree size N (root counted)", ylabel="tokens per step")
    style.powers_of_two(axes, [size for size, _ in spans])
    style.legend_below(axes)


def _draw(axes: Axes, panel: Panel, structure: Structure) -> Spans:
    """The line and the markers of a structure; all of their (N, tokens per step)."""
    line, index, measured = panel.line(structure), structure.index, panel.measured(structure)
    sizes, values = [size for size, _ in measured], [mal for _, mal in measured]
    if len(line):
        axes.plot(line["N"], line["expected_tokens"], color=style.COLOURS[index])
        style.points(axes, sizes, values, index)
    else:
        style.band(axes, sizes, values, index)
    expected = zip(line["N"].astype(float), line["expected_tokens"], strict=True)
    return [*expected, *((size, mal.value) for size, mal in measured)]


def _legend(axes: Axes, panel: Panel, structures: Sequence[Structure], highest: float) -> None:
    """An entry for each structure that is drawn, with its limit, which is dotted where it is not far above the rest."""
    bounds = limits(panel.vector.accepted) if panel.vector else {}
    for structure in structures:
        measured = panel.measured(structure)
        if not (measured or len(panel.line(structure))):
            continue
        value, k = bounds.get(structure.name, (math.nan, 0))
        colour, marker = style.COLOURS[structure.index], style.MARKERS[structure.index] if measured else ""
        if value <= highest * _ROOM:
            axes.axhline(value, color=colour, linestyle=":", linewidth=1)
        axes.plot([], [], color=colour, marker=marker, label=structure.label + _limit(structure, value, k))


def _limit(structure: Structure, value: float, k: int) -> str:
    """The words for a limit: none for Sequoia, and none where no vector was measured."""
    if math.isnan(value):
        return ""
    best = f" at k={k}" if structure.any_k else ""
    return f" (limit {value:.3g}{best})" if math.isfinite(value) else " (no limit)"
