"""MAL and speedup against the measured tree size: a column of two panels for every dataset and temperature."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from bench.artifacts import control, style
from bench.artifacts.blocks import Block
from bench.papers.beyond.budget_points import METRICS, Point, place
from bench.results.rows import AUTOREGRESSIVE

ACROSS = 4
"""Settings side by side; others go below."""
_PANEL = (3.7, 3.1)
_APART = 0.4
"""Over how many doublings of the size the methods of a budget are spread sideways, so that intervals do not overlap."""
_ASIDE = "methods of one budget are set side by side"
_LINES: dict[str, tuple[int, str, Any]] = {  # colour, marker, line
    "chain": (6, "X", ":"),
    "binary": (6, "<", "--"),
    "mcsd": (5, "P", "--"),
    "spec_infer": (3, ">", ":"),
    "sequoia": (1, "s", "-"),
    "opt_tree": (0, "o", "-"),
    "eagle2": (3, "D", "-"),
    "dyspec": (2, "^", "-"),
    "tsd": (4, "v", "--"),
    "gsd": (4, "p", "-"),
    "prompt_lookup_tree": (2, "*", ":"),
}
"""No two methods share colour and line, nor the marker."""
_OTHERS = (("h", "-."), ("8", (0, (1, 1))), ("d", (0, (5, 1))), ("H", (0, (3, 1, 1, 1))))
Found = Sequence[tuple[Block, list[Point]]]
Looks = Mapping[str, dict[str, Any]]


@style.styled
def by_budget(name: str, title: str, words: str, found: Found) -> style.Figure:
    """MAL above, speedup below, with the A/A control as a band around 1; one legend for all."""
    columns = min(ACROSS, len(found))
    groups = [found[start : start + columns] for start in range(0, len(found), columns)]
    canvas, axes = style.panels(title, f"{words}; {_ASIDE}", 2 * columns * len(groups), columns=columns, panel=_PANEL)
    pairs, looks = len({block.pair for block, _ in found}) > 1, _looks(found)
    for row, group in enumerate(groups):
        above, below = (axes[(2 * row + metric) * columns :][:columns] for metric in range(len(METRICS)))
        for both, (block, mine) in zip(zip(above, below, strict=True), group, strict=False):
            both[0].set_title(place(block, pairs))
            _panels(both, block, mine, looks)
        for spare in (*above[len(group) :], *below[len(group) :]):
            spare.remove()
        above[0].set_ylabel("MAL (95% interval)")
        below[0].set_ylabel("speedup (95% interval)")
    _legend(canvas, looks, any(control.itself(block) for block, _ in found))
    runs = tuple(point.run_id for _, mine in found for point in mine if point.ok)
    return style.Figure(name, f"{title} ({words})", canvas, runs)


def _panels(both: Sequence[Axes], block: Block, mine: list[Point], looks: Looks) -> None:
    """The lines of a setting, of MAL and of the speedup."""
    sized = [point for point in mine if point.ok and point.budget and point.method != AUTOREGRESSIVE]
    for axes, metric in zip(both, METRICS, strict=True):
        for index, (label, look) in enumerate(looks.items()):
            line = [point for point in sized if point.label == label and metric in point.intervals]
            line.sort(key=lambda point: (point.budget or 0, point.nodes))
            _line(axes, line, metric, 2 ** (_APART * ((index + 0.5) / len(looks) - 0.5)), look)
        if sized:
            style.powers_of_two(axes, [point.nodes for point in sized])
        axes.set_xlabel("drafted nodes a step (points side by side)")
    _control(both[1], block)


def _line(axes: Axes, line: list[Point], metric: str, aside: float, look: Mapping[str, Any]) -> None:
    """A method's points with their intervals as bars: bands of so many methods would hide each other."""
    x, values = [point.nodes * aside for point in line], [point.intervals[metric] for point in line]
    axes.vlines(x, [value.low for value in values], [value.high for value in values], color=look["color"], linewidth=1)
    axes.plot(x, [value.value for value in values], **look)


def _control(axes: Axes, block: Block) -> None:
    """A line at speedup 1, and the A/A interval around it, which does not stretch the axis."""
    axes.axhline(1, color=style.GREY, linewidth=1, zorder=0.6)
    limits, against = axes.get_ylim(), control.itself(block)
    if against is not None:
        axes.axhspan(against.low, against.high, color=style.GREY, alpha=0.25, linewidth=0, zorder=0.5)
    axes.set_ylim(limits)


def _looks(found: Found) -> Looks:
    """Colour, marker and line of every label: the method's own for the first of its labels."""
    methods = {point.label: point.method for _, mine in found for point in mine if point.method != AUTOREGRESSIVE}
    rest = product(_OTHERS, range(len(style.COLOURS)))
    taken, looks = set[str](), dict[str, dict[str, Any]]()
    for label, method in methods.items():
        if method in _LINES and method not in taken:
            colour, marker, line = _LINES[method]
        else:
            (marker, line), colour = next(rest, (_OTHERS[0], 0))
        taken.add(method)
        looks[label] = {"color": style.COLOURS[colour], "marker": marker, "linestyle": line}
    return looks


def _legend(canvas: Canvas, looks: Looks, controlled: bool) -> None:
    handles: list[Any] = [Line2D([], [], label=label, **look) for label, look in looks.items()]
    if controlled:
        words = "autoregressive against itself (A/A, 95%)"
        handles.append(Patch(facecolor=style.GREY, alpha=0.35, linewidth=0, label=words))
    across = max(2, min(6, int(canvas.get_figwidth() / 1.9)))
    canvas.legend(handles=handles, loc="outside lower center", ncols=across, handlelength=3.2)
