"""Runs of target-initialised trees that differ in two of their widths alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from bench.artifacts.blocks import Block
from bench.artifacts.runs import Run
from bench.papers.improving_mcsd.gains import Side, ahead, gain
from bench.papers.improving_mcsd.methods import drafts_as_asked, last
from bench.papers.improving_mcsd.rates import alpha
from bench.papers.improving_mcsd.settings import lossy_mark
from bench.statistics.intervals import Interval

BEST, LEVEL, BEHIND, AHEAD = "best", "level", "behind", "ahead"


class Cell(Run):
    """The run of one tree."""

    @property
    def widths(self) -> tuple[int, ...]:
        """Children per node, from the first level on."""
        return _widths(self)

    @property
    def swept(self) -> tuple[int, int]:
        """Those of the first two draft levels, a and b."""
        return self.widths[1], self.widths[2]

    @cached_property
    def alpha(self) -> Interval | None:
        """The paper's acceptance rate; None of a run that did not end well."""
        return alpha(self.block, self) if self.ok else None


@dataclass(frozen=True)
class Grid:
    """The cells of a block, by a and b, whose other widths and rule are the same."""

    block: Block
    name: str
    cells: dict[tuple[int, int], Cell]

    @cached_property
    def best(self) -> Cell | None:
        """The cell with the largest speedup; None where no cell has any."""
        ran = [cell for cell in self.cells.values() if cell.speedup]
        return max(ran, key=lambda cell: cell.rank, default=None)

    def place(self, cell: Cell) -> tuple[int, int] | None:
        """Which place a cell takes by its speedup, from 1, and among how many; None if it has none."""
        mine, every = cell.speedup, [one for cell in self.cells.values() if (one := cell.speedup)]
        return (1 + sum(value.value > mine.value for value in every), len(every)) if mine else None

    @cached_property
    def standings(self) -> dict[tuple[int, int], str | None]:
        """How every cell stands against the best one: by the ratio of speedups, with its interval."""
        return {key: self._standing(cell) for key, cell in self.cells.items()}

    def ratio(self, cell: Cell) -> Interval | None:
        """Its speedup over that of the best cell; None where one of them did not end well."""
        if self.best is None or cell["status"] != "ok":
            return None
        return gain([(Side(self.block, cell.run_id), Side(self.block, self.best.run_id))])

    def _standing(self, cell: Cell) -> str | None:
        if cell is self.best or self.best is None:
            return BEST if cell is self.best else None
        return ahead(self.ratio(cell), AHEAD, BEHIND, LEVEL)


def grids(block: Block) -> Iterator[Grid]:
    """The grids of a block, one for every rule and every choice of the widths that are not swept.

    Of the runs that draft as their decoding asks for, and of several runs of a tree the last that ended well.
    """
    runs = [run for run in block.every if len(_widths(run)) > 2 and drafts_as_asked(run, ["widths"])]
    rules = {run["verifier"] for run in runs}
    found: dict[str, dict[tuple[int, int], list[Run]]] = {}
    for run in runs:
        first, a, b, *others = _widths(run)
        shape = ", ".join(map(str, [first, "a", "b", *others]))
        rule = f", {run['verifier']}" if len(rules) > 1 else ""
        name = f"{block.name}, ({shape}){rule}{lossy_mark(run)}"
        found.setdefault(name, {}).setdefault((a, b), []).append(run)
    for name, cells in found.items():
        yield Grid(block, name, {key: Cell(block, last(same).row) for key, same in sorted(cells.items())})


def _widths(run: Run) -> tuple[int, ...]:
    return tuple(run.params.get("widths", ()))
