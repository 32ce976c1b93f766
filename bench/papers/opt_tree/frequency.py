"""OPT-Tree, Figure 11: how often a drafted node is accepted, by its draft probability."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from bench.artifacts import style, tables
from bench.artifacts.blocks import Block, measured_blocks
from bench.artifacts.outputs import NoResultsError, Output
from bench.artifacts.runs import Run
from bench.artifacts.tables import Table
from bench.artifacts.wording import scale, setting
from bench.results.store import Results
from bench.statistics import intervals, metrics
from bench.statistics.intervals import Interval

TITLE = "OPT-Tree Figure 11: acceptance frequency against draft probability"
BINS = 10
COLUMNS = ("Pair", "Drafter", "draft probability", "nodes", "accepted")
LEGEND = {
    "nodes": "drafted nodes whose parent was accepted (the root is)",
    "accepted": "share of them that were accepted; in brackets the 95% interval (bootstrap over conversations)",
}


@style.styled
def acceptance_by_probability(name: str, results: Results) -> list[Output]:
    """One panel per run whose nodes were recorded: frequency with interval per bin, the diagonal, counts as bars."""
    found = measured_blocks(results)
    runs = [(block, run, _bins(block, run)) for block in found for run in block.ok if _drawn(block, run)]
    if not runs:
        raise NoResultsError("no run recorded its nodes with probabilities")
    words = setting(found)
    canvas, axes = style.panels(TITLE, words, len(runs))
    for axis, (block, run, bins) in zip(axes, runs, strict=True):
        _panel(axis, f"{block.name}, {run.drafter}", bins)
    rows = [_row(block, run, row) for block, run, bins in runs for _, row in bins.iterrows()]
    ids = tuple(run.run_id for _, run, bins in runs for _ in range(len(bins)))
    table = Table(name, f"{TITLE} ({words})", tables.frame(rows, COLUMNS), tuple(map(scale, found)), LEGEND, ids)
    return [style.Figure(name, table.title, canvas, ids), table]


def _drawn(block: Block, run: Run) -> bool:
    """Whether there are nodes that the draft gave probabilities."""
    nodes = block.nodes(run["run_id"])
    return bool(len(nodes)) and bool(nodes["edge_prob"].notna().any())


def _bins(block: Block, run: Run) -> pd.DataFrame:
    """The bins of `metrics.acceptance_frequency` with the interval of each."""
    nodes = block.nodes(run["run_id"])
    tested = nodes[nodes["parent_accepted"].astype(bool)].assign(accepted=nodes["accepted"].astype(float))
    index = np.clip((tested["edge_prob"].to_numpy() * BINS).astype(int), 0, BINS - 1)
    reach = [intervals.ratio_of_sums(tested[index == place], "accepted") for place in range(BINS)]
    frame = metrics.acceptance_frequency(nodes, BINS)
    return frame.assign(low=[each.low for each in reach], high=[each.high for each in reach])


def _panel(axes: Axes, title: str, bins: pd.DataFrame) -> None:
    x, y = bins["bin_centre"], bins["frequency"]
    counts = 0.25 * bins["count"] / bins["count"].max()  # of the height
    axes.bar(x, counts, width=0.9 / BINS, color="#DDDDDD", label="number of nodes (above)")
    for place, count in zip(x, bins["count"], strict=True):
        axes.annotate(str(count), (place, 1.03), fontsize=7, color=style.GREY, ha="center", annotation_clip=False)
    axes.plot([0, 1], [0, 1], color=style.GREY, linestyle="--", linewidth=1, label="frequency = probability")
    axes.vlines(x, bins["low"], bins["high"], color=style.COLOURS[0], linewidth=1.4)
    axes.plot(x, y, color=style.COLOURS[0], marker="o", label="accepted (95% interval)")
    axes.set_title(title, pad=15)  # above the counts
    axes.set(xlim=(0, 1), ylim=(0, 1.02), xlabel="draft probability of the node", ylabel="acceptance frequency")
    style.legend_below(axes)


def _row(block: Block, run: Run, row: pd.Series) -> dict[str, str]:
    low = row["bin_centre"] - 0.5 / BINS
    share = Interval(row["frequency"], row["low"], row["high"], int(row["count"]))
    return {
        "Pair": block.name,
        "Drafter": run.drafter,
        "draft probability": f"{low:.1f} to {low + 1 / BINS:.1f}",
        "nodes": str(int(row["count"])),
        "accepted": tables.interval(None if math.isnan(share.value) else share),
    }
