"""What a figure of Sequoia's has drawn, read back from its axes."""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes

from bench.artifacts.style import Figure
from bench.artifacts.tables import Table
from bench.papers.registry import ARTIFACTS


def build(name: str, cells) -> tuple[list[Axes], Table]:
    figure, table, *_ = ARTIFACTS[f"sequoia/{name}"].build(name, cells.load())
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


def mal_of(cells, run_id: str) -> float:
    steps = cells.load().steps
    return float(steps.loc[steps["run_id"] == run_id, "acceptance_length"].mean())


def speedup_of(cells, run_id: str) -> float:
    """Of a run both of whose arms ended well in every turn: seconds per decoded token, plain / with the method."""
    prompts = cells.load().prompts
    own = prompts[prompts["run_id"] == run_id]
    assert (own["status"] == "ok").all()
    sums = own.groupby("arm")[["decode_s", "num_decoded_tokens"]].sum()
    seconds = sums["decode_s"] / sums["num_decoded_tokens"]
    return float(seconds["autoregressive"] / seconds["method"])


def row_of(table: Table, run_id: str) -> pd.Series:
    return table.frame.iloc[table.runs.index(run_id)]
