"""One parquet file of many cells' rows of a table: a row group for the experiments of a paper.

The footer says which experiments hold which cells, in the order of their rows, and how many rows each cell has. Equal
rows of a run stand once; their column `experiment` names all that hold them, with commas. Older files have a row group
for each such set of experiments.
"""

from __future__ import annotations

import contextlib
import itertools
import json
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from specdec_trees.results.parquet import UNREADABLE, completed, digest, reason, renamed, skipped, write_groups
from specdec_trees.results.rows import schema

Cells = dict[str, dict[str, pa.Table]]
"""Rows of one table by experiment and run id."""
_CELLS = b"cells"
_LEVEL = 19
"""Of compression: such files are written seldom, and committed."""


def write_pack(path: Path, cells: Cells) -> None:
    """Write the rows of some experiments' cells (at least one) into one file; equal rows of a run stand once."""
    groups = sorted(_shared(cells).items())
    footer = [[names, {run_id: len(rows) for run_id, rows in sorted(by_id.items())}] for names, by_id in groups]
    whole = [(names, pa.concat_tables(rows for _, rows in sorted(by_id.items()))) for names, by_id in groups]
    named = (renamed(rows, "", ", ".join(names)) for names, rows in whole)
    described = [table.replace_schema_metadata({_CELLS: json.dumps(footer)}) for table in named]
    papers = [names[0].partition("/")[0] for names, _ in groups]
    by_paper = itertools.groupby(zip(papers, described, strict=True), key=lambda pair: pair[0])
    tables = [pa.concat_tables(table for _, table in pairs) for _, pairs in by_paper]
    write_groups(path, tables, tables[0].schema, level=_LEVEL)


def read_pack(path: Path, row_type: type, experiment: str | None = None) -> Cells | None:
    """The rows of such a file, of one experiment or of all; None with a warning if it cannot be used."""
    with _explained(path):
        return _read(path, row_type, experiment)
    return None


def kept_pack(path: Path, row_type: type, experiment: str) -> Cells | None:
    """The same of one experiment, nothing without a file; the last two are kept as long as their files stay."""
    with _explained(path):
        try:
            status = path.stat()
        except (FileNotFoundError, NotADirectoryError):
            return {}
        return _kept(path, row_type, experiment, status.st_ino, status.st_mtime_ns, status.st_size)
    return None


@contextlib.contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Warn of a pack that cannot be used."""
    try:
        yield
    except UNREADABLE as error:
        skipped(path, f"it is not a readable pack ({reason(error)})", "its cells")


@lru_cache(maxsize=2)
def _kept(path: Path, row_type: type, experiment: str, *_status: int) -> Cells:
    return _read(path, row_type, experiment)


def _read(path: Path, row_type: type, experiment: str | None) -> Cells:
    with pq.ParquetFile(path, page_checksum_verification=True) as file:
        return _unpacked(file, schema(row_type), experiment)


def packed_cells(path: Path) -> Mapping[str, frozenset[str]]:
    """The run ids of such a file by experiment, of which the footer alone is read; none if it is not there or cut."""
    try:
        status = path.stat()
    except OSError:
        return {}
    return _packed_cells(path, status.st_ino, status.st_mtime_ns, status.st_size)


def _shared(cells: Cells) -> dict[tuple[str, ...], dict[str, pa.Table]]:
    """Rows by the experiments that hold them, of equal rows of a run once, and by run id."""
    copies: dict[str, list[tuple[str, pa.Table]]] = {}
    for name, by_id in sorted(cells.items()):
        for run_id, rows in by_id.items():
            copies.setdefault(run_id, []).append((name, renamed(rows, name, "")))
    shared: dict[tuple[str, ...], dict[str, pa.Table]] = {}
    for run_id, tables in copies.items():
        names_of: dict[str, list[str]] = {}
        for name, rows in tables:
            names_of.setdefault(digest([rows]) if len(tables) > 1 else "", []).append(name)
        for names in names_of.values():
            shared.setdefault(tuple(names), {})[run_id] = dict(tables)[names[0]]
    return shared


def _unpacked(file: pq.ParquetFile, expected: pa.Schema, experiment: str | None) -> Cells:
    """The cells of a pack, or of one experiment; ValueError where rows are not as the footer counts them."""
    footer, cells, at = _footer(file.schema_arrow), Cells(), 0
    groups = _RowGroups(file)
    for names, counts in footer:
        count = sum(counts.values())
        if experiment is None or experiment in names:
            rows = groups.rows(at, count)
            parts = _parts(completed(rows, expected).replace_schema_metadata(), expected, counts)
            for name in names if experiment is None else [experiment]:
                named = {run_id: renamed(part, ", ".join(names), name) for run_id, part in parts.items()}
                cells.setdefault(name, {}).update(named)
        at += count
    if at != groups.ends[-1]:
        raise ValueError("its footer counts other rows")
    return cells


class _RowGroups:
    """The rows of a file, of which each row group is read once, when it is asked for."""

    def __init__(self, file: pq.ParquetFile) -> None:
        sizes = (file.metadata.row_group(group).num_rows for group in range(file.num_row_groups))
        self.ends = [0, *itertools.accumulate(sizes)]
        self._file, self._tables = file, dict[int, pa.Table]()

    def rows(self, start: int, count: int) -> pa.Table:
        """Rows of one group; ValueError where they lie in several."""
        if not count:
            return self._file.read_row_groups([])
        group = bisect_right(self.ends, start) - 1
        if start + count > self.ends[min(group + 1, len(self.ends) - 1)]:
            raise ValueError("its footer counts other rows")
        if group not in self._tables:
            self._tables[group] = self._file.read_row_groups([group])
        return self._tables[group].slice(start - self.ends[group], count)


def _parts(table: pa.Table, expected: pa.Schema, counts: Mapping[str, int]) -> dict[str, pa.Table]:
    """The rows of each cell of a row group."""
    parts, start = {}, 0
    for run_id, count in counts.items():
        parts[run_id] = table.slice(start, count)
        start += count
    strangers = any({*part["run_id"].unique().to_pylist()} - {run_id} for run_id, part in parts.items())
    if strangers or not table.schema.equals(expected):
        raise ValueError("its columns or run ids are not those that its footer names")
    return parts


@lru_cache(maxsize=64)
def _packed_cells(path: Path, *_status: int) -> Mapping[str, frozenset[str]]:
    cells: dict[str, set[str]] = {}
    with contextlib.suppress(*UNREADABLE):
        for names, counts in _footer(pq.read_schema(path)):
            for name in names:
                cells.setdefault(name, set()).update(counts)
    return {name: frozenset(run_ids) for name, run_ids in cells.items()}


def _footer(fields: pa.Schema) -> list[tuple[list[str], dict[str, int]]]:
    """Of each group of cells the experiments that hold them and how many rows each has. ValueError if it says none."""
    if _CELLS not in (fields.metadata or {}):
        raise ValueError("its footer does not say whose rows it holds")
    footer: list[tuple[list[str], dict[str, int]]] = json.loads(fields.metadata[_CELLS])
    return footer
