"""DySpec, Figure 2: how draft probability goes with acceptance and with target probability, as two heat maps.

Of every accepted node (the root is one) the first child is looked at: it is drawn from q itself and tested with
probability min(1, p/q), while later siblings face what is left of p.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import PowerNorm
from numpy.typing import NDArray

from bench.artifacts import style, tables
from bench.artifacts.blocks import measured_blocks
from bench.artifacts.outputs import NoResultsError, Output
from bench.artifacts.runs import Run, run_ids
from bench.artifacts.tables import Table
from bench.artifacts.wording import scale, setting
from bench.results.store import Results
from bench.statistics import intervals

RULES = ("without_replacement", "multi_candidate", "multi_candidate_iid", "spec_infer", "eagle1", "chain")
"""The rules that test a first child with probability min(1, p/q)."""
TITLE = "DySpec Figure 2: acceptance and target probability against draft probability, first children"
BINS = 20
LEGEND = {
    "q": "draft probability of a node, at the draft's temperature",
    "nodes": "first children whose parent was accepted (the root is)",
    "acceptance probability": "min(1, p/q), on average",
    "p": "target probability of the node, at the run's temperature, on average",
    "accepted": "share of these nodes that were accepted, which the acceptance probability foretells; in brackets the "
    "95% interval (bootstrap over conversations)",
}


@style.styled
def probabilities(name: str, results: Results) -> list[Output]:
    """Two panels per run whose nodes were recorded, and a table of what each column of them holds."""
    every = [(run, first_children(run)) for block in measured_blocks(results) for run in block.ok]
    runs = [(run, nodes) for run, nodes in every if len(nodes)]
    if not runs:
        raise NoResultsError(
            "no run that samples, with children drawn from the draft and a rule that tests the first of them with "
            f"min(1, p/q) ({', '.join(RULES)}), recorded its nodes and their ranks; "
            "record_nodes=true does, and force=true runs finished cells again"
        )
    words = setting({run.block.name: run.block for run, _ in runs}.values())
    how = "columns sum to 1; nodes above"
    canvas, axes = style.panels(TITLE, f"{words}; {how}", 2 * len(runs), panel=(4.6, 4.4))
    for place, (run, nodes) in enumerate(runs):
        _acceptance(axes[2 * place], _name(run), nodes)
        _target(axes[2 * place + 1], _name(run), nodes)
    rows = [row for run, nodes in runs for row in _bins(run, nodes)]
    ids = run_ids(run for run, _ in runs for _ in range(BINS))
    notes = (*dict.fromkeys(scale(run.block) for run, _ in runs), *(_correlations(*found) for found in runs))
    table = Table(name, f"{TITLE} ({words})", tables.frame(rows, rows[0]), notes, LEGEND, ids)
    return [style.Figure(name, table.title, canvas, ids), table]


def first_children(run: Run) -> pd.DataFrame:
    """The tested first children of a run, with their bin of q and their acceptance probability.

    None where they were not drawn from q, or not tested with min(1, p/q). At temperature 0 a node is accepted or it is
    not, and the rows hold the untempered target's p.
    """
    nodes = run.rows("nodes")
    if nodes.empty or "rank" not in nodes or run["draws"] == "topk" or run["temperature"] == 0:
        return pd.DataFrame()
    if run["verifier"] not in RULES:
        return pd.DataFrame()
    tested = nodes[(nodes["rank"] == 0) & nodes["parent_accepted"].astype(bool) & (nodes["edge_prob"] > 0)]
    chance = np.minimum(1, tested["target_prob"] / tested["edge_prob"])
    return tested.assign(chance=chance, bin=_bin(tested["edge_prob"]), accepted=tested["accepted"].astype(float))


def shares(nodes: pd.DataFrame, column: str) -> NDArray[np.float64]:
    """The share of each bin of `column` (rows) among the nodes of each bin of q (columns); nan in empty columns."""
    counts = np.zeros((BINS, BINS))
    np.add.at(counts, (_bin(nodes[column]), nodes["bin"]), 1)
    total = counts.sum(axis=0)
    return np.divide(counts, total, out=np.full(counts.shape, np.nan), where=total > 0)


def _bin(values: pd.Series) -> NDArray[np.int64]:
    """A value on a border belongs to the bin above it, 1 to the last."""
    return np.clip((values.to_numpy() * BINS).astype(np.int64), 0, BINS - 1)


def _name(run: Run) -> str:
    return f"{run.block.name}, {run.drafter}"


def _acceptance(axes: Axes, title: str, nodes: pd.DataFrame) -> None:
    _heat(axes, title, nodes, "chance", "acceptance probability min(1, p/q)")
    means = nodes.groupby("bin")[["chance", "accepted"]].mean()
    axes.plot(_centres(means), means["chance"], color=style.COLOURS[1], label="mean")
    axes.plot(_centres(means), means["accepted"], "x", color="black", label="share accepted, measured")
    style.legend_below(axes)


def _target(axes: Axes, title: str, nodes: pd.DataFrame) -> None:
    _heat(axes, title, nodes, "target_prob", "target probability p")
    means = nodes.groupby("bin")[["target_prob"]].mean()
    axes.plot(_centres(means), means["target_prob"], color=style.COLOURS[1], label="mean")
    axes.plot([0, 1], [0, 1], color=style.GREY, linestyle="--", linewidth=1, label="p = q")
    style.legend_below(axes)


def _heat(axes: Axes, title: str, nodes: pd.DataFrame, column: str, label: str) -> None:
    edges, norm = np.linspace(0, 1, BINS + 1), PowerNorm(0.5, vmin=0, vmax=1)  # rare bins are seen beside full ones
    found = np.ma.masked_invalid(shares(nodes, column))
    mesh = axes.pcolormesh(edges, edges, found, cmap="Blues", norm=norm, rasterized=True)
    counts = nodes["bin"].value_counts().to_frame()
    for centre, count in zip(_centres(counts), counts["count"], strict=True):
        spot = (centre, 1.02)
        axes.annotate(str(count), spot, fontsize=6, color=style.GREY, ha="center", rotation=90, annotation_clip=False)
    axes.grid(visible=False)
    axes.set_title(title, pad=24)  # above the counts
    axes.set(xlim=(0, 1), ylim=(0, 1), aspect="equal", xlabel="draft probability q", ylabel=label)
    axes.figure.colorbar(mesh, ax=axes, label="share of the column", shrink=0.8)


def _centres(by_bin: pd.DataFrame) -> list[float]:
    """The middle of each bin of the rows."""
    return [(int(str(place)) + 0.5) / BINS for place in by_bin.index]


def _bins(run: Run, nodes: pd.DataFrame) -> Iterator[dict[str, str]]:
    """A row for every bin of q."""
    for place in range(BINS):
        inside = nodes[nodes["bin"] == place]
        accepted = intervals.ratio_of_sums(inside, "accepted")
        yield {
            "Pair": run.block.name,
            "Drafter": run.drafter,
            "q": f"{place / BINS:.2f} to {(place + 1) / BINS:.2f}",
            "nodes": str(len(inside)),
            "acceptance probability": tables.number(inside["chance"].mean()),
            "p": tables.number(inside["target_prob"].mean()),
            "accepted": tables.interval(None if math.isnan(accepted.value) else accepted),
        }


def _correlations(run: Run, nodes: pd.DataFrame) -> str:
    with_chance, with_p = (nodes["edge_prob"].corr(nodes[column]) for column in ("chance", "target_prob"))
    return (
        f"{_name(run)}: {len(nodes)} nodes; Pearson's correlation of q with the acceptance probability is "
        f"{tables.number(with_chance)}, with p {tables.number(with_p)}. "
        "The paper calls the latter strong and gives no number."
    )
