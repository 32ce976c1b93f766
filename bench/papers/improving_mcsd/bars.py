"""Improved MCSD, Figures 3 and 5: speedup over autoregressive decoding by dataset, a panel per pair."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes

from bench import published
from bench.artifacts import style
from bench.artifacts.outputs import NoResultsError, Output
from bench.artifacts.wording import setting
from bench.papers.improving_mcsd import bar_tables, remarks
from bench.papers.improving_mcsd.cells import blocks_of
from bench.papers.improving_mcsd.methods import DYNAMIC, STATIC, Method
from bench.papers.improving_mcsd.panels import DATASETS, Layout, Panel, datasets_of, panels_of
from bench.papers.improving_mcsd.settings import LOSSY, PAPER
from bench.results.store import Results
from bench.statistics.intervals import Interval

_WIDTH = 0.84  # of the bars of one dataset together
LAYOUTS: Mapping[str, Layout] = {
    layout.name: layout
    for layout in (
        Layout(
            "fig3",
            "Improved MCSD Figure 3: speedup of static trees",
            STATIC,
            STATIC[3],
            0.7,
            (remarks.BUDGETS, remarks.LOSSY),
        ),
        Layout(
            "fig5",
            "Improved MCSD Figure 5: speedup beside dynamic trees",
            DYNAMIC,
            DYNAMIC[2],
            1.0,
            (remarks.DYNAMIC_BUDGETS, *remarks.OF_DYNAMIC),
        ),
    )
}


@style.styled
def speedup_bars(layout: Layout, results: Results) -> list[Output]:
    """The figure, its numbers, and how much faster the paper's method is than the others."""
    printed = published.find(PAPER, "table4")  # it has the figure's pairs
    found = [block.standing_in(printed) for block in blocks_of(results, layout.methods, (layout.temperature,))]
    if not any(block.ran for block in found):
        raise NoResultsError(f"no run of {', '.join(one.header for one in layout.methods)} ended well")
    panels, words = panels_of(found), setting(found, but=("dataset",))
    datasets = datasets_of(panels)
    drawn = [panel for panel in panels if panel.ran]
    canvas, axes = style.panels(layout.title, words, len(drawn))
    for axis, panel in zip(axes, drawn, strict=True):
        _panel(axis, panel, layout, datasets)
    top = max(axis.get_ylim()[1] for axis in axes)
    for axis in axes:
        axis.set_ylim(0, top)
    speeds = bar_tables.speeds(layout, words, panels, datasets, results, list(remarks.said(printed, found)))
    gains = bar_tables.gains(layout, words, panels, datasets)
    return [style.Figure(layout.name, speeds.title, canvas, speeds.runs), speeds, gains]


def _panel(axes: Axes, panel: Panel, layout: Layout, datasets: Sequence[str]) -> None:
    """A group of bars per dataset; a method has its colour in every panel; what is lossy is hatched."""
    shown = [one for one in layout.methods if any(panel.ok(dataset, one) for dataset in datasets)]
    width = _WIDTH / max(len(shown), 1)
    for index, method in enumerate(shown):
        found = [
            (place - _WIDTH / 2 + (index + 0.5) * width, value)
            for place, dataset in enumerate(datasets)
            if (cell := panel.ok(dataset, method)) and (value := bar_tables.speedup(cell))
        ]
        _bars(axes, method, _colour(layout, method), found, width)
    axes.axhline(1, color="black", linestyle="--", linewidth=1, label="autoregressive decoding")
    axes.set(title=panel.name, ylabel="speedup (95% interval)", xlim=(-0.5, len(datasets) - 0.5))
    axes.set_xticks(range(len(datasets)), [DATASETS.get(name, name) for name in datasets])
    axes.grid(axis="x", visible=False)
    style.legend_below(axes)


def _colour(layout: Layout, method: Method) -> str:
    """The paper's own method has the same in both figures."""
    place = 3 if method is layout.ours else layout.methods.index(method)
    return style.COLOURS[place % len(style.COLOURS)]


def _bars(axes: Axes, method: Method, color: str, found: Sequence[tuple[float, Interval]], width: float) -> None:
    x, values = [place for place, _ in found], [value.value for _, value in found]
    hatch = "///" if method.header.endswith(LOSSY) else ""
    axes.bar(x, values, width * 0.92, color=color, label=method.header, hatch=hatch, edgecolor="white", linewidth=0)
    reach = np.array([[value.value - value.low, value.high - value.value] for _, value in found]).T
    axes.errorbar(x, values, yerr=reach, fmt="none", ecolor="black", elinewidth=1, capsize=2)
    for place, value in found:
        plate = {"facecolor": "white", "edgecolor": "none", "alpha": 0.9, "pad": 0.8}
        axes.annotate(
            f"{value.value:.2f}", (place, 0), (0, 4), textcoords="offset points", ha="center", fontsize=6.5, bbox=plate
        )
