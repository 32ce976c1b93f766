"""The time of one forward against the number of tokens fed: OPT-Tree's Figure 3, Sequoia's Figure 4."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from specdec_trees.artifacts import style, tables
from specdec_trees.artifacts.outputs import NoResultsError, Output
from specdec_trees.artifacts.tables import Table
from specdec_trees.results.store import Results

HEADERS = {
    "pair": "Pair",
    "role": "Role",
    "model_id": "Model",
    "device_name": "Device",
    "num_prefix": "Prefix",
    "num_tokens": "Tokens",
    "median": "Median ms",
    "quartiles": "Quartiles ms",
}
LEGEND = {"num_tokens": "tokens fed in one forward", "num_prefix": "tokens already in the cache"}
_LINE = ["pair", "role", "model_id", "device_name", "dtype", "num_prefix"]


def forward_time(name: str, results: Results, title: str, *, flat: tuple[float, float] | None = None) -> list[Output]:
    """One panel per pair, one line per model and device: median and quartiles; `flat` is the paper's flat span."""
    times = results.latency
    if times.empty:
        raise NoResultsError("no forward times were measured")
    summary = _summary(times)
    setting = "; ".join(" / ".join(times[column].unique()) for column in ("pair", "device_name", "dtype"))
    panels = [(str(pair), rows, flat) for pair, rows in summary.groupby("pair", sort=False)]
    aside = "; median, quartiles shaded"
    figure = style.drawn(name, title, setting, _panel, panels, times["run_id"].unique(), aside=aside)
    notes: tuple[str, ...] = ()
    if flat:
        notes = (f"The paper's text: lengths {flat[0]:g} and {flat[1]:g} take similar time (LLaMA-2-7B, RTX 4090).",)
    return [figure, _table(name, figure.title, summary, notes)]


def _summary(times: pd.DataFrame) -> pd.DataFrame:
    """Quartiles in milliseconds, and the run, of each line and input length."""
    grouped = times.assign(ms=times["forward_s"] * 1000).groupby([*_LINE, "num_tokens"], sort=False)
    quartiles = grouped["ms"].quantile(np.array([0.25, 0.5, 0.75])).unstack()
    quartiles.columns = pd.Index(["low", "median", "high"])
    rows = quartiles.join(grouped["run_id"].first()).reset_index()
    order = [*_LINE, "num_tokens"]
    return rows.sort_values(order, ascending=[column != "role" for column in order])  # the target first


def _panel(axes: Axes, pair: str, rows: pd.DataFrame, flat: tuple[float, float] | None) -> None:
    lines = rows.groupby(_LINE, sort=False)
    for index, (_, points) in enumerate(lines):
        look, label = style.look(index), _label(points.iloc[0], len(lines) > 2)
        axes.plot(points["num_tokens"], points["median"], label=label, **look)
        reach = (points["num_tokens"], points["low"], points["high"])
        axes.fill_between(*reach, color=look["color"], alpha=0.2, linewidth=0)
    axes.set(title=pair, xlabel="input length (tokens)", ylabel="time of one forward (ms)", ylim=(0, None))
    style.powers_of_two(axes, rows["num_tokens"])
    if flat:
        words = f"paper: flat from {flat[0]:g} to {flat[1]:g}"
        axes.axvspan(*flat, color=style.GREY, alpha=0.1, linewidth=0, label=words)
    style.legend_below(axes)


def _label(line: pd.Series, long: bool) -> str:
    model = str(line["model_id"])
    model = model.rsplit("/", 1)[-1] if model.startswith("/") else model
    words = f"{line['role']}: {model}, prefix {line['num_prefix']}"
    return f"{words}, {line['device_name']}, {line['dtype']}" if long else words


def _table(name: str, title: str, summary: pd.DataFrame, notes: tuple[str, ...]) -> Table:
    rows = [
        {
            **{column: str(getattr(row, column)) for column in (*_LINE[:4], "num_prefix", "num_tokens")},
            "median": tables.number(row.median),
            "quartiles": f"[{tables.number(row.low)}, {tables.number(row.high)}]",
        }
        for row in tables.named_rows(summary)
    ]
    return Table(name, title, tables.frame(rows, HEADERS), notes, LEGEND, tuple(summary["run_id"]), HEADERS)
