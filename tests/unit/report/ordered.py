"""Tables with marks and verdicts by order, and the rows behind them, for a recomputation that shares no code with them.

Published values are read from the stored numbers as they are; intervals and ties are made from the rows.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from itertools import groupby
from pathlib import Path

from compared import REFERENCE
from recomputed import Files
from recomputed_order import Line, autoregressive, mark_of, marks, verdict

from specdec_trees.artifacts.tables import MACHINE, Table
from specdec_trees.papers.registry import build

Row = dict[str, str]


@cache
def details(artifact: str, root: Path = REFERENCE) -> tuple[Files, Table]:
    """The rows behind an experiment, and the table that has verdicts."""
    found = [output for output in build(artifact, root) if isinstance(output, Table)]
    return Files(root / artifact), found[-1]


def groups(table: Table, columns: Sequence[str]) -> Iterator[list[tuple[Row, list[str]]]]:
    """Rows that were run with their run ids, those together that are equal in these columns."""
    found = zip(table.frame.to_dict("records"), (runs.split() for runs in table.runs), strict=True)
    ran = [(row, runs) for row, runs in found if runs]
    for _, group in groupby(ran, key=lambda pair: [pair[0][column] for column in columns]):
        yield list(group)


def alone_judged(cell: str) -> str:
    """A verdict by the rule of its row alone, without the row that decides: Holm's correction is of the table."""
    alone = cell.removesuffix(" (uncorrected)")
    return "differs" if alone.startswith("differs (") else re.sub(r"\(vs .*: n =", "(n =", alone)


def is_verdict(cell: str, wanted: str) -> bool:
    """Whether a cell has a verdict; why more conversations do not help, where the machine is to blame, is its own."""
    judged = alone_judged(cell)
    return judged == wanted or (MACHINE in judged and wanted.startswith(judged.partition(";")[0]))


def assert_marks(rows: Sequence[Row], header: str, lines: Sequence[Line]) -> None:
    assert [mark_of(row[header]) for row in rows] == marks(lines), header


def assert_verdicts(
    rows: Sequence[Row],
    header: str,
    lines: Sequence[Line],
    places: Iterable[int] | None = None,
    whose: Sequence[str] = (),
) -> None:
    """Of all rows, or of some against all others, speedups against autoregressive decoding too.

    Rows of which `whose` says the same share a published number, and are in no order.
    """
    for place in range(len(rows)) if places is None else places:
        line, plain = lines[place], [autoregressive(lines[place])] if "speedup" in header.lower() else []
        alone = [bool(whose) and one == whose[place] for one in whose or lines]
        every = [replace(one, published=None) if twin else one for one, twin in zip(lines, alone, strict=True)]
        wanted = verdict(line, [*every[:place], *every[place + 1 :], *plain])
        cell = rows[place][header]
        assert is_verdict(cell, wanted) or (not cell and wanted.startswith("not comparable")), (header, cell, wanted)
