"""Where the time of a decoding step goes, as a pie for every run: OPT-Tree's Figure 7, and DySpec's Figure 4."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import pandas as pd
from matplotlib.axes import Axes

from bench.artifacts import style, tables
from bench.artifacts.blocks import Block
from bench.artifacts.run_figure import RunFigure
from bench.artifacts.runs import Run
from bench.results.rows import AUTOREGRESSIVE
from bench.statistics import metrics


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
    """Milliseconds and shares of the groups of phases that a paper draws.

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
        axes.set(title=f"{run.block.name}, {run.drafter}: {times.sum() * 1000:.1f} ms a step")
        axes.set(xlim=(-1.05, 1.05), ylim=(-1.05, 1.05))
        axes.legend(wedges, labels, loc="upper center", bbox_to_anchor=(0.5, 0.0))

    def row(run: Run) -> dict[str, str]:
        times = seconds(run)
        cells = {f"{group} ms": tables.number(times[group] * 1000) for group in groups}
        cells |= {f"{group} share": tables.percent(times[group] / times.sum()) for group in groups}
        return cells | {"step ms": tables.number(times.sum() * 1000), **more(run)}

    return RunFigure(
        title,
        lambda run: run.method != AUTOREGRESSIVE,
        "no run but autoregressive ones",
        draw,
        lambda run: [row(run)],
        legend,
        remarks,
        panel=(4.6, 2.75 + 0.15 * len(groups)),
    )
