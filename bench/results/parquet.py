"""One parquet file of typed rows, of one cell or of many: written whole or not at all, read only as it was written."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from bench.results.rows import schema

PACK = "packed.parquet"
"""Name of the file that holds many cells' rows of one table, see `bench.results.pack`."""
_COUNTS = b"rows_by_run_id"
_UNREADABLE = (OSError, ValueError, pa.ArrowException)


def file_name(run_id: str) -> str:
    """Name of the file that holds a cell's rows of one table."""
    return f"run_id={run_id}.parquet"


def hidden_name(name: str) -> str:
    """A name that no reader looks at and no other process takes."""
    return f".{name}.{os.getpid()}.{secrets.token_hex(4)}.tmp"


def hidden_names(name: str) -> str:
    """The pattern of all such names of a file, of any process."""
    return f".{name}.*.tmp"


def write_rows(path: Path, row_type: type, rows: Sequence[Any]) -> None:
    """Write rows of one type; a reader sees the old file or the new one, also after a kill or a power cut."""
    fields = schema(row_type)
    columns = [pa.array([getattr(row, field.name) for row in rows], field.type) for field in fields]
    _write(path, pa.Table.from_arrays(columns, schema=fields))


def read_table(path: Path, row_type: type) -> pa.Table | None:
    """A file's rows as they are; None with a warning if it cannot be used."""
    return _read_file(path, schema(row_type))


def write_table(path: Path, table: pa.Table, changed: Mapping[str, str] | None = None) -> None:
    """Write such rows into an existing folder, with other values in the columns of text that `changed` names."""
    for name, value in (changed or {}).items():
        place = table.schema.get_field_index(name)
        table = table.set_column(place, table.schema.field(name), pa.array([value] * len(table), pa.string()))
    _write(path, table)


def write_pack(path: Path, rows_of: Mapping[str, pa.Table]) -> None:
    """Write the rows of some cells (at least one) into one file, by run id; its footer says how many each has."""
    ordered = dict(sorted(rows_of.items()))
    counts = json.dumps({run_id: len(rows) for run_id, rows in ordered.items()})
    _write(path, pa.concat_tables(ordered.values()).replace_schema_metadata({_COUNTS: counts}))


def read_pack(path: Path, row_type: type) -> dict[str, pa.Table] | None:
    """The rows of such a file by run id; None with a warning if it cannot be used."""
    table = _read_file(path, schema(row_type))
    return None if table is None else _parts(table)


def packed_ids(path: Path) -> set[str]:
    """The run ids of such a file, of which the footer alone is read; none of one that is not there or was cut off."""
    try:
        return {*_counts(pq.read_schema(path))}
    except _UNREADABLE:
        return set()


def replace_text(path: Path, text: str) -> None:
    """Write a text file; a reader sees the old one or the new one."""
    temporary = path.parent / hidden_name(path.name)
    try:
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def frame(tables: Iterable[pa.Table | None], row_type: type) -> pd.DataFrame:
    """Rows of many tables in one frame with the columns of `row_type`; None is skipped.

    Columns without missing values by contract are plain numpy; a missing value is NA in other columns of whole numbers
    and truth values, nan in the rest. Lists come as numpy arrays.
    """
    expected = schema(row_type)
    found = [expected.empty_table(), *(table for table in tables if table is not None)]
    nullable = {pa.int64(): pd.Int64Dtype(), pa.bool_(): pd.BooleanDtype()}
    plain = {field.name: field.type.to_pandas_dtype() for field in expected if field.type in nullable}
    plain = {name: dtype for name, dtype in plain.items() if not expected.field(name).nullable}
    return pa.concat_tables(found).to_pandas(types_mapper=nullable.get).astype(plain)


def has_footer(path: Path) -> bool:
    """Whether a file is there and ends as a parquet file does, which one that was cut off does not."""
    try:
        with pq.ParquetFile(path):
            return True
    except _UNREADABLE:
        return False


@contextlib.contextmanager
def warned_once() -> Iterator[None]:
    """Show each warning once. Python forgets what it has shown whenever a library changes the filters."""
    show, shown = warnings.showwarning, set[str]()

    def once(message: Warning | str, *rest: Any, **more: Any) -> None:
        if str(message) not in shown:
            shown.add(str(message))
            show(message, *rest, **more)

    warnings.showwarning = once
    try:
        yield
    finally:
        warnings.showwarning = show


def sync_folder(folder: Path) -> None:
    """Make names that are new in a folder outlive the machine."""
    descriptor = os.open(folder, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)


def _write(path: Path, table: pa.Table) -> None:
    temporary = path.parent / hidden_name(path.name)
    try:
        with temporary.open("xb") as file:
            pq.write_table(
                table, file, compression="zstd", compression_level=9, write_statistics=False, write_page_checksum=True
            )
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        sync_folder(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


def _read_file(path: Path, expected: pa.Schema) -> pa.Table | None:
    problem = "its columns or run ids are not those that belong under its name"
    try:
        # Not through a dataset, which would take "run_id=" in the name for a partition and make a column of it.
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            table = _completed(file.read(), expected)
        if table.schema.equals(expected) and _belong(table, path.name):
            return table
    except _UNREADABLE as error:
        problem = f"it is not a readable parquet file ({str(error).strip().partition(chr(10))[0].rstrip('.')})"
    cells = "its cells" if path.name == PACK else "its cell"
    warnings.warn(f"Skipped {path}: {problem}; delete it, and {cells} will be run again.", stacklevel=2)
    return None


def _belong(table: pa.Table, name: str) -> bool:
    """Whether the rows are of the run that a file's name names, or of those that a pack's footer counts, in order."""
    parts = {file_name(run_id): rows for run_id, rows in _parts(table).items()} if name == PACK else {name: table}
    return all({own} >= set(map(file_name, rows["run_id"].unique().to_pylist())) for own, rows in parts.items())


def _parts(table: pa.Table) -> dict[str, pa.Table]:
    """The rows of a pack by run id, as its footer counts them. ValueError if there are more or fewer."""
    found, start = {}, 0
    for run_id, count in _counts(table.schema).items():
        found[run_id] = table.slice(start, count).replace_schema_metadata()
        start += count
    if start != len(table):
        raise ValueError("its footer counts other rows")
    return found


def _counts(fields: pa.Schema) -> dict[str, int]:
    """How many rows each cell of a pack has, as its footer says. ValueError if it does not."""
    if _COUNTS not in (fields.metadata or {}):
        raise ValueError("its footer does not say whose rows it holds")
    counts: dict[str, int] = json.loads(fields.metadata[_COUNTS])
    return counts


def _completed(table: pa.Table, expected: pa.Schema) -> pa.Table:
    """Another version may have written fewer columns, those that may be missing, or in another order.

    It may also have had a value in every row of a column that may lack some now.
    """
    if not set(table.column_names) <= set(expected.names):
        return table
    if any(not field.nullable and field.name not in table.column_names for field in expected):
        return table
    columns = [
        table[field.name] if field.name in table.column_names else pa.nulls(len(table), field.type)
        for field in expected
    ]
    written = {field.name: field for field in table.schema}
    fields = [
        field if field.nullable and written.get(field.name, field).type == field.type else written[field.name]
        for field in expected
    ]
    return pa.Table.from_arrays(columns, schema=pa.schema(fields, table.schema.metadata))
