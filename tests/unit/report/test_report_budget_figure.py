"""The figure at equal budget: what is drawn where, and that methods can be told apart."""

import pytest
from budget_fills import SIZED, add, built, fill, lines
from matplotlib.colors import to_hex
from matplotlib.patches import Polygon, Rectangle

from bench.artifacts import frame, noise, ties
from bench.artifacts.style import METHODS
from bench.artifacts.tables import ABSENT

pytestmark = pytest.mark.long


@pytest.fixture
def budget_cells(cells):
    fill(cells)
    return cells


def test_variants_of_a_method_are_lines_of_their_own(cells) -> None:
    cells.experiment = "bench/budget"
    for n in (8, 32):
        for delta in (0.2, 0.7):
            cells.add("sized_opt_tree", "opt_tree", params={"n": n, "delta": delta}, size=n)
    figure, table = built(cells)
    assert list(table.frame["label"]) == 2 * ["OPT-Tree, delta=0.2", "OPT-Tree, delta=0.7"]
    looks = [(line.get_color(), line.get_marker(), line.get_linestyle()) for line in lines(figure.canvas.axes[0])]
    assert len(set(looks)) == 2


def test_a_method_alone_is_drawn_at_its_measured_nodes(cells) -> None:
    cells.experiment = "bench/budget"
    add(cells, "gsd", 32, size=20)
    (line,) = lines(built(cells)[0].canvas.axes[0])
    assert line.get_xdata() == pytest.approx([20])


def test_methods_are_told_apart_without_colour(budget_cells) -> None:
    figure, _ = built(budget_cells)
    drawn = lines(figure.canvas.axes[0])
    assert len({line.get_marker() for line in drawn}) == len(SIZED)
    assert len({(to_hex(line.get_color()), line.get_linestyle()) for line in drawn}) == len(SIZED)
    assert set(SIZED) <= set(METHODS)
    (legend,) = figure.canvas.legends
    assert len(legend.get_texts()) == len(SIZED) + 1
    assert not any(axis.get_legend() for axis in figure.canvas.axes)


def test_the_control_is_a_band_around_one(budget_cells) -> None:
    figure, table = built(budget_cells)
    row = table.frame[(table.frame["words"] == ABSENT)].iloc[0]
    low, high = (float(part) for part in row["speedup"].partition("[")[2].rstrip("]").split(", "))
    bands = [patch for patch in figure.canvas.axes[4].patches if isinstance(patch, Rectangle | Polygon)]
    (band,) = bands
    box = band.get_extents().transformed(figure.canvas.axes[4].transData.inverted())
    assert (box.y0, box.y1) == pytest.approx((low, high), abs=0.006)
    assert not figure.canvas.axes[0].patches


def noisy_pair(cells) -> None:
    """A pair whose equal work lies far apart in one of two settings, and one on which it does not."""
    cells.experiment = "bench/budget"
    for pair, dataset, factor in (("tiny", "c4", 2.5), ("tiny", "mt_bench", 1), ("other", "c4", 1)):
        place = {"pair": pair, "dataset": dataset, "conversations": 8}
        cells.add("autoregressive", mal=1.0, speedup=1.0, **place)
        for number, method in enumerate(("chain", "binary", "opt_tree")):
            for n in (8, 32):
                step_s = 0.004 * factor ** (number + (n == 32))
                add(cells, method, n, mal=2.0, speedup=1.2 + number, base_step_s=step_s, **place)


def test_times_of_a_pair_that_are_too_noisy_rank_nothing_anywhere(cells) -> None:
    """Not in its calm setting, not at one of its budgets: text, marks, points and band are of one decision."""
    noisy_pair(cells)
    figure, table = built(cells)
    rows = table.frame[
        table.frame["label"].isin(["chain", "binary tree", "OPT-Tree"]) | (table.frame["mean_size"] != "0.0")
    ]
    quiet = rows["place"].str.startswith("other")
    assert rows.loc[~quiet, "speedup"].str.endswith(ties.UNRANKED).all()
    assert not rows["speedup"][quiet].str.endswith(ties.UNRANKED).any()
    assert rows["speedup"][quiet].str.endswith(ties.BEST).any()
    assert not rows["mal"].str.endswith(ties.UNRANKED).any()
    assert "tiny" in table.warning
    assert "other" not in table.warning
    titles = {axis.get_title(): place for place, axis in enumerate(figure.canvas.axes) if axis.get_title()}
    columns = len(titles)
    for title, place in titles.items():
        above, below = figure.canvas.axes[place], figure.canvas.axes[place + columns]
        assert {line.get_markerfacecolor() == "none" for line in lines(above)} == {False}
        assert {line.get_markerfacecolor() == "none" for line in lines(below)} == {title.startswith("tiny")}
        bands = [patch for patch in below.patches if isinstance(patch, Rectangle | Polygon)]
        assert len(bands) == (not title.startswith("tiny"))


def test_the_decision_is_of_pair_and_machine(cells) -> None:
    noisy_pair(cells)
    runs = frame.load(cells.load())
    assert (noise.unranked(runs) == (runs["pair"] == "tiny")).all()
    assert not noise.unranked(runs[runs["pair"] == "other"]).any()
    assert noise.unranked(runs[:0]).empty
