"""A grid: methods in settings, ours beside what a paper prints; once as printed, once in detail with verdicts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import pandas as pd

from bench.artifacts import definitions, devices, tables, ties, verdict
from bench.artifacts.arms import SECONDS, Arm, has_tree
from bench.artifacts.blocks import Block
from bench.artifacts.metric import Metric
from bench.artifacts.runs import Run
from bench.artifacts.tables import ABSENT, Table
from bench.artifacts.ties import Entry
from bench.artifacts.verdict import Pairing
from bench.results.rows import AUTOREGRESSIVE
from bench.statistics import samples
from bench.statistics.intervals import Interval
from bench.statistics.samples import Sample

Cells = dict[str, str]
"""What stands in a row, by header."""


@dataclass(frozen=True, eq=False)
class Setting:
    """Methods on the same prompts, which are ranked and judged among themselves."""

    who: Mapping[str, str]  # models, prompts and what else the paper states, by header
    arms: Sequence[Arm]
    paper: pd.DataFrame  # its rows; empty where it has none
    blocks: Sequence[Block | None] = (None,)  # with a run of each arm; None where nothing was run
    chosen: Callable[[Arm, Block], Run | None] = lambda arm, block: arm.chosen(block.every)
    shown: Callable[[Cell], object] = lambda cell: not cell.arm.extra or cell.run_ids

    @cached_property
    def cells(self) -> list[Cell]:
        """The methods that are shown. Where the machine chose the printed tree, that run is the printed tree's too."""
        found = [
            Cell(self, arm, tuple(self.chosen(arm, block) if block else None for block in self.blocks), self._of(arm))
            for arm in self.arms
        ]
        first = found[0]
        for place, cell in enumerate(found):
            if cell.arm.printed_tree and has_tree(first.run, cell.printed):
                found[place] = replace(cell, runs=first.runs)
        return [cell for cell in found if self.shown(cell)]

    def __getitem__(self, header: str) -> Cell:
        """The method of this header."""
        return next(cell for cell in self.cells if cell.arm.header == header)

    @property
    def run_ids(self) -> str:
        """The runs of all methods."""
        return " ".join(dict.fromkeys(run.run_id for cell in self.cells for run in cell.runs if run))

    @cached_property
    def block(self) -> Block | None:
        """The first of its blocks."""
        return next((block for block in self.blocks if block), None)

    @cached_property
    def same_device(self) -> bool:
        """Whether our device is the paper's."""
        hardware = "".join(self.paper["hardware"].unique()[:1])
        return self.block is not None and devices.same_device(str(self.block.first["device_name"]), hardware)

    def _of(self, arm: Arm) -> dict[str, float]:
        """All of the paper's numbers of an arm; a speedup it leaves out is taken from its times on one device."""
        found, plain = arm.published(self.paper), self.paper[self.paper["method"] == AUTOREGRESSIVE]
        own = self.paper[self.paper["method"] == arm.paper]
        if SECONDS in found and len(plain) and set(own["hardware"]) == set(plain["hardware"]):
            found.setdefault("speedup", float(plain["value"].iloc[0]) / found[SECONDS])
        return found


@dataclass(frozen=True, eq=False)
class Cell:
    """A method in a setting: its runs, of which most grids have one, and all of the paper's numbers by metric."""

    setting: Setting
    arm: Arm
    runs: tuple[Run | None, ...]
    printed: Mapping[str, float]

    @property
    def run(self) -> Run | None:
        """The first, or the only one."""
        return self.runs[0]

    @property
    def run_ids(self) -> str:
        """Its runs'."""
        return " ".join(run.run_id for run in self.runs if run)

    @property
    def words(self) -> Cells:
        """What stands before the columns."""
        return {**self.setting.who, "Method": self.arm.header}

    @cached_property
    def other_budget(self) -> int | None:
        """Our budget where the paper's numbers are of another one; None where they are not."""
        ours = self.run.budget if self.run and self.arm.budget and self.printed else None
        return None if ours == self.arm.budget else ours

    @property
    def published(self) -> Mapping[str, float]:
        """The paper's numbers by metric; none of another budget than ours."""
        return {} if self.other_budget else self.printed

    @property
    def other_tree(self) -> bool:
        """Whether its tree was chosen and is not, as far as the paper prints it, the paper's."""
        return (self.arm.chosen_tree or self.arm.printed_tree) and not has_tree(self.run, self.printed)


@dataclass(frozen=True, slots=True)
class Column:
    """A metric of a cell's runs; with a `paper` metric the published number stands beside it, and it is judged."""

    metric: Metric
    of: tuple[int, ...] = (0,)  # which of the runs; of several the mean, over the conversations of all
    words: Callable[[Cell], str] | None = None  # what stands in it, if it is not of the cell's runs alone
    paper: str = ""
    unit: float = 1.0  # of the published number, in ours
    beside: str = ""  # its header, if not "... published"
    digits: int | None = None  # its digits, if not ours
    plain: Callable[[float | None], str] | None = None  # both as the paper prints them, if not with digits alone
    theirs: Callable[[float | None], str] | None = None  # the paper's number as it prints it, if not as ours
    ended: bool = False  # whether it says how a run ended that did not end well
    judged: bool = True  # whether there is a verdict on what the paper prints
    timed: bool = False  # whether it is judged by order on another device than the paper's
    of_tree: bool = False  # whether it grows with the tree: it is ranked among equal N, and judged of the paper's tree
    without: Callable[[Cell], str] = lambda cell: ""  # why it has no verdict, if so

    @property
    def header(self) -> str:
        """What stands above it."""
        return self.metric.header

    @property
    def published(self) -> str:
        """What stands above the paper's numbers."""
        return self.beside or beside(self.header)

    @property
    def verdict(self) -> str:
        """What stands above the verdicts; empty if there are none."""
        return f"verdict {self.header}" if self.paper and self.judged else ""

    def value(self, cell: Cell) -> Any:
        """Ours: an interval, a number, words, or None."""
        runs = self.runs(cell)
        if len(runs) == 1:
            return self.metric.of(runs[0]) if runs[0] else None
        sample = self.sample(cell)
        return samples.interval(sample) if sample and len(sample.sums) else None

    def sample(self, cell: Cell) -> Sample | None:
        """The sums behind it; None where one of the runs has none."""
        found = [self.metric.sample(run) if run and self.metric.sample else None for run in self.runs(cell)]
        known = [sample for sample in found if sample]
        if len(known) < len(found):
            return None
        return known[0] if len(known) == 1 else samples.mean_of(*known)

    def number(self, cell: Cell) -> float | None:
        """The paper's number."""
        found = cell.published.get(self.paper)
        return None if found is None else found * self.unit

    def pairing(self, cell: Cell) -> Pairing:
        """Ours and the paper's."""
        value = self.value(cell)
        return Pairing(value if isinstance(value, Interval) else None, self.number(cell), self.sample(cell))

    def entry(self, cell: Cell) -> Entry:
        """What is ranked, once for each run; lossless if the rules of all runs are."""
        first, own = cell.setting.cells[0].run, cell.run
        twice = cell.arm.printed_tree and own is first
        if twice or (self.of_tree and not (own and first and own.nodes == first.nodes)):
            return Entry(None, None)
        lossless = all(run.lossless for run in self.runs(cell) if run)
        return Entry(self.value(cell), self.sample(cell), lossless)

    def judge(self, cell: Cell, pairings: Mapping[Cell, Pairing]) -> str:
        """The verdict among the pairings of a setting; the same run is left out.

        Other trees than the paper's, and rows of the same published number, say how noisy the block is, no more.
        """
        if pairings[cell].ours and (why := self._why_not(cell)):
            return verdict.not_comparable(why)
        against = {cell.arm.header: pairings[cell]}
        for one in pairings:
            if one.runs != cell.runs:
                twin = (one.arm.paper, one.arm.params) == (cell.arm.paper, cell.arm.params)
                alone = twin or (self.of_tree and one.other_tree)
                against[one.arm.header] = replace(pairings[one], published=None) if alone else pairings[one]
        block, same = cell.setting.block, not self.timed or cell.setting.same_device
        stand_in, speedup = block is not None and block.stand_in, self.paper == "speedup"
        facts = {"stand_in": stand_in, "same_device": same, "speedup": speedup}
        return verdict.judge(cell.arm.header, against, **facts, whole=block is None or not block.incomplete)

    def in_full(self, cell: Cell) -> str:
        """Ours with its interval."""
        if self.words:
            return self.words(cell)
        return self.ending(cell) or self.metric.text(self.value(cell), self.metric.digits)

    def as_printed(self, cell: Cell) -> tuple[str, str]:
        """Ours and the paper's as it prints them."""
        value = self.value(cell)
        ours = value.value if isinstance(value, Interval) else value
        words = self.plain(ours) if self.plain else tables.number(ours, self.metric.digits)
        return self.ending(cell) or words, self.printed(cell)

    def printed(self, cell: Cell) -> str:
        """The paper's number as it prints it."""
        text = self.theirs or self.plain
        digits = self.metric.digits if self.digits is None else self.digits
        return text(self.number(cell)) if text else tables.number(self.number(cell), digits)

    def ending(self, cell: Cell) -> str:
        """How a run ended that did not end well, if it is to be said."""
        return next((run.status for run in self.runs(cell) if self.ended and run and not run.ok), "")

    def _why_not(self, cell: Cell) -> str:
        if cell.other_budget:
            return "other budget"
        if self.of_tree and cell.other_tree and self.paper in cell.published:
            return "other tree"
        return self.without(cell)

    def runs(self, cell: Cell) -> list[Run | None]:
        """Those of a cell that it is of."""
        return [cell.runs[place] for place in self.of]


def beside(header: str) -> str:
    """The header of the column with the paper's numbers."""
    return f"{header} published"


def as_printed(
    name: str, title: str, settings: Sequence[Setting], columns: Sequence[Column], notes: Sequence[str]
) -> Table:
    """A row per method, the paper's numbers beside ours and in its digits."""
    every = [cell for one in settings for cell in one.cells]
    headers = [*settings[0].who, "Method"]
    headers += [header for column in columns for header in (column.header, column.published)]
    lines = [cell.words for cell in every]
    for cell, line in zip(every, lines, strict=True):
        for column in columns:
            line[column.header], line[column.published] = column.as_printed(cell)
    runs = tuple(cell.run_ids for cell in every)
    return Table(name, title, tables.frame(lines, headers), tuple(notes), legend(columns), runs)


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
    below: Callable[[Setting], Iterable[Cells]] = lambda one: (),
) -> Table:
    """A row per method with all intervals, the best of `ranked` marked, and a verdict on what the paper prints.

    The paper's numbers stand `beside` ours, or are left to the table as printed; `marks` say more of what they mean;
    `below` the methods of a setting stand rows of none.
    """
    lines: list[Cells] = []
    runs: list[str] = []
    for one in settings:
        more = [{**one.who, **cells} for cells in below(one)]
        lines += [*_details(one.cells, columns, ranked), *more]
        runs += [*(cell.run_ids for cell in one.cells), *[""] * len(more)]
    verdict.correct(lines)
    headers = [*settings[0].who, "Method"]
    for column in columns:
        headers += [column.header, *[column.published] * bool(beside and column.paper)]
    headers += [column.verdict for column in columns if column.verdict]
    frame = tables.frame(lines, headers).fillna(ABSENT)
    said = (*notes, *ties.note(frame), *marks)
    return Table(f"{name}_details", f"{title}, details", frame, said, legend(columns), tuple(runs))


def legend(columns: Sequence[Column]) -> dict[str, str]:
    """What the columns mean that say so, and a verdict."""
    means = {column.header: column.metric.means for column in columns if column.metric.means}
    verdicts = [column.verdict for column in columns if column.verdict]
    return means | dict.fromkeys(verdicts[:1], definitions.VERDICT)


def _details(cells: Sequence[Cell], columns: Sequence[Column], ranked: Sequence[Column]) -> list[Cells]:
    lines = [cell.words | {column.header: column.in_full(cell) for column in columns} for cell in cells]
    for column in columns:
        if column.paper:
            pairings = {cell: column.pairing(cell) for cell in cells if column.judged}
            for cell, line in zip(cells, lines, strict=True):
                line[column.published] = column.printed(cell)
                if column.judged:
                    line[column.verdict] = column.judge(cell, pairings)
    ties.mark(lines, {column.header: [column.entry(cell) for cell in cells] for column in ranked})
    return lines
