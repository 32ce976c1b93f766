"""GSD, Figure 3: how many n-grams of a drafted tree recur on other branches of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from bench import published
from bench.artifacts import style, tables
from bench.artifacts.blocks import Block, measured_blocks
from bench.artifacts.outputs import NoResultsError, Output
from bench.artifacts.runs import Run
from bench.artifacts.series import series
from bench.artifacts.tables import Table
from bench.artifacts.wording import draft_temperatures, scale, setting
from bench.papers.gsd import settings
from bench.results.store import Results
from bench.statistics import graph_metrics, intervals
from bench.statistics.intervals import Interval

TITLE = "GSD Figure 3: share of n-grams that recur within a drafted tree"
COLUMNS = ("Pair", "Drafter", "n", "graphs", "share", "share published")
LEGEND = {
    "n": "length of the n-gram that ends at a node: its token and those of its nearest ancestors, the root counted",
    "graphs": "drafted trees or graphs, one a decoding step, that have a path of n tokens",
    "share": "of the nodes whose path has n tokens, those whose n-gram also ends at a node that is not above or below; "
    "mean over graphs, in brackets the 95% interval (bootstrap over conversations)",
}


@dataclass(frozen=True)
class _Run:
    """A run and its shares by n."""

    block: Block
    run: Run
    label: str
    shares: dict[int, tuple[Interval, int]]


@style.styled
def recurrence(name: str, results: Results) -> list[Output]:
    """One panel per block, one line per run that drafted graphs or trees with their records."""
    every = map(settings.of_main_pair, measured_blocks(results))
    found = [(block, runs) for block in every if (runs := _runs(block))]
    if not found:
        raise NoResultsError("no run has a drafted graph")
    words = setting(block for block, _ in found)
    canvas, axes = style.panels(TITLE, words, len(found))
    for axis, (block, runs) in zip(axes, found, strict=True):
        _panel(axis, block, runs)
    shown = [run for _, runs in found for run in runs]
    ids = tuple(str(run.run["run_id"]) for run in shown for _ in run.shares)
    notes = (*(scale(block) for block, _ in found), *_notes(), *draft_temperatures(one.run for one in shown))
    frame = tables.frame([row for run in shown for row in _rows(run)], COLUMNS)
    table = Table(name, f"{TITLE} ({words})", frame, notes, LEGEND, ids)
    return [style.Figure(name, table.title, canvas, ids), table]


def by_length(steps: pd.DataFrame) -> dict[int, tuple[Interval, int]]:
    """By n: the mean over graphs of the share that recurs, and how many graphs have a path of n tokens."""
    rows = graph_metrics.recurrences(steps)
    return {int(str(n)): (intervals.ratio_of_sums(graphs, "share"), len(graphs)) for n, graphs in rows.groupby("n")}


def _panel(axes: Axes, block: Block, runs: list[_Run]) -> None:
    for index, one in enumerate(runs):
        words = f"{one.label}, {next(iter(one.shares.values()))[1]} graphs (95% interval)"
        style.band(axes, list(one.shares), [share for share, _ in one.shares.values()], index, label=words)
    for n, share in _published().items():
        axes.plot(n, share, "*", color="black", markersize=10, label=f"paper's text: about {share:.0%} at n = {n}")
    axes.set(title=block.name, xlabel="n of the n-gram (tokens)", ylabel="share of n-grams that recur", ylim=(0, 1))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    style.legend_below(axes, columns=1)


def _runs(block: Block) -> list[_Run]:
    lines = series(block, "", lambda run: 0.0)
    every = [(run, line.label, by_length(run.steps)) for line in lines for run in line.runs]
    return [_Run(block, run, label, shares) for run, label, shares in every if shares]


def _rows(one: _Run) -> Iterator[dict[str, str]]:
    for n, (share, graphs) in one.shares.items():
        yield {
            "Pair": one.block.name,
            "Drafter": str(one.run["drafter"]),
            "n": str(n),
            "graphs": str(graphs),
            "share": tables.interval(share),
            "share published": tables.number(_published().get(n)),
        }


def _published() -> dict[int, float]:
    """What the paper's text says of single tokens; the curve is in its figure alone."""
    facts = published.find("gsd", "fig3", metric="recurring_token_share")
    return {1: float(facts["value"].iloc[0]) / 100}


def _notes() -> Iterator[str]:
    count = published.find("gsd", "section5_1", metric="setting_runs")["value"].iloc[0]
    yield (
        f"The paper: {count:g} trees of TSD with sibling pruning, of depth 10 and width 4; it states neither models "
        "nor data, and prints no number but that for single tokens. Here: the trees of all decoding steps."
    )
