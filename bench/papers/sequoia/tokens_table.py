"""Sequoia, Figures 1, 2 and 5a: the table of all points that they draw."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pandas as pd

from bench.artifacts import definitions, tables
from bench.artifacts.tables import Table
from bench.artifacts.wording import scale
from bench.papers.sequoia import vectors
from bench.papers.sequoia.bounds import limits
from bench.papers.sequoia.gains import COLUMNS as GAINS
from bench.papers.sequoia.gains import LEGEND as GAINS_LEGEND
from bench.papers.sequoia.gains import gain_notes, gains
from bench.papers.sequoia.panels import Panel, Point
from bench.papers.sequoia.structures import SEQUOIA, Structure

COLUMNS = ("Setting", "Structure", "Drafter", "N", "k", "levels", "F(T)", "MAL", "MAL - F(T)", "limit")
LEGEND = {
    "N": definitions.NODES,
    "k": "how many sequences, or children a node: the best for F(T) at this N unless the drafter's shape fixes it",
    "levels": definitions.LEVELS,
    "F(T)": definitions.EXPECTED_TREE,
    "MAL": definitions.MAL,
    "MAL - F(T)": "0 if whether a child is accepted depended on its position alone, as F(T) assumes",
    "limit": "F(T) for N -> infinity at the best k (Table 1), p made non-increasing as for F(T)",
    **GAINS_LEGEND,
}
Row = tuple[dict[str, str], str]


def tokens_table(
    name: str, title: str, found: Sequence[Panel], structures: Sequence[Structure], *, gained: bool
) -> Table:
    """A row per structure, size and run; sizes that were not run have F(T) alone, and the vector's run id."""
    rows = [row for panel in found for structure in structures for row in _rows(panel, structure, gained)]
    frame = tables.frame([row for row, _ in rows], (*COLUMNS, *(GAINS if gained else ()))).fillna(tables.ABSENT)
    notes = [note for panel in found for note in _notes(panel, gained)]
    return Table(name, title, frame, tuple(dict.fromkeys(notes)), LEGEND, tuple(run_id for _, run_id in rows))


def _rows(panel: Panel, structure: Structure, gained: bool) -> Iterator[Row]:
    """In the order of N; runs whose size is not known come first."""
    points, line = panel.points(structure), panel.line(structure)
    grown = {int(row["N"]): row for _, row in line.iterrows()}
    common = {"Setting": panel.name, "Structure": structure.label, "limit": _limit(panel, structure)}
    for nodes in sorted({*grown, *(point.run.nodes or 0 for point in points)}):
        of_size = [point for point in points if (point.run.nodes or 0) == nodes]
        size = {"N": str(nodes) if nodes else tables.ABSENT}
        if gained and structure is SEQUOIA:
            size |= gains(panel, nodes)
        for point in of_size:
            yield common | size | _measured(point, grown.get(nodes)), point.run.run_id
        if not of_size:
            yield common | size | _expected(grown[nodes]), str(grown[nodes]["run_id"])


def _expected(row: pd.Series) -> dict[str, str]:
    return {
        "k": tables.number(row["num_branches"], 0),
        "levels": str(int(row["depth"]) + 1),
        "F(T)": tables.number(row["expected_tokens"]),
    }


def _measured(point: Point, row: pd.Series | None) -> dict[str, str]:
    """A run; F(T) is that of its own tree, and of the growth row where it has the same k."""
    run, fixed = point.run, point.num_sequences
    same = row is not None and (fixed is None or fixed == row["num_branches"])
    known = _expected(row) if same and row is not None else {"k": str(fixed) if fixed else tables.ABSENT}
    value = row["expected_tokens"] if same and row is not None else None
    value = value if run.predicted("mal") is None else run.predicted("mal")
    over = point.mal.value - value if point.mal and value is not None else None
    return known | {
        "Drafter": str(point.run["drafter"]),
        "levels": str(run.levels) if run.levels else known.get("levels", tables.ABSENT),
        "F(T)": tables.number(value),
        "MAL": tables.interval(point.mal) if run.status == "ok" else str(run.status),
        "MAL - F(T)": tables.number(over),
    }


def _limit(panel: Panel, structure: Structure) -> str:
    bounds = limits(panel.vector.accepted) if panel.vector else {}
    return tables.number(bounds[structure.name][0]) if structure.name in bounds else tables.ABSENT


def _notes(panel: Panel, gained: bool) -> Iterator[str]:
    if panel.block:
        yield scale(panel.block)
    if panel.vector:
        yield f"Acceptance vector: {vectors.scale(panel.vector)}"
    if gained:
        yield from gain_notes(panel)
