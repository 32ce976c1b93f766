"""OPT-Tree, Figure 7: where the time of a decoding step goes, as pies."""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes

from bench import metrics, published
from bench.report import tables
from bench.report.blocks import Block, measured_blocks, setting
from bench.report.figures import style
from bench.report.outputs import NoResultsError, Output
from bench.report.tables import Table
from bench.store import Results

TITLE = "OPT-Tree Figure 7: mean time of a decoding step by operation"
GROUPS = {"tree operations": ["tree"], "drafting": ["draft"], "verification": ["score", "judge", "commit"]}
COLUMNS = ("Pair", "Drafter", *(f"{group} ms" for group in GROUPS), *(f"{group} share" for group in GROUPS), "step ms")
LEGEND = {
    "tree operations ms": "growing the tree, draft forwards excluded",
    "drafting ms": "draft forwards",
    "verification ms": "target forward, judging and committing the accepted path",
}


@style.styled
def time_by_phase(name: str, results: Results) -> list[Output]:
    """One pie per run that drafted anything, with milliseconds and shares."""
    found = measured_blocks(results)
    times = [
        (block, run, _times(block, run)) for block in found for run in block.ok if run["method"] != "autoregressive"
    ]
    if not times:
        raise NoResultsError("no run but autoregressive ones")
    words = setting(found)
    canvas, axes = style.panels(TITLE, words, len(times), panel=(4.6, 3.2))
    for axis, (block, run, seconds) in zip(axes, times, strict=True):
        _pie(axis, f"{block.name}, {run['drafter']}: {seconds.sum() * 1000:.1f} ms a step", seconds)
    ids = tuple(str(run["run_id"]) for _, run, _ in times)
    frame = tables.frame([_row(*time) for time in times], COLUMNS)
    table = Table(name, f"{TITLE} ({words})", frame, (_paper(),), LEGEND, ids)
    return [style.Figure(name, table.title, canvas, ids), table]


def _times(block: Block, run: pd.Series) -> pd.Series:
    """Mean seconds a step of the paper's three groups of operations."""
    phases = metrics.phase_times(block.steps(run["run_id"]))
    return pd.Series({group: phases[members].sum() for group, members in GROUPS.items()})


def _pie(axes: Axes, title: str, seconds: pd.Series) -> None:
    shares = seconds / seconds.sum()
    labels = [f"{group}: {seconds[group] * 1000:.2f} ms ({shares[group]:.1%})" for group in GROUPS]
    colours = [style.COLOURS[index] for index in (4, 5, 0)]
    wedge = {"edgecolor": "white", "linewidth": 1}
    wedges = axes.pie(shares, colors=colours, startangle=90, counterclock=False, wedgeprops=wedge)[0]
    axes.set(title=title, xlim=(-1.05, 1.05), ylim=(-1.05, 1.05))
    axes.legend(wedges, labels, loc="upper center", bbox_to_anchor=(0.5, 0.0))


def _paper() -> str:
    fact = published.find("opt_tree", "section4_4", metric="tree_ops_share").iloc[0]
    return (
        f"The paper's text: tree operations take {fact['value']:g}% of a step with its smallest models (A100, n = 50)."
    )


def _row(block: Block, run: pd.Series, seconds: pd.Series) -> dict[str, str]:
    row = {"Pair": block.name, "Drafter": str(run["drafter"]), "step ms": tables.number(seconds.sum() * 1000)}
    for group in GROUPS:
        row[f"{group} ms"] = tables.number(seconds[group] * 1000)
        row[f"{group} share"] = tables.percent(seconds[group] / seconds.sum())
    return row
