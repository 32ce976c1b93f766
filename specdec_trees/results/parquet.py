"""One parquet file of typed rows: written whole or not at all, read only as it was written."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import os
import secrets
import shutil
import warnings
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from specdec_trees.results.blocks import Blocks
from specdec_trees.results.rows import schema

_EXPERIMENT = "experiment"
"""The column that names whose a row is."""
_MAGIC, _END = b"PAR1", 8
"""Behind the footer stand its length, four bytes, and these four, which also begin a file."""
_SMALL = 1 << 15
"""Bytes below which a file is read as a whole by one thread, and written in the way that is read fastest.

Its size is that of its footer, whatever is done to its pages; with zstd and dictionaries it is read in 2.5 the time.
"""
_LEVEL = 9
"""Of zstd."""
_BATCH = 256
"""Tables of cells that are held at once: each column of each takes a kilobyte beside its values."""
UNREADABLE = (OSError, ValueError, pa.ArrowException)
"""What a file raises that is cut off, altered or not ours."""


def file_name(run_id: str) -> str:
    """Name of the file that holds a cell's rows of one table."""
    return f"run_id={run_id}.parquet"


def hidden_name(name: str) -> str:
    """A name that no reader looks at and no other process takes."""
    return f".{name}.{os.getpid()}.{secrets.token_hex(4)}.tmp"


def hidden_names(folder: Path, name: str) -> list[str]:
    """All such names of a file in a folder, of any process."""
    return [left for left in names_in(folder) if left.startswith(f".{name}.") and left.endswith(".tmp")]


def names_in(folder: Path) -> list[str]:
    """What lies in a folder; nothing where there is none."""
    try:
        with os.scandir(folder) as entries:
            return [entry.name for entry in entries]
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return []


def write_rows(path: Path, row_type: type, rows: Sequence[Any] | Blocks) -> None:
    """Write rows of one type; a reader sees the old file or the new one, also after a kill or a power cut."""
    blocks = rows if isinstance(rows, Blocks) else Blocks(row_type, rows)
    write_groups(path, blocks.tables(), schema(row_type))


def read_table(path: Path, row_type: type, only: Sequence[str] | None = None) -> pa.Table | None:
    """A file's rows as they are, or `only` these of its columns; None with a warning if it cannot be used."""
    return _read_file(path, schema(row_type), only)


def write_table(path: Path, table: pa.Table) -> None:
    """Write such rows into an existing folder."""
    write_groups(path, [table], table.schema)


def renamed(table: pa.Table, old: str, new: str) -> pa.Table:
    """The same rows, of another experiment where they name this one."""
    if _EXPERIMENT not in table.column_names:
        return table
    place = table.column_names.index(_EXPERIMENT)
    names = pc.if_else(pc.equal(table[place], old), new, table[place])
    return table.set_column(place, table.schema.field(place), names)


def digest(tables: Iterable[pa.Table | None]) -> str:
    """SHA-256 over the values of tables in this order; columns without any value count as absent."""
    sha = hashlib.sha256()
    for table in tables:
        columns = {} if table is None else dict(zip(table.column_names, table.columns, strict=True))
        for name, column in sorted(columns.items()):
            if column.null_count < len(column):
                sha.update(f"{name}:{json.dumps(column.to_pylist())}\n".encode())
    return sha.hexdigest()


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A hidden file, to be written in place of another: a reader sees the old one or the new one."""
    temporary = path.parent / hidden_name(path.name)
    try:
        yield temporary
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def replace_text(path: Path, text: str) -> None:
    """Write a text file in one stroke."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def frame(tables: Iterable[pa.Table | None], row_type: type, only: Sequence[str] | None = None) -> pd.DataFrame:
    """Rows of many tables in one frame with the columns of `row_type`, or `only` some of them; None is skipped.

    Columns without missing values by contract are plain numpy; a missing value is NA in other columns of whole numbers
    and truth values, nan in the rest. Lists come as numpy arrays.
    """
    fields = schema(row_type) if only is None else pa.schema([schema(row_type).field(name) for name in only])
    known = (table.select(fields.names) for table in tables if table is not None)
    batches = [fields.empty_table()]
    while batch := list(itertools.islice(known, _BATCH)):
        batches.append(pa.concat_tables(batch).combine_chunks() if len(batch) > 1 else batch[0])
    if len(batches) == 1:
        return _empty(row_type)[list(only or schema(row_type).names)].copy()
    whole = [pa.concat_tables(batches)]
    del tables, known, batch, batches  # what nobody else holds goes while it is converted
    return _frame(whole.pop())


@cache
def _empty(row_type: type) -> pd.DataFrame:
    return _frame(schema(row_type).empty_table())


def _frame(table: pa.Table) -> pd.DataFrame:
    nullable = {pa.int64(): pd.Int64Dtype(), pa.bool_(): pd.BooleanDtype()}
    plain = [field.name for field in table.schema if field.type in nullable and not field.nullable]
    names, rest = table.column_names, table.drop_columns(plain)
    table = table.select(plain)
    parts = [table.to_pandas(self_destruct=True), rest.to_pandas(types_mapper=nullable.get, self_destruct=True)]
    return pd.concat(parts, axis=1)[names]


def has_footer(path: Path) -> bool:
    """Whether a file is there and ends as a parquet file does, which one that was cut off does not."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(size - _END, 0))
            end = file.read()
        return end[-4:] == _MAGIC and 4 + int.from_bytes(end[:4], "little") + _END <= size
    except OSError:
        return False


@contextlib.contextmanager
def warned_once() -> Iterator[None]:
    """Show each warning once, and our own as a sentence alone.

    Python forgets what it has shown whenever a library changes the filters.
    """
    show, layout, shown = warnings.showwarning, warnings.formatwarning, set[str]()

    def once(message: Warning | str, *rest: Any, **more: Any) -> None:
        if str(message) not in shown:
            shown.add(str(message))
            show(message, *rest, **more)

    def sentence(
        message: Warning | str, category: type[Warning], filename: str, lineno: int, line: str | None = None
    ) -> str:
        return f"{message}\n" if category is UserWarning else layout(message, category, filename, lineno, line)

    warnings.showwarning, warnings.formatwarning = once, sentence
    try:
        yield
    finally:
        warnings.showwarning, warnings.formatwarning = show, layout


def sync_folder(folder: Path) -> None:
    """Make names that are new in a folder outlive the machine."""
    descriptor = os.open(folder, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)


def write_groups(path: Path, groups: Iterable[pa.Table], fields: pa.Schema, level: int | None = None) -> None:
    """Write tables of one schema, a row group each; `level` is zstd's, None: as suits the size of the first."""
    rest = iter(groups)
    first = next(rest, fields.empty_table())
    with replacing(path) as temporary, temporary.open("xb") as file:
        encoding = _encoding(fields, first.nbytes, level)
        with pq.ParquetWriter(file, fields, **encoding, write_statistics=False, write_page_checksum=True) as writer:
            for group in filter(len, itertools.chain([first], rest)):
                writer.write_table(group, row_group_size=len(group))
        file.flush()
        os.fsync(file.fileno())
    sync_folder(path.parent)


def _encoding(fields: pa.Schema, size: int, level: int | None) -> dict[str, Any]:
    """Options of a writer for so many bytes of values."""
    if level is None and size < _SMALL:
        return {"compression": "snappy", "use_dictionary": False}
    measured = [field.name for field in fields if field.type == pa.float64()]  # seldom twice: bytes of a kind together
    return {
        "compression": "zstd",
        "compression_level": level or _LEVEL,
        "use_dictionary": [field.name for field in fields if field.name not in measured],
        "use_byte_stream_split": measured,
    }


def copy_file(source: Path, path: Path) -> None:
    """Copy a file into an existing folder; a reader sees the old one or the new one, also after a power cut."""
    with replacing(path) as temporary:
        shutil.copyfile(source, temporary)
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
    sync_folder(path.parent)


def _read_file(path: Path, expected: pa.Schema, only: Sequence[str] | None) -> pa.Table | None:
    problem = "its columns or run ids are not those that belong under its name"
    try:
        # Not through a dataset, which would take "run_id=" in the name for a partition and make a column of it.
        small = path.stat().st_size < _SMALL
        source = pa.BufferReader(path.read_bytes()) if small else path
        with pq.ParquetFile(source, page_checksum_verification=True, pre_buffer=False) as file:
            names = None
            if only is not None and file.schema_arrow.equals(expected):
                expected = pa.schema([field for field in expected if field.name in (*only, "run_id")])
                names = expected.names
            table = completed(file.read(names, use_threads=not small), expected)
        if table.schema.equals(expected) and {path.name} >= set(map(file_name, table["run_id"].unique().to_pylist())):
            return table
    except UNREADABLE as error:
        problem = f"it is not a readable parquet file ({reason(error)})"
    skipped(path, problem, "its cell")
    return None


def skipped(path: Path, problem: str, cells: str) -> None:
    """Warn of a file that cannot be used."""
    warnings.warn(f"Skipped {path}: {problem}; delete it, and {cells} will be run again.", stacklevel=3)


def reason(error: Exception) -> str:
    """The first line of what an error says."""
    return str(error).strip().partition("\n")[0].rstrip(".")


def completed(table: pa.Table, expected: pa.Schema) -> pa.Table:
    """Another version may have written fewer columns, those that may be missing, or in another order.

    It may also have had a value in every row of a column that may lack some now.
    """
    if table.schema.equals(expected) or not set(table.column_names) <= set(expected.names):
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
