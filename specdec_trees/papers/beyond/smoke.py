"""The smoke run: methods on the embedded pair and prompts, in one table and two figures."""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes

from specdec_trees.artifacts import frame, notes, style
from specdec_trees.artifacts.expected_actual import expected_actual
from specdec_trees.artifacts.metrics import EXPECTED, MAL
from specdec_trees.artifacts.outputs import Output
from specdec_trees.papers.beyond.by_speedup import by_speedup
from specdec_trees.results.store import Results

EXPECTED_ACTUAL = "Expected against actual acceptance length, number of decoding steps"
BARS = "Mean acceptance length by method"


def smoke(name: str, results: Results) -> list[Output]:
    """The table of methods, MAL by method, and E(A) against A."""
    methods = by_speedup(name, "Tree methods", results)
    bars = mal_by_method(f"{name}_mal", results)
    return [methods, bars, *expected_actual(f"{name}_expected_actual", EXPECTED_ACTUAL, results)]


@style.styled
def mal_by_method(name: str, results: Results) -> style.Figure:
    """One panel per block; methods in ascending order of MAL."""
    runs = frame.finished(results)
    long = frame.measure(runs, (MAL, EXPECTED))
    words, panels = notes.setting(runs), [rows for _, rows in long.groupby("block", sort=False)]
    most = max(len(rows) // 2 for rows in panels)
    canvas, axes = style.panels(BARS, words, len(panels), panel=(7.0, 1.2 + 0.32 * most))
    for axis, rows in zip(axes, panels, strict=True):
        _bars(axis, rows, most)
    return style.Figure(name, f"{BARS} ({words})", canvas, tuple(dict.fromkeys(long["run_id"])))


def _bars(axes: Axes, rows: pd.DataFrame, most: int) -> None:
    """MAL with its interval, E(A) beside it."""
    mal = rows[rows["metric"].isin([MAL]) & rows["interval"].notna()].sort_values("value", kind="stable")
    expected = rows[rows["metric"].isin([EXPECTED])].set_index("run_id").loc[mal["run_id"], "value"].astype(float)
    places, values = range(len(mal)), mal["value"].tolist()
    reach = [[abs(one.value - one.ends[end]) for one in mal["interval"]] for end in (0, 1)]
    axes.barh(places, values, height=0.62, color=style.COLOURS[5], label="MAL (95% interval)")
    axes.errorbar(values, places, xerr=reach, fmt="none", ecolor="black", elinewidth=1.1, capsize=3)
    for place, value in enumerate(values):
        axes.annotate(f"{value:.2f}", (0, place), xytext=(4, 0), textcoords="offset points", va="center", fontsize=8)
    words = "E(A), where edges are probabilities"
    axes.plot(expected, places, linestyle="none", marker="D", color=style.COLOURS[1], label=words)
    axes.set_yticks(places, mal["name"])
    axes.set(title=rows["variant"].iloc[0], xlabel="new tokens per decoding step")
    axes.set(xlim=(0, None), ylim=(-0.6, most - 0.4))
    axes.grid(axis="y", visible=False)
    style.legend_below(axes)
