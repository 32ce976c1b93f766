"""OPT-Tree, Figure 5: expected acceptance length E(A) against the actual one, as a count map."""

from __future__ import annotations

import math

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.ticker import MaxNLocator

from bench.artifacts import definitions, style, tables
from bench.artifacts.blocks import Block, measured_blocks
from bench.artifacts.outputs import NoResultsError, Output
from bench.artifacts.runs import Run
from bench.artifacts.tables import Table
from bench.artifacts.wording import scale, setting, without_expected
from bench.results.store import Results
from bench.statistics import metrics

TITLE = "OPT-Tree Figure 5: expected against actual acceptance length, number of decoding steps"
_TICKS = [digit * 10**power for power in range(6) for digit in (1, 3)]
COLUMNS = ("Pair", "Drafter", "Steps", "E(A)", "MAL", "E(A) - MAL", "correlation")


@style.styled
def expected_actual(name: str, results: Results, title: str = TITLE) -> list[Output]:
    """One panel per run that drafted anything with probabilities, and a table of means and correlations."""
    found = measured_blocks(results)
    drafting = [(block, run) for block in found for run in block.ok if _drafts(block, run)]
    runs = [(block, run) for block, run in drafting if not math.isnan(run.expected.value)]
    if not runs:
        raise NoResultsError("no run drafted a token with a probability")
    words = setting(found)
    canvas, axes = style.panels(
        title, words + "; dashed: E(A) = A", len(runs), columns=3 if len(runs) > 4 else 2, panel=(4.3, 3.9)
    )
    for axis, (block, run) in zip(axes, runs, strict=True):
        _panel(axis, block, run)
    ids = tuple(run.run_id for _, run in runs)
    frame = tables.frame([_row(block, run) for block, run in runs], COLUMNS)
    legend = {
        "E(A)": definitions.EXPECTED,
        "MAL": definitions.MAL,
        "correlation": "Pearson's, of E(A) and A over steps",
    }
    absent = [run.drafter for _, run in drafting if run.run_id not in ids]
    notes = (*map(scale, found), *[without_expected(absent)] * bool(absent))
    table = Table(name, f"{title} ({words})", frame, notes, legend, ids)
    return [style.Figure(name, f"{title} ({words})", canvas, ids), table]


def _drafts(block: Block, run: Run) -> bool:
    return bool((run.steps["num_drafted"] > 0).any())


def _panel(axes: Axes, block: Block, run: Run) -> None:
    steps = run.steps
    counts = metrics.expected_vs_actual(steps)
    x, y = (np.append(index, index[-1] + 1) - 0.5 for index in (counts.columns.to_numpy(), counts.index.to_numpy()))
    shown = np.ma.masked_equal(counts.to_numpy(), 0)
    mesh = axes.pcolormesh(x, y, shown, cmap="Blues", norm=LogNorm(0.7, max(shown.max(), 2)), rasterized=True)
    longest = max(x[-1], y[-1])
    axes.plot([0.5, longest], [0.5, longest], color=style.COLOURS[1], linestyle="--", linewidth=1)
    axes.set(xlim=(0.5, longest), ylim=(0.5, longest), aspect="equal", xlabel="E(A), rounded", ylabel="A")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    fit = metrics.calibration(steps)
    axes.set_title(f"{block.name}, {run.drafter}\nE(A) - MAL = {fit.gap:+.2f}, r = {tables.number(fit.correlation)}")
    ticks = [tick for tick in _TICKS if tick <= shown.max()]
    bar = axes.figure.colorbar(mesh, ax=axes, label="decoding steps", shrink=0.85, ticks=ticks, format="%d")
    bar.minorticks_off()


def _row(block: Block, run: Run) -> dict[str, str]:
    steps = run.steps
    fit = metrics.calibration(steps)
    return {
        "Pair": block.name,
        "Drafter": run.drafter,
        "Steps": str(len(steps)),
        "E(A)": tables.interval(run.expected),
        "MAL": tables.interval(run.mal),
        "E(A) - MAL": tables.number(fit.gap),
        "correlation": tables.number(fit.correlation),
    }
