"""Expected acceptance length against the actual one, as a count map: OPT-Tree's Figure 5, and the smoke run's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.ticker import MaxNLocator

from specdec_trees.artifacts import draw, frame, notes, style, tables
from specdec_trees.artifacts.metrics import CORRELATION, EXPECTED, GAP, MAL, STEPS
from specdec_trees.artifacts.outputs import NoResultsError, Output
from specdec_trees.artifacts.table import table
from specdec_trees.results.store import Results
from specdec_trees.statistics import metrics

_TICKS = [digit * 10**power for power in range(6) for digit in (1, 3)]
_METRICS = (STEPS, EXPECTED, MAL, GAP, CORRELATION)


def expected_actual(name: str, title: str, results: Results) -> list[Output]:
    """A panel for every run that drafted anything with probabilities."""
    loaded = frame.finished(results)
    runs = loaded[loaded["steps"].map(lambda steps: bool((steps["num_drafted"] > 0).any())).astype(bool)]
    known = runs["steps"].map(metrics.expected_acceptance).notna()
    if not known.any():
        raise NoResultsError("no run drafted a token with a probability")
    shown = runs[known]
    aside = "; dashed: E(A) = A"
    figure = draw.per_run(name, (title, notes.setting(loaded)), _count_map, shown, 3, aside=aside, panel=(4.3, 3.9))
    long = frame.measure(shown, _METRICS)
    below = draw.below(loaded, shown, _left_out(runs[~known]), timed=False)
    return [figure, table(name, figure.title, long, draw.RUN_ROWS, _METRICS, notes=below)]


def _left_out(runs: pd.DataFrame) -> Iterator[str]:
    if len(runs):
        yield f"Left out, since drafters without probabilities have no E(A): {', '.join(runs['name'].unique())}."


def _count_map(axes: Axes, run: Any) -> None:
    counts = metrics.expected_vs_actual(run.steps)
    x, y = (np.append(index, index[-1] + 1) - 0.5 for index in (counts.columns.to_numpy(), counts.index.to_numpy()))
    shown = np.ma.masked_equal(counts.to_numpy(), 0)
    mesh = axes.pcolormesh(x, y, shown, cmap="Blues", norm=LogNorm(0.7, max(shown.max(), 2)), rasterized=True)
    longest = max(x[-1], y[-1])
    axes.axline((0.5, 0.5), slope=1, color=style.COLOURS[1], linestyle="--", linewidth=1)
    axes.set(xlim=(0.5, longest), ylim=(0.5, longest), aspect="equal", xlabel="E(A), rounded", ylabel="A")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    fit = metrics.calibration(run.steps)
    words = f"E(A) - MAL = {fit.gap:+.2f}, r = {tables.number(fit.correlation)}"
    axes.set_title(f"{run.setting}, {run.name}\n{words}")
    bar = axes.figure.colorbar(mesh, ax=axes, label="decoding steps", shrink=0.85, ticks=_TICKS, format="%d")
    bar.minorticks_off()
