"""Where drafted tokens are accepted, by depth and by rank among siblings: a map for each run, and its depths."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import PowerNorm
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from specdec_trees.artifacts import draw, frame, notes
from specdec_trees.artifacts.metrics import Metric
from specdec_trees.artifacts.outputs import NoResultsError, Output
from specdec_trees.artifacts.table import table
from specdec_trees.artifacts.tables import named_rows
from specdec_trees.results.store import Results
from specdec_trees.statistics import intervals, positions

COLUMNS = 8
"""Of a map: a rank each, the last one with all later ranks together."""
DARK = 0.4
"""Shares above it are written in white."""
HEADERS = {"depth": "Depth"}
MEANS = {"depth": "edges from the root; its children have depth 1"}


def _of_rank(least: int, most: float) -> Callable[[Any], intervals.Interval | None]:
    """The share of a level's accepted tokens whose rank lies between these; None where the run accepted none such."""

    def share(row: Any) -> intervals.Interval | None:
        level = row.level[row.level["accepted"]]
        return _share(level, level["rank"].between(least, most)) if row.counts.shape[1] > least else None

    return share


def _share(level: pd.DataFrame, counted: pd.Series) -> intervals.Interval:
    return intervals.ratio_of_sums(level.assign(counted=counted.astype(float)), "counted", scale="logit")


METRICS = (
    Metric(
        "joint",
        "accepted",
        "share of the steps with a draft that accepted a token of this depth; in brackets the 95% interval "
        f"({intervals.METHOD} over conversations)",
        lambda row: _share(row.level, row.level["accepted"]),
    ),
    Metric(
        "conditional",
        "given the depth before",
        "the same among the steps that accepted a token of the depth before",
        lambda row: _share(row.level[row.level["parent_accepted"]], row.level["accepted"]),
    ),
    Metric("first", "first child", "share of these tokens that were their parent's first child", _of_rank(0, 0)),
    Metric("second", "second child", "share that were the second one", _of_rank(1, 1)),
    Metric("later", "later children", "share of all other ranks", _of_rank(2, np.inf)),
)


def depth_rank(name: str, results: Results) -> list[Output]:
    """A map for every run whose steps know their ranks, and a table of their depths; NoResultsError without any."""
    loaded = frame.finished(results)
    runs = draw.drafting(loaded)
    runs = frame.put(runs, counts=[positions.accepted_by_rank(steps) for steps in runs["steps"]])
    runs = runs[[counts is not None and counts.size > 0 for counts in runs["counts"]]]
    if runs.empty:
        raise NoResultsError("no run accepted a token whose rank it knows")
    title = "Share of decoding steps that accept a token, by its depth and its rank among its siblings"
    figure = draw.per_run(name, (title, notes.setting(runs)), _map, runs, 3, panel=(4.6, 3.6))
    long = frame.measure(pd.DataFrame([row for run in named_rows(runs) for row in _levels(run)]), METRICS)
    below = draw.below(loaded, runs, timed=False)
    rows = (*draw.RUN_ROWS, "depth")
    return [figure, table(name, figure.title, long, rows, METRICS, notes=below, headers=HEADERS, means=MEANS)]


def if_known(name: str, results: Results) -> list[Output]:
    """The same; nothing where no run knows ranks."""
    try:
        return depth_rank(name, results)
    except NoResultsError:
        return []


def _levels(run: Any) -> Iterator[dict[str, Any]]:
    """The run once for each depth that it accepted, with a `level`: a row for each step with a draft."""
    steps = positions.drafting(run.steps)
    for depth in range(1, len(run.counts) + 1):
        accepted = steps["num_accepted"] >= depth
        ranks = [path[depth - 1] if len(path) >= depth else np.nan for path in steps["accepted_ranks"]]
        level = steps[["prompt_id"]].assign(
            accepted=accepted, parent_accepted=steps["num_accepted"] >= depth - 1, rank=ranks
        )
        yield run._asdict() | {"depth": f"{depth}", "level": level}


def in_columns(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Counts by depth and rank in the columns of a map: what is there sums to the same."""
    wide = np.zeros((len(counts), max(COLUMNS, counts.shape[1])), dtype=counts.dtype)
    wide[:, : counts.shape[1]] = counts
    return np.column_stack([wide[:, : COLUMNS - 1], wide[:, COLUMNS - 1 :].sum(axis=1)])


def _map(axes: Axes, run: Any) -> None:
    """Shares as a heat map, the root's children on top; what was never accepted is blank."""
    shares = in_columns(run.counts) / len(positions.drafting(run.steps))
    edges = np.arange(COLUMNS + 1) - 0.5, np.arange(len(shares) + 1) + 0.5
    norm = PowerNorm(0.5, vmin=0, vmax=1)  # rare ranks are seen beside the first
    mesh = axes.pcolormesh(*edges, np.ma.masked_equal(shares, 0), cmap="Blues", norm=norm, rasterized=True)
    for depth, column in np.argwhere(shares):
        share = shares[depth, column]
        words = f"{100 * share:.0f}" if share >= 0.01 else "<1"
        colour = "white" if share > DARK else "black"
        axes.text(column, depth + 1, words, ha="center", va="center", fontsize=8, color=colour)
    axes.grid(visible=False)
    axes.set(xlim=edges[0][[0, -1]], ylim=edges[1][[-1, 0]], xlabel="rank among siblings, from 0", ylabel="depth")
    axes.set_xticks(range(COLUMNS), [*map(str, range(COLUMNS - 1)), f"{COLUMNS - 1}+"])
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_title(f"{run.setting}, {run.name}")
    axes.figure.colorbar(mesh, ax=axes, label="share of decoding steps, %", format=lambda value, _: f"{100 * value:g}")
