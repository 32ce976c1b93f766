"""OPT-Tree, Figure 7, and DySpec, Figure 4: where the time of a decoding step goes, as pies."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import pandas as pd
from matplotlib.axes import Axes

from bench import published
from bench.artifacts import style, tables
from bench.artifacts.blocks import Block, measured_blocks
from bench.artifacts.outputs import NoResultsError, Output
from bench.artifacts.runs import Run
from bench.artifacts.tables import Table
from bench.artifacts.wording import scale, setting
from bench.results.store import Results
from bench.statistics import metrics


def nothing(block: Block, run: Run) -> dict[str, str]:
    """No columns of a figure's own."""
    return {}


@dataclass(frozen=True, slots=True)
class Pies:
    """One of the figures: its groups of phases, what they mean, and what its paper says of them."""

    title: str
    groups: Mapping[str, Sequence[str]]
    legend: Mapping[str, str]
    notes: Callable[[Sequence[Block]], Iterable[str]]
    colours: Sequence[int]
    more: Callable[[Block, Run], Mapping[str, str]] = nothing  # further columns of a run
    beside: Mapping[str, Callable[[Block], str]] = field(default_factory=dict)  # words behind a group's share


def _tree_share(found: Sequence[Block]) -> Iterable[str]:
    fact = published.find("opt_tree", "section4_4", metric="tree_ops_share").iloc[0]
    share = f"{fact['value']:g}% of a step with its smallest models (A100, n = 50)"
    yield f"The paper's text: tree operations take {share}."


OPT_TREE = Pies(
    "OPT-Tree Figure 7: mean time of a decoding step by operation",
    {"tree operations": ["tree"], "drafting": ["draft"], "verification": ["score", "judge", "commit"]},
    {
        "tree operations ms": "growing the tree, draft forwards excluded",
        "drafting ms": "draft forwards",
        "verification ms": "target forward, judging and committing the accepted path",
    },
    _tree_share,
    colours=(4, 5, 0),
)


@style.styled
def time_by_phase(name: str, results: Results, pies: Pies = OPT_TREE) -> list[Output]:
    """One pie per run that drafted anything, with milliseconds and shares."""
    found = measured_blocks(results)
    times = [
        (block, run, _times(pies, block, run)) for block in found for run in block.ok if run.method != "autoregressive"
    ]
    if not times:
        raise NoResultsError("no run but autoregressive ones")
    words = setting(found)
    panel = (4.6, 2.75 + 0.15 * len(pies.groups))
    canvas, axes = style.panels(pies.title, words, len(times), panel=panel)
    for axis, (block, run, seconds) in zip(axes, times, strict=True):
        title = f"{block.name}, {run.drafter}: {seconds.sum() * 1000:.1f} ms a step"
        _pie(axis, title, seconds, pies, block)
    ids = tuple(run.run_id for _, run, _ in times)
    rows = [_row(*time) | dict(pies.more(*time[:2])) for time in times]
    notes = (*map(scale, found), *pies.notes(found))
    table = Table(name, f"{pies.title} ({words})", tables.frame(rows, rows[0]), notes, pies.legend, ids)
    return [style.Figure(name, table.title, canvas, ids), table]


def _times(pies: Pies, block: Block, run: Run) -> pd.Series:
    """Mean seconds a step of the paper's groups of operations."""
    phases = metrics.phase_times(run.steps)
    return pd.Series({group: phases[list(members)].sum() for group, members in pies.groups.items()})


def _pie(axes: Axes, title: str, seconds: pd.Series, pies: Pies, block: Block) -> None:
    shares = seconds / seconds.sum()
    beside = {group: pies.beside[group](block) if group in pies.beside else "" for group in pies.groups}
    labels = [f"{group}: {seconds[group] * 1000:.2f} ms ({shares[group]:.1%}{beside[group]})" for group in pies.groups]
    colours = [style.COLOURS[index] for index in pies.colours]
    wedge = {"edgecolor": "white", "linewidth": 1}
    wedges = axes.pie(shares, colors=colours, startangle=90, counterclock=False, wedgeprops=wedge)[0]
    axes.set(title=title, xlim=(-1.05, 1.05), ylim=(-1.05, 1.05))
    axes.legend(wedges, labels, loc="upper center", bbox_to_anchor=(0.5, 0.0))


def _row(block: Block, run: Run, seconds: pd.Series) -> dict[str, str]:
    row = {"Pair": block.name, "Drafter": run.drafter}
    row |= {f"{group} ms": tables.number(seconds[group] * 1000) for group in seconds.index}
    row |= {f"{group} share": tables.percent(seconds[group] / seconds.sum()) for group in seconds.index}
    return row | {"step ms": tables.number(seconds.sum() * 1000)}
