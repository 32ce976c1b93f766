"""GSD, Figures 7 and 8: which children of their parents the accepted tokens are, by method and by theta_sib."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from bench import published
from bench.artifacts import style, tables
from bench.artifacts.blocks import Block, measured_blocks
from bench.artifacts.outputs import NoResultsError, Output
from bench.artifacts.runs import Run
from bench.artifacts.series import series
from bench.artifacts.tables import Table
from bench.artifacts.wording import draft_temperatures, scale, setting
from bench.results.store import Results
from bench.statistics import graph_metrics, intervals
from bench.statistics.intervals import Interval

_WIDTH = 0.8  # of the bars of one rank together
LATER = "child > 1"
LEGEND = {
    "accepted tokens": "accepted drafted tokens of all steps",
    "child 1": "share of the accepted drafted tokens that are the i-th most probable child of their parent, among all "
    "that were drafted there; in brackets the 95% interval (bootstrap over conversations)",
    LATER: "share of them that are no first children",
}


@dataclass(frozen=True, slots=True)
class Grouping:
    """One of the figures: the bars of a block with their labels, and what its paper says."""

    title: str
    header: str
    bars: Callable[[Block], Iterable[tuple[str, Run]]]
    remarks: Callable[[], Iterable[str]]


@dataclass(frozen=True)
class _Bars:
    """A run: its label, and the share of every rank from 1."""

    block: Block
    run: Run
    label: str
    accepted: pd.DataFrame

    @property
    def ranks(self) -> range:
        """As many as a node has children, or as were accepted."""
        return range(1, max(int(self.run.params.get("k", 1)), self.accepted["child"].max()) + 1)

    def share(self, rank: int) -> Interval:
        """Of the accepted tokens, those that are a child of this rank."""
        return _share(self.accepted, self.accepted["child"] == rank)

    @property
    def later(self) -> Interval:
        """Of the accepted tokens, those that are no first children."""
        return _share(self.accepted, self.accepted["child"] > 1)


@style.styled
def child_ranks(name: str, results: Results) -> list[Output]:
    """One panel per block: groups of bars by rank, a bar per run."""
    grouping = GROUPINGS[name]
    every = [block.standing_in(published.find("gsd", name)) for block in measured_blocks(results)]
    found = [(block, bars) for block in every if (bars := _bars(block, grouping))]
    if not found:
        raise NoResultsError("no run accepted a drafted token whose rank is known")
    words = setting(block for block, _ in found)
    canvas, axes = style.panels(grouping.title, words, len(found))
    for axis, (block, bars) in zip(axes, found, strict=True):
        _panel(axis, block, bars)
    table = _table(name, f"{grouping.title} ({words})", found, grouping)
    return [style.Figure(name, table.title, canvas, table.runs), table]


def _share(accepted: pd.DataFrame, those: pd.Series) -> Interval:
    return intervals.ratio_of_sums(accepted.assign(those=those.astype(float)), "those")


def _bars(block: Block, grouping: Grouping) -> list[_Bars]:
    found = [(label, run, graph_metrics.accepted_children(run.steps)) for label, run in grouping.bars(block)]
    return [_Bars(block, run, label, accepted) for label, run, accepted in found if len(accepted)]


def _by_method(block: Block) -> Iterator[tuple[str, Run]]:
    for line in series(block, "", lambda run: 0.0):
        yield from ((line.label, run) for run in line.runs)


def _by_threshold(block: Block) -> Iterator[tuple[str, Run]]:
    lines = series(block, "theta_sib")
    for line in lines:
        of = f"{line.label}, " if len(lines) > 1 else ""
        yield from ((f"{of}theta_sib = {x:g}", run) for x, run in zip(line.x, line.runs, strict=True))


def _panel(axes: Axes, block: Block, bars: Sequence[_Bars]) -> None:
    width = _WIDTH / len(bars)
    for index, one in enumerate(bars):
        shares = [one.share(rank) for rank in one.ranks]
        values = [share.value for share in shares]
        x = np.array(one.ranks) - _WIDTH / 2 + (index + 0.5) * width
        axes.bar(x, values, width * 0.92, color=style.COLOURS[index % len(style.COLOURS)], label=one.label)
        reach = np.array([[share.value - share.low, share.high - share.value] for share in shares]).T
        axes.errorbar(x, values, yerr=reach, fmt="none", ecolor="black", elinewidth=1, capsize=2)
    axes.set(title=block.name, xlabel="rank of the child (1: the most probable)", ylim=(0, 1.03))
    axes.set_ylabel("share of accepted tokens (95% interval)")
    axes.set_xticks(range(1, max(one.ranks[-1] for one in bars) + 1))
    axes.grid(axis="x", visible=False)
    style.legend_below(axes, columns=2 if len(bars) > 3 else len(bars))


def _table(name: str, title: str, found: Sequence[tuple[Block, list[_Bars]]], grouping: Grouping) -> Table:
    every = [one for _, bars in found for one in bars]
    most = max(one.ranks[-1] for one in every)
    columns = ("Pair", grouping.header, "accepted tokens", *(f"child {rank}" for rank in range(1, most + 1)), LATER)
    frame = tables.frame([_row(one, grouping) for one in every], columns).fillna(tables.ABSENT)
    said = draft_temperatures(one.run for one in every)
    notes = (*(scale(block) for block, _ in found), *grouping.remarks(), *said)
    return Table(name, title, frame, notes, LEGEND, tuple(str(one.run["run_id"]) for one in every))


def _row(one: _Bars, grouping: Grouping) -> dict[str, str]:
    row = {"Pair": one.block.name, grouping.header: one.label, "accepted tokens": str(len(one.accepted))}
    row |= {f"child {rank}": tables.interval(one.share(rank)) for rank in one.ranks}
    return row | {LATER: tables.interval(one.later)}


def _methods() -> Iterator[str]:
    fact = published.find("gsd", "fig7", metric="accepted_child_gt1_share").iloc[0]
    yield (
        f"The paper's text: about {fact['value']:g}% of the accepted tokens of TSD and GSD are children with a rank "
        f"above 1 ({fact['target']}; the data are not stated, and the bars have no numbers)."
    )


def _thresholds() -> Iterator[str]:
    facts = published.find("gsd", "fig8").set_index("metric")["value"]
    stated = ", ".join(f"{name} = {facts[f'setting_{name}']:g}" for name in ("k", "tau", "theta_prob"))
    yield f"The paper: {stated}; its text: the higher theta_sib, the fewer later children; its bars have no numbers."


GROUPINGS: Mapping[str, Grouping] = {
    "fig7": Grouping("GSD Figure 7: accepted tokens by rank of the child", "Method", _by_method, _methods),
    "fig8": Grouping(
        "GSD Figure 8: accepted tokens by rank of the child and theta_sib", "Line", _by_threshold, _thresholds
    ),
}
