"""Rows of any table with something in every column that needs it."""

import types
import typing
from pathlib import Path
from typing import Any

import pyarrow as pa

from specdec_trees.results.parquet import read_table, write_table

_FILLER = {str: "text", int: 3, float: 0.5, bool: True, list[int]: [1, 2], list[float]: [0.5, 2.0]}


def row(row_type: type, **values: Any) -> Any:
    """A row with the given values, None where that is allowed and a filler elsewhere."""
    hints = typing.get_type_hints(row_type)
    empty = {name: None if isinstance(hint, types.UnionType) else _FILLER[hint] for name, hint in hints.items()}
    return row_type(**(empty | values))


def rewrite(path: Path, row_type: type, **columns: str) -> None:
    """Other texts in columns of a file's rows."""
    rows = read_table(path, row_type)
    for name, text in columns.items():
        place = rows.schema.get_field_index(name)
        rows = rows.set_column(place, rows.schema.field(place), pa.array([text] * len(rows)))
    write_table(path, rows)
