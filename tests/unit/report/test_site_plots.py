"""Which figures show nothing."""

import math

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas

from specdec_trees.artifacts.style import Figure
from specdec_trees.report.site.views import empty

HIDDEN = np.ma.masked_all((4, 4))


def figure(draw, panels: int = 1) -> Figure:
    """`draw` draws into the last of the panels; the others stay as they are."""
    canvas = Canvas()
    axes = [canvas.add_subplot(1, panels, place + 1) for place in range(panels)]
    draw(axes[-1])
    return Figure("f", "F", canvas, ())


def with_words(axes: Axes) -> None:
    axes.set(title="T", xlabel="x", ylabel="y", xlim=(0, 9))
    axes.text(0.5, 0.5, "no data")
    axes.plot([], [], label="nothing")
    axes.legend()


NOTHING = {
    "no artist": lambda axes: None,
    "words and an empty line": with_words,
    "a line of nan": lambda axes: axes.plot([1, 2], [math.nan, math.nan]),
    "rules across the panel": lambda axes: (axes.axhline(1), axes.axvspan(0, 1)),
    "no bars": lambda axes: axes.bar([], []),
    "bars of nan": lambda axes: axes.bar([1], [math.nan]),
    "no marks": lambda axes: axes.scatter([], []),
    "marks of nan": lambda axes: axes.scatter([1], [math.nan]),
    "intervals of nan": lambda axes: axes.vlines([1], [math.nan], [math.nan]),
    "a masked image": lambda axes: axes.imshow(HIDDEN),
    "a masked mesh": lambda axes: axes.pcolormesh(HIDDEN),
}
SOMETHING = {
    "a line with a gap": lambda axes: axes.plot([1, 2], [math.nan, 3]),
    "a bar of height zero": lambda axes: axes.bar([1], [0]),
    "a mark": lambda axes: axes.scatter([1], [1]),
    "an interval": lambda axes: axes.vlines([1], [0], [2]),
    "a band": lambda axes: axes.fill_between([1, 2], [0, 0], [1, 1]),
    "an image": lambda axes: axes.imshow(np.zeros((3, 3))),
    "an image in colours": lambda axes: axes.imshow(np.zeros((3, 3, 3))),
    "a mesh": lambda axes: axes.pcolormesh(np.eye(3)),
    "a pie": lambda axes: axes.pie([1, 2]),
}


@pytest.mark.parametrize("draw", NOTHING.values(), ids=NOTHING)
def test_a_figure_without_data_is_empty(draw) -> None:
    assert empty(figure(draw))


@pytest.mark.parametrize("draw", SOMETHING.values(), ids=SOMETHING)
def test_a_figure_with_data_is_not_empty(draw) -> None:
    assert not empty(figure(draw))


def test_data_in_one_panel_of_several_is_enough() -> None:
    assert not empty(figure(SOMETHING["a mark"], panels=3))


def test_a_figure_without_panels_is_empty() -> None:
    assert empty(Figure("f", "F", Canvas(), ()))
