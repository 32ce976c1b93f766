"""A grid: methods in settings, ours beside what a paper prints; once as printed, once in detail with verdicts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from bench.artifacts import definitions, tables, ties, verdict
from bench.artifacts.blocks import Block
from bench.artifacts.metric import Metric
from bench.artifacts.runs import Run
from bench.artifacts.speedups.arms import Arm
from bench.artifacts.tables import Table
from bench.artifacts.ties import Entry
from bench.artifacts.verdict import Pairing
from bench.statistics import samples
from bench.statistics.intervals import Interval
from bench.statistics.samples import Sample

FIRST = ("Target", "Draft", "Dataset", "Method")
"""What stands before the columns."""


@dataclass(frozen=True, eq=False)
class Cell:
    """A method in a setting: its runs, of which most grids have one, and the paper's numbers by metric."""

    who: Mapping[str, str]  # target, draft and dataset
    arm: Arm
    runs: tuple[Run | None, ...]
    published: Mapping[str, float]
    stand_in: bool = False

    @property
    def run_ids(self) -> str:
        """Its runs'."""
        return " ".join(run.run_id for run in self.runs if run)

    @property
    def first(self) -> dict[str, str]:
        """What stands before the columns."""
        return {**self.who, "Method": self.arm.header}


Setting = Sequence[Cell]
"""The methods of one setting, which are ranked and judged among themselves."""


def setting_of(who: Mapping[str, str], arms: Sequence[Arm], paper: pd.DataFrame, *blocks: Block | None) -> list[Cell]:
    """The arms in a setting, with a run of each block and the numbers of these published rows."""
    stand_in = any(block.stand_in for block in blocks if block)
    found = [(arm, tuple(arm.chosen(block) if block else None for block in blocks)) for arm in arms]
    return [Cell(who, arm, runs, arm.published(paper), stand_in) for arm, runs in found]


@dataclass(frozen=True, slots=True)
class Column:
    """A metric of a cell's runs; with a `paper` metric the published number stands beside it, and it is judged."""

    metric: Metric
    of: tuple[int, ...] = (0,)  # which of the runs; of several the mean, over the conversations of all
    paper: str = ""
    unit: float = 1.0  # of the published number, in ours
    beside: str = ""  # its header, if not "... published"
    digits: int | None = None  # its digits, if not ours
    plain: Callable[[float | None], str] | None = None  # both as the paper prints them, if not with digits alone
    ended: bool = False  # whether it says how a run ended that did not end well
    judged: Mapping[str, bool] = field(default_factory=dict)  # what `verdict.judge` is to know of the metric
    without: Callable[[Cell], str] = lambda cell: ""  # why it has no verdict, if so

    @property
    def header(self) -> str:
        """What stands above it."""
        return self.metric.header

    @property
    def published(self) -> str:
        """What stands above the paper's numbers."""
        return self.beside or f"{self.header} published"

    def value(self, cell: Cell) -> Any:
        """Ours: an interval, a number, words, or None."""
        runs = self._runs(cell)
        if len(runs) == 1:
            return self.metric.of(runs[0]) if runs[0] else None
        sample = self.sample(cell)
        return samples.interval(sample) if sample and len(sample.sums) else None

    def sample(self, cell: Cell) -> Sample | None:
        """The sums behind it; None where one of the runs has none."""
        found = [self.metric.sample(run) if run and self.metric.sample else None for run in self._runs(cell)]
        known = [sample for sample in found if sample]
        if len(known) < len(found):
            return None
        return known[0] if len(known) == 1 else samples.mean_of(*known)

    def theirs(self, cell: Cell) -> float | None:
        """The paper's number."""
        found = cell.published.get(self.paper)
        return None if found is None else found * self.unit

    def pairing(self, cell: Cell) -> Pairing:
        """Ours and the paper's."""
        value = self.value(cell)
        return Pairing(value if isinstance(value, Interval) else None, self.theirs(cell), self.sample(cell))

    def entry(self, cell: Cell) -> Entry:
        """What is ranked; lossless if the rules of all runs are."""
        lossless = all(run.lossless for run in self._runs(cell) if run)
        return Entry(self.value(cell), self.sample(cell), lossless)

    def judge(self, cell: Cell, pairings: Mapping[str, Pairing]) -> str:
        """The verdict among the pairings of a setting, by the headers of its arms."""
        if pairings[cell.arm.header].ours and (why := self.without(cell)):
            return verdict.not_comparable(why)
        return verdict.judge(cell.arm.header, pairings, stand_in=cell.stand_in, **self.judged)

    def in_full(self, cell: Cell) -> str:
        """Ours with its interval."""
        return self.ending(cell) or self.metric.text(self.value(cell), self.metric.digits)

    def as_printed(self, cell: Cell) -> dict[str, str]:
        """Ours and the paper's as it prints them."""
        value, theirs = self.value(cell), self.theirs(cell)
        ours = value.value if isinstance(value, Interval) else value
        words = self.plain(ours) if self.plain else tables.number(ours, self.metric.digits)
        return {
            self.header: self.ending(cell) or words,
            self.published: self.plain(theirs) if self.plain else self.number(theirs),
        }

    def number(self, published: float | None) -> str:
        """A number of the paper's."""
        return tables.number(published, self.metric.digits if self.digits is None else self.digits)

    def ending(self, cell: Cell) -> str:
        """How a run ended that did not end well, if it is to be said."""
        return next((run.status for run in self._runs(cell) if self.ended and run and not run.ok), "")

    def _runs(self, cell: Cell) -> list[Run | None]:
        return [cell.runs[place] for place in self.of]


def as_printed(
    name: str, title: str, settings: Sequence[Setting], columns: Sequence[Column], notes: Sequence[str]
) -> Table:
    """A row per method, the paper's numbers beside ours and in its digits."""
    every = [cell for setting in settings for cell in setting]
    lines = [cell.first for cell in every]
    for cell, line in zip(every, lines, strict=True):
        for column in columns:
            line.update(column.as_printed(cell))
    headers = [header for column in columns for header in (column.header, column.published)]
    runs = tuple(cell.run_ids for cell in every)
    return Table(name, title, tables.frame(lines, (*FIRST, *headers)), tuple(notes), legend(columns), runs)


def in_detail(
    name: str,
    title: str,
    settings: Sequence[Setting],
    columns: Sequence[Column],
    notes: Sequence[str],
    *,
    ranked: Sequence[Column] = (),
    marks: Sequence[str] = (),
    beside: bool = True,
) -> Table:
    """A row per method with all intervals, the best of `ranked` marked, and a verdict on what the paper prints.

    The paper's numbers stand `beside` ours, or are left to the table as printed; `marks` say more of what they mean.
    """
    lines = [line for setting in settings for line in _details(setting, columns, ranked)]
    headers = [*FIRST]
    for column in columns:
        headers += [column.header, *[column.published] * bool(beside and column.paper)]
    headers += [_verdict(column) for column in columns if column.paper]
    frame = pd.DataFrame(lines, columns=headers, dtype=str)
    runs = tuple(cell.run_ids for setting in settings for cell in setting)
    said = (*notes, *ties.note(frame), *marks)
    return Table(f"{name}_details", f"{title}, details", frame, said, legend(columns), runs)


def legend(columns: Sequence[Column]) -> dict[str, str]:
    """What the columns mean that say so, and a verdict."""
    means = {column.header: column.metric.means for column in columns if column.metric.means}
    return means | {_verdict(column): definitions.VERDICT for column in [one for one in columns if one.paper][:1]}


def _details(setting: Setting, columns: Sequence[Column], ranked: Sequence[Column]) -> list[dict[str, str]]:
    lines = [cell.first | {column.header: column.in_full(cell) for column in columns} for cell in setting]
    for column in columns:
        if column.paper:
            pairings = {cell.arm.header: column.pairing(cell) for cell in setting}
            for cell, line in zip(setting, lines, strict=True):
                line[column.published] = column.number(column.theirs(cell))
                line[_verdict(column)] = column.judge(cell, pairings)
    ties.mark(lines, {column.header: [column.entry(cell) for cell in setting] for column in ranked})
    return lines


def _verdict(column: Column) -> str:
    return f"verdict {column.header}"
