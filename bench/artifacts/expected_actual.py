"""Expected acceptance length E(A) against the actual one, as a count map: OPT-Tree's Figure 5, and the smoke run's."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.ticker import MaxNLocator

from bench.artifacts import definitions, style, tables
from bench.artifacts.blocks import Block
from bench.artifacts.metric import MAL, Metric, cells, legend
from bench.artifacts.run_figure import RunFigure
from bench.artifacts.runs import Run
from bench.artifacts.wording import without_expected
from bench.statistics import metrics

_TICKS = [digit * 10**power for power in range(6) for digit in (1, 3)]
_COLUMNS = (
    Metric("Steps", lambda run: str(len(run.steps))),
    Metric("E(A)", lambda run: run.expected, definitions.EXPECTED),
    MAL,
    Metric("E(A) - MAL", lambda run: metrics.calibration(run.steps).gap),
    Metric(
        "correlation", lambda run: metrics.calibration(run.steps).correlation, "Pearson's, of E(A) and A over steps"
    ),
)


def expected_actual(title: str) -> RunFigure:
    """A panel for every run that drafted anything with probabilities; means and correlations in the table."""
    return RunFigure(
        title,
        lambda run: _drafts(run) and not math.isnan(run.expected.value),
        "no run drafted a token with a probability",
        _draw,
        lambda run: [cells(_COLUMNS, run)],
        legend(_COLUMNS),
        _left_out,
        aside="; dashed: E(A) = A",
        panel=(4.3, 3.9),
        across=3,
    )


def _drafts(run: Run) -> bool:
    return bool((run.steps["num_drafted"] > 0).any())


def _left_out(found: Sequence[Block]) -> Iterator[str]:
    drafting = [run for block in found for run in block.ok if _drafts(run)]
    if absent := [run.drafter for run in drafting if math.isnan(run.expected.value)]:
        yield without_expected(absent)


def _draw(axes: Axes, run: Run) -> None:
    counts = metrics.expected_vs_actual(run.steps)
    x, y = (np.append(index, index[-1] + 1) - 0.5 for index in (counts.columns.to_numpy(), counts.index.to_numpy()))
    shown = np.ma.masked_equal(counts.to_numpy(), 0)
    mesh = axes.pcolormesh(x, y, shown, cmap="Blues", norm=LogNorm(0.7, max(shown.max(), 2)), rasterized=True)
    longest = max(x[-1], y[-1])
    axes.plot([0.5, longest], [0.5, longest], color=style.COLOURS[1], linestyle="--", linewidth=1)
    axes.set(xlim=(0.5, longest), ylim=(0.5, longest), aspect="equal", xlabel="E(A), rounded", ylabel="A")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    fit = metrics.calibration(run.steps)
    words = f"E(A) - MAL = {fit.gap:+.2f}, r = {tables.number(fit.correlation)}"
    axes.set_title(f"{run.block.name}, {run.drafter}\n{words}")
    ticks = [tick for tick in _TICKS if tick <= shown.max()]
    bar = axes.figure.colorbar(mesh, ax=axes, label="decoding steps", shrink=0.85, ticks=ticks, format="%d")
    bar.minorticks_off()
