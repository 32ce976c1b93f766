"""Rows of one table while they are gathered: the last ones as they come, all others as columns, in a fifth of the room.

A cell of 5,000 prompts has millions of decoding steps, and their rows would not fit into most machines.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, overload

import pyarrow as pa
import pyarrow.compute as pc

from specdec_trees.results.rows import schema

_ROWS = 2**17
"""Of a block that is full."""


class Blocks:
    """Rows of one type, in order; `settle` turns the last ones into columns."""

    def __init__(self, row_type: type, rows: Iterable[Any] = ()) -> None:
        self._type, self._schema = row_type, schema(row_type)
        self._full: list[pa.Table] = []
        self._small: list[pa.Table] = []
        """Behind the full ones; columns without a value are of no type, and take no room."""
        self._last: list[Any] = list(rows)
        self._settled = 0

    def __len__(self) -> int:
        return self._settled + len(self._last)

    def __iter__(self) -> Iterator[Any]:
        for table in (*self._full, *self._small):
            for batch in table.to_batches(max_chunksize=1024):
                yield from (self._type(**row) for row in batch.to_pylist())
        yield from self._last

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Blocks) and self._type is other._type and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    @overload
    def __getitem__(self, place: int) -> Any: ...
    @overload
    def __getitem__(self, place: slice) -> list[Any]: ...
    def __getitem__(self, place: int | slice) -> Any:
        """Rows that have not settled are at hand; for others all are made again."""
        first = place.start if isinstance(place, slice) else place
        if isinstance(place, slice) and place.stop is None and place.step is None and (first or 0) >= self._settled:
            return self._last[(first or 0) - self._settled :]
        return list(self)[place]

    def append(self, row: Any) -> None:
        """One more."""
        self._last.append(row)

    def extend(self, rows: Iterable[Any]) -> None:
        """More; those of other blocks settle with them."""
        if not isinstance(rows, Blocks):
            self._last.extend(rows)
            return
        self.settle()
        for table in (*rows._full, *rows._small):
            self._add(table)
        self._last.extend(rows._last)

    def settle(self) -> None:
        """Keep all rows as columns."""
        if self._last:
            self._add(self._columns(self._last))
            self._last = []

    def column(self, name: str) -> pa.ChunkedArray:
        """The values of all rows."""
        kind = self._schema.field(name).type
        last = pa.array([getattr(row, name) for row in self._last], kind)
        return pa.chunked_array([*self._chunks(name, kind), last], kind)

    def tables(self) -> Iterator[pa.Table]:
        """All rows as they are written, so many at once."""
        self.settle()
        for full in (*self._full, *([_joined(self._small)] if self._small else [])):
            columns = [self._typed(full[field.name], field.type) for field in self._schema]
            yield pa.Table.from_arrays(columns, schema=self._schema)
        if not self._settled:
            yield self._schema.empty_table()

    def only(self, names: Iterable[str]) -> pa.Table:
        """Some columns of all rows."""
        fields = [self._schema.field(name) for name in names]
        return pa.Table.from_arrays([self.column(field.name) for field in fields], schema=pa.schema(fields))

    def _columns(self, rows: list[Any]) -> pa.Table:
        columns = [pa.array([getattr(row, field.name) for row in rows], field.type) for field in self._schema]
        columns = [pa.nulls(len(rows)) if column.null_count == len(rows) else column for column in columns]
        return pa.table(columns, names=self._schema.names)

    def _add(self, table: pa.Table) -> None:
        self._small.append(table)
        self._settled += len(table)
        if sum(map(len, self._small)) >= _ROWS:
            self._full.append(_joined(self._small))
            self._small = []

    def _chunks(self, name: str, kind: pa.DataType) -> Iterator[pa.Array]:
        for table in (*self._full, *self._small):
            yield from self._typed(table[name], kind).chunks

    @staticmethod
    def _typed(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
        return column if column.type == kind else pa.chunked_array([pa.nulls(len(column), kind)], kind)


def total(rows: Blocks, name: str) -> int:
    """The sum of a column."""
    return int(pc.sum(rows.column(name)).as_py() or 0)


def _joined(tables: list[pa.Table]) -> pa.Table:
    return pa.concat_tables(tables, promote_options="default").combine_chunks()
