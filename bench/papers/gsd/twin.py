"""Two quantities over what a sweep varies: one on the left axis, the other on the right."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes

from bench.artifacts import style
from bench.artifacts.blocks import Block
from bench.artifacts.runs import Run
from bench.artifacts.series import Series
from bench.statistics.intervals import Interval

_LOOKS: tuple[dict[str, Any], ...] = (
    {"color": style.COLOURS[0]},
    {"color": style.COLOURS[1], "linestyle": "--", "markerfacecolor": "white"},
)


@dataclass(frozen=True, slots=True)
class Quantity:
    """What is drawn of every run."""

    name: str
    of: Callable[[Block, Run], Interval]


def twin(axes: Axes, block: Block, lines: Sequence[Series], left: Quantity, right: Quantity) -> Axes:
    """Draw the lines twice and return the right axis.

    Left: first colour, solid, filled markers; right: second colour, dashed, open markers; lines differ in their
    markers. The legend below the panel names them all.
    """
    other = axes.twinx()
    other.grid(visible=False)
    other.spines["right"].set_visible(True)
    for index, line in enumerate(lines):
        for side, quantity, look in zip((axes, other), (left, right), _LOOKS, strict=True):
            values = [quantity.of(block, run) for run in line.runs]
            style.band(side, line.x, values, index, **look)
            axes.plot([], [], marker=style.MARKERS[index % len(style.MARKERS)], **look)  # stands in the legend
            axes.lines[-1].set_label(f"{quantity.name} ({'left' if side is axes else 'right'}), {line.label}")
    for side, quantity, look in zip((axes, other), (left, right), _LOOKS, strict=True):
        side.set_ylabel(f"{quantity.name} (95% interval)", color=look["color"])
    return other
