"""One parquet file of typed rows: written whole or not at all, read only if it is what was written."""

from __future__ import annotations

import contextlib
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


def file_name(run_id: str) -> str:
    """Name of the file that holds a cell's rows of one table."""
    return f"run_id={run_id}.parquet"


def hidden_name(name: str) -> str:
    """A name that no reader looks at and no other process takes."""
    return f".{name}.{os.getpid()}.{secrets.token_hex(4)}.tmp"


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


def replace_text(path: Path, text: str) -> None:
    """Write a text file; a reader sees the old one or the new one."""
    temporary = path.parent / hidden_name(path.name)
    try:
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def read_rows(paths: Iterable[Path], row_type: type) -> pd.DataFrame:
    """Rows of many files in one frame with the columns of `row_type`; a file that cannot be used is skipped, warned of.

    Columns without missing values by contract are plain numpy; a missing value is NA in other columns of whole numbers
    and truth values, nan in the rest. Lists come as numpy arrays.
    """
    expected = schema(row_type)
    tables = [table for path in paths if (table := _read_file(path, expected)) is not None]
    nullable = {pa.int64(): pd.Int64Dtype(), pa.bool_(): pd.BooleanDtype()}
    plain = {field.name: field.type.to_pandas_dtype() for field in expected if field.type in nullable}
    plain = {name: dtype for name, dtype in plain.items() if not expected.field(name).nullable}
    return pa.concat_tables([expected.empty_table(), *tables]).to_pandas(types_mapper=nullable.get).astype(plain)


def has_footer(path: Path) -> bool:
    """Whether a file is there and ends as a parquet file does, which one that was cut off does not."""
    try:
        with pq.ParquetFile(path):
            return True
    except (OSError, ValueError, pa.ArrowException):
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


def _write(path: Path, table: pa.Table) -> None:
    temporary = path.parent / hidden_name(path.name)
    try:
        with temporary.open("xb") as file:
            pq.write_table(table, file, write_page_checksum=True)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        _sync_folder(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


def _read_file(path: Path, expected: pa.Schema) -> pa.Table | None:
    problem = "its columns or run ids are not those that belong under its name"
    try:
        # Not through a dataset, which would take "run_id=" in the name for a partition and make a column of it.
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            table = _completed(file.read(), expected)
        if table.schema.equals(expected) and {path.name} >= set(map(file_name, table["run_id"].unique().to_pylist())):
            return table
    except (OSError, ValueError, pa.ArrowException) as error:
        problem = f"it is not a readable parquet file ({str(error).strip().partition(chr(10))[0].rstrip('.')})"
    warnings.warn(f"Skipped {path}: {problem}; delete it, and its cell will be run again.", stacklevel=2)
    return None


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
    return pa.Table.from_arrays(columns, schema=pa.schema(fields))


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)
