"""The panels of Figures 1, 2 and 5a: one setting each, what was measured in it and what was expected."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pandas as pd

from bench.artifacts.blocks import Block, blocks
from bench.artifacts.outputs import NoResultsError
from bench.artifacts.runs import Run
from bench.artifacts.wording import setting
from bench.papers.sequoia.structures import Structure
from bench.papers.sequoia.vectors import Vector, growth, vectors, words
from bench.results.store import Results
from bench.statistics.intervals import Interval

_SAME = ["pair", "dataset", "temperature", "top_p"]


@dataclass(frozen=True)
class Point:
    """A run of a structure and what it came to."""

    run: Run

    @property
    def mal(self) -> Interval | None:
        """Measured tokens per step; None if it did not end well."""
        return self.run.mal

    @property
    def num_sequences(self) -> int | None:
        """How many sequences were asked for; None where that was left to the search, or is no matter."""
        shape = self.run.params.get("shape")
        return shape.get("num_sequences") if isinstance(shape, dict) else None


@dataclass(frozen=True)
class Panel:
    """One setting: a block of runs, the growth rows of an acceptance vector, or both."""

    block: Block | None
    growth: pd.DataFrame
    vector: Vector | None

    @property
    def name(self) -> str:
        """The words above the panel."""
        return self.block.name if self.block else words(self.growth, [*_SAME[:3], "verifier"])

    @property
    def first(self) -> pd.Series:
        """A row that has the setting's pair, dataset and temperature."""
        return self.block.first if self.block else self.growth.iloc[0]

    def line(self, structure: Structure) -> pd.DataFrame:
        """The growth rows of a structure by size, with N, root counted."""
        rows = self.growth[self.growth["structure"] == structure.name].sort_values("n")
        return rows.assign(N=rows["n"] + 1)

    def points(self, structure: Structure) -> list[Point]:
        """The runs of a structure by size, those that failed too."""
        if self.block is None or structure.method is None:
            return []
        runs = [run for run in self.block.every if run.method == structure.method]
        return sorted((Point(run) for run in runs), key=lambda point: point.run.nodes or 0)

    def measured(self, structure: Structure) -> list[tuple[int, Interval]]:
        """Size N and tokens per step of the runs that ended well."""
        return [(point.run.nodes, point.mal) for point in self.points(structure) if point.run.nodes and point.mal]

    @property
    def drawn(self) -> bool:
        """Whether there is anything to draw."""
        return len(self.growth) > 0 or (self.block is not None and bool((self.block.runs["status"] == "ok").any()))


def panels(results: Results, structures: Sequence[Structure]) -> list[Panel]:
    """A panel for every block with runs of the structures, then one for every vector that belongs to none of them.

    Raises NoResultsError where no run ended well and no vector was measured.
    """
    methods = [structure.method for structure in structures if structure.method]
    runs, rows = results.runs[results.runs["method"].isin(methods)], growth(results)
    if rows.empty and not (runs["status"] == "ok").any():
        raise NoResultsError(f"no run of {', '.join(methods)} ended well and no acceptance vector was measured")
    known = {str(vector.first["run_id"]): vector for vector in vectors(results)} if len(results.acceptance) else {}
    found = [_of_block(replace(block, results=results), rows, known) for block in blocks(replace(results, runs=runs))]
    taken = {run_id for panel in found for run_id in panel.growth["run_id"]}
    others = rows[~rows["run_id"].isin(list(taken))].groupby("run_id", sort=False)
    return [*found, *(Panel(None, group, known.get(str(run_id))) for run_id, group in others)]


def panel_words(found: Sequence[Panel]) -> str:
    """The words of a title: those of the runs, and of vectors that belong to none."""
    measured = [panel.block for panel in found if panel.block]
    expected = [panel.growth for panel in found if not panel.block]
    return "; ".join(_words(measured, expected))


def _words(measured: list[Block], expected: list[pd.DataFrame]) -> Iterator[str]:
    if measured:
        yield setting(measured)
    if expected:
        yield words(pd.concat(expected)) + (" (expected alone)" if measured else "")


def _of_block(block: Block, rows: pd.DataFrame, known: Mapping[str, Vector]) -> Panel:
    """A block with the growth rows of its setting and draws; of several vectors the one of most positions."""
    same = (rows[_SAME] == block.first[_SAME]).all(axis=1) & rows["draws"].isin(block.runs["draws"])
    candidates = {str(run_id): known.get(str(run_id)) for run_id in rows.loc[same, "run_id"].unique()}
    best = max(candidates, key=lambda run_id: _positions(candidates[run_id]), default=None)
    return Panel(block, rows[rows["run_id"] == best], candidates.get(best) if best else None)


def _positions(vector: Vector | None) -> int:
    return int(vector.first["num_positions"]) if vector else 0
