"""What artifacts have made of synthetic cells: outputs by kind, columns of long frames, and points of axes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.axes import Axes

from specdec_trees.artifacts.outputs import Output
from specdec_trees.artifacts.style import Figure
from specdec_trees.artifacts.tables import Table
from specdec_trees.papers.registry import ARTIFACTS


def outputs(name: str, cells) -> list[Output]:
    return ARTIFACTS[name].build(Path(name).name, cells.load())


def table_of(name: str, cells) -> Table:
    """The first table of an artifact."""
    return next(output for output in outputs(name, cells) if isinstance(output, Table))


def axes_of(name: str, cells) -> list[Axes]:
    """The panels of its figure."""
    return next(output for output in outputs(name, cells) if isinstance(output, Figure)).canvas.axes


def build(name: str, cells) -> tuple[list[Axes], Table]:
    return axes_of(name, cells), table_of(name, cells)


def column(made: Table, key: str, name: str = "value", who: str = "label", **where: object) -> dict[str, Any]:
    """Of a metric in the long frame by `who`: the value, the published number, the verdict; of rows that have this."""
    assert made.long is not None
    rows = made.long[made.long["metric"].map(lambda metric: metric.key) == key]
    for other, wanted in where.items():
        rows = rows[rows[other] == wanted]
    return dict(zip(rows[who], rows[name], strict=True))


def verdicts(made: Table, key: str, **where: object) -> dict[str, str]:
    return {label: str(words) for label, words in column(made, key, "verdict", **where).items()}


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
