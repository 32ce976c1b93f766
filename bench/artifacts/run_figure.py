"""A figure with a panel per run, and a table of the same runs: what is drawn and what a row holds is described."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes

from bench.artifacts import style, tables
from bench.artifacts.blocks import Block, measured_blocks
from bench.artifacts.outputs import NoResultsError, Output
from bench.artifacts.runs import Run
from bench.artifacts.tables import Table
from bench.artifacts.wording import scale, setting
from bench.results.store import Results


@dataclass(frozen=True, slots=True)
class RunFigure:
    """One artifact: which runs have a panel, what is drawn in it, and the rows of each in the table."""

    title: str
    shown: Callable[[Run], bool]
    missing: str  # said where no run is shown
    draw: Callable[[Axes, Run], None]
    rows: Callable[[Run], Sequence[Mapping[str, str]]]
    legend: Mapping[str, str]
    remarks: Callable[[Sequence[Block]], Iterable[str]] = lambda found: ()
    aside: str = ""  # behind the setting, in the figure alone
    panel: tuple[float, float] = (5.4, 3.7)
    across: int = 2  # panels side by side, of more than four

    @style.styled
    def __call__(self, name: str, results: Results) -> list[Output]:
        """The figure and the table; raises NoResultsError where no run is shown."""
        found = measured_blocks(results)
        runs = [run for block in found for run in block.ok if self.shown(run)]
        if not runs:
            raise NoResultsError(self.missing)
        words = setting(found)
        columns = self.across if len(runs) > 4 else 2
        canvas, axes = style.panels(self.title, words + self.aside, len(runs), columns=columns, panel=self.panel)
        for axis, run in zip(axes, runs, strict=True):
            self.draw(axis, run)
        rows = [
            ({"Pair": run.block.name, "Drafter": run.drafter, **row}, run) for run in runs for row in self.rows(run)
        ]
        title, ids = f"{self.title} ({words})", tuple(run.run_id for _, run in rows)
        notes = (*map(scale, found), *self.remarks(found))
        frame = tables.frame([row for row, _ in rows], rows[0][0])
        return [style.Figure(name, title, canvas, ids), Table(name, title, frame, notes, self.legend, ids)]
