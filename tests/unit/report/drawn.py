"""What a figure of Sequoia's has drawn, read back from its axes."""

from __future__ import annotations

from collections.abc import Callable

import pandas as pd
from matplotlib.axes import Axes

from bench.report.artifacts import ARTIFACTS
from bench.report.figures.style import Figure
from bench.report.tables import Table
from bench.stats import Interval, mal_interval


def build(name: str, cells) -> tuple[list[Axes], Table]:
    figure, table, *_ = ARTIFACTS[f"sequoia/{name}"].build(cells.load())
    assert isinstance(figure, Figure)
    assert isinstance(table, Table)
    return figure.canvas.axes, table


def lines(axes: Axes, **look: object) -> list[list[tuple[float, float]]]:
    """The points of every line with this look, those of legend entries left out."""
    found = [line for line in axes.lines if len(line.get_xdata())]
    for name, value in look.items():
        found = [line for line in found if getattr(line, f"get_{name}")() == value]
    return [list(zip(line.get_xdata(), line.get_ydata(), strict=True)) for line in found]


def labels(axes: Axes) -> list[str]:
    return [text.get_text() for text in axes.get_legend().get_texts()]


def value(cells, run_id: str, statistic: Callable[[pd.DataFrame], Interval]) -> float:
    table = "steps" if statistic is mal_interval else "prompts"
    frame = getattr(cells.load(), table)
    return statistic(frame[frame["run_id"] == run_id]).value


def row_of(table: Table, run_id: str) -> pd.Series:
    return table.frame.iloc[table.runs.index(run_id)]
