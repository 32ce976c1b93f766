"""A figure with a panel per run, and a table of the same runs: what is drawn and what a row holds is described.

Below it what several artifacts have: where the time of a step goes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import pandas as pd
from matplotlib.axes import Axes

from bench.artifacts import style, tables
from bench.artifacts.blocks import Block, measured_blocks
from bench.artifacts.outputs import NoResultsError, Output
from bench.artifacts.runs import Run
from bench.artifacts.tables import Table
from bench.artifacts.wording import draft_temperatures, scale, setting
from bench.results.rows import AUTOREGRESSIVE
from bench.results.store import Results
from bench.statistics import metrics

Draw = Callable[[Axes, Run], None]


def drafting(run: Run) -> bool:
    """Whether it is of another method than autoregressive decoding."""
    return run.method != AUTOREGRESSIVE


@dataclass(frozen=True, slots=True)
class RunFigure:
    """One artifact: which runs have panels, what is drawn in each of these, and the rows of a run in the table."""

    title: str
    draws: Sequence[Draw]  # a panel for each
    rows: Callable[[Run], Iterable[Mapping[str, str]]]
    legend: Mapping[str, str]
    shown: Callable[[Run], bool] = drafting
    missing: str = "no run but autoregressive ones"  # said where no run is shown
    remarks: Callable[[Sequence[Block]], Iterable[str]] = lambda found: ()
    aside: str = ""  # behind the setting, in the figure alone
    panel: tuple[float, float] = (5.4, 3.7)
    across: int = 2  # panels side by side; never more than two of up to four
    as_block: Callable[[Block], Block] = lambda block: block
    whole: bool = True  # whether blocks without a shown run are told of
    order: Callable[[Run], float] = lambda run: 0  # of the panels

    def __call__(self, name: str, results: Results) -> list[Output]:
        """The figure and the table; raises NoResultsError where no run is shown."""
        found = list(map(self.as_block, measured_blocks(results)))
        runs = sorted((run for block in found for run in block.ok if self.shown(run)), key=self.order)
        if not runs:
            raise NoResultsError(self.missing)
        if not self.whole:
            found = list(dict.fromkeys(run.block for run in runs))
        panels = [(run, draw) for run in runs for draw in self.draws]
        rows = [({"Pair": run.block.name, "Drafter": run.name, **row}, run) for run in runs for row in self.rows(run)]
        figure = style.drawn(
            name,
            self.title,
            setting(found),
            lambda axes, run, draw: draw(axes, run),
            panels,
            [run.run_id for _, run in rows],
            aside=self.aside,
            columns=self.across if len(panels) > 4 else min(self.across, 2),
            panel=self.panel,
        )
        frame = tables.frame([row for row, _ in rows], rows[0][0])
        notes = (*map(scale, found), *self.remarks(found), *draft_temperatures(runs))
        return [figure, Table(name, figure.title, frame, notes, self.legend, figure.runs)]


# Where the time of a decoding step goes, as a pie


def time_by_phase(
    title: str,
    groups: Mapping[str, Sequence[str]],
    colours: Sequence[int],
    legend: Mapping[str, str],
    remarks: Callable[[Sequence[Block]], Iterable[str]],
    *,
    more: Callable[[Run], Mapping[str, str]] = lambda run: {},
    beside: Callable[[Run, str], str] = lambda run, group: "",
) -> RunFigure:
    """Milliseconds and shares of the groups of phases that a paper draws: OPT-Tree's Figure 7, and DySpec's Figure 4.

    `more` has further columns of a run, `beside` words behind the share of a group.
    """

    def seconds(run: Run) -> pd.Series:
        """Mean over steps, by group."""
        phases = metrics.phase_times(run.steps)
        return pd.Series({group: phases[list(members)].sum() for group, members in groups.items()})

    def draw(axes: Axes, run: Run) -> None:
        times = seconds(run)
        shares = times / times.sum()
        labels = [f"{one}: {times[one] * 1000:.2f} ms ({shares[one]:.1%}{beside(run, one)})" for one in groups]
        colors, edge = [style.COLOURS[index] for index in colours], {"edgecolor": "white", "linewidth": 1}
        wedges = axes.pie(shares, colors=colors, startangle=90, counterclock=False, wedgeprops=edge)[0]
        axes.set(title=f"{run.block.name}, {run.name}: {times.sum() * 1000:.1f} ms a step")
        axes.set(xlim=(-1.05, 1.05), ylim=(-1.05, 1.05))
        axes.legend(wedges, labels, loc="upper center", bbox_to_anchor=(0.5, 0.0))

    def row(run: Run) -> dict[str, str]:
        times = seconds(run)
        cells = {f"{group} ms": tables.number(times[group] * 1000) for group in groups}
        cells |= {f"{group} share": tables.percent(times[group] / times.sum()) for group in groups}
        return cells | {"step ms": tables.number(times.sum() * 1000), **more(run)}

    size = (4.6, 2.75 + 0.15 * len(groups))
    return RunFigure(title, [draw], lambda run: [row(run)], legend, remarks=remarks, panel=size)
