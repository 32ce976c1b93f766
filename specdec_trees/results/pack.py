"""Where a table's rows lie: a file per cell, or the cells of all experiments in one, `rows/<table>.parquet`.

So results are committed. A cell's own file stands before its packed rows: new runs go on as ever, and a kill while
packing doubles nothing. Rows that several experiments share stand once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from specdec_trees.results import locks
from specdec_trees.results.pack_file import Cells, kept_pack, packed_cells, read_pack, write_pack
from specdec_trees.results.parquet import file_name, has_footer, names_in, read_table
from specdec_trees.results.rows import TABLES

FOLDER = "rows"
"""The folder of the packed tables, at the top of a folder of results."""


class PackError(RuntimeError):
    """Rows cannot be packed; the message says why and what to do."""


def path_of(root: Path, table: str) -> Path:
    """The file of a table's packed rows."""
    return root / FOLDER / f"{table}.parquet"


def experiments(root: Path, tables: Iterable[str] = TABLES) -> set[str]:
    """Those that have packed rows of these tables in a folder of results; of each pack the footer alone is read."""
    return {name for table in tables for name in packed_cells(path_of(root, table))}


@dataclass(frozen=True, slots=True)
class TableFolder:
    """The rows of one table of an experiment: its own folder of files, and its part of the pack."""

    root: Path
    experiment: str
    table: str

    @property
    def path(self) -> Path:
        """The folder of cells' own files."""
        return self.root / self.experiment / self.table

    @property
    def row_type(self) -> type:
        """What the rows are read as."""
        return TABLES[self.table]

    @property
    def pack_path(self) -> Path:
        """The file of many cells."""
        return path_of(self.root, self.table)

    def ids(self) -> set[str]:
        """The cells that have rows here, be they none; of a pack the footer alone is read."""
        return {*self.files(), *self._packed_ids()}

    def has(self, run_id: str) -> bool:
        """Whether a cell is one of these."""
        return self._file(run_id).exists() or run_id in self._packed_ids()

    def whole(self, run_id: str) -> bool:
        """Whether it is, and its file was not cut off."""
        path = self._file(run_id)
        return has_footer(path) if path.exists() else run_id in self._packed_ids()

    def tables(
        self, run_ids: Iterable[str] | None = None, only: Sequence[str] | None = None
    ) -> Iterator[pa.Table | None]:
        """Rows as they are, of some cells in this order or of all by name; None with a warning for a useless file.

        Of cells' own files `only` these columns are read, if they are given, and that of the cells' names.
        """
        if run_ids is None:
            yield from (rows for _, rows in self.each(only))
            return
        packed_ids = self._packed_ids()
        for run_id in dict.fromkeys(run_ids):
            if (path := self._file(run_id)).exists():
                yield read_table(path, self.row_type, only)
            elif run_id in packed_ids and (packed := self._packed()) is not None and run_id in packed:
                yield packed[run_id]

    def each(self, only: Sequence[str] | None = None) -> Iterator[tuple[str, pa.Table | None]]:
        """Every cell with its rows; None with a warning for a useless file, a warning for one of another name."""
        for name in filter(_is_stranger, names_in(self.path)):
            read_table(self.path / name, self.row_type)
        packed, files = self._packed() or {}, self.files()
        for run_id in sorted(packed.keys() | files.keys()):
            yield run_id, read_table(files[run_id], self.row_type, only) if run_id in files else packed[run_id]

    def by_id(self) -> dict[str, pa.Table | None]:
        """All of them at once."""
        return dict(self.each())

    def files(self) -> dict[str, Path]:
        """Cells' own files."""
        before, _, behind = file_name("*").partition("*")
        return {
            name.removeprefix(before).removesuffix(behind): self.path / name
            for name in names_in(self.path)
            if name.startswith(before) and name.endswith(behind)
        }

    def forget(self, run_id: str) -> None:
        """Delete a cell's rows; a pack that cannot be read stays."""
        self._file(run_id).unlink(missing_ok=True)
        if run_id in self._packed_ids():
            with locks.lock(self.pack_path.parent, self.table, wait=True):
                rows = read_pack(self.pack_path, self.row_type)
                if rows and rows.get(self.experiment, {}).pop(run_id, None) is not None:
                    _write(self.pack_path, rows)

    def _file(self, run_id: str) -> Path:
        return self.path / file_name(run_id)

    def _packed_ids(self) -> Collection[str]:
        return packed_cells(self.pack_path).get(self.experiment, ())

    def _packed(self) -> Mapping[str, pa.Table] | None:
        """The packed rows of the experiment by cell; None with a warning if the pack cannot be used."""
        rows = kept_pack(self.pack_path, self.row_type, self.experiment)
        return None if rows is None else rows.get(self.experiment, {})


def _is_stranger(name: str) -> bool:
    return name.endswith(".parquet") and not name.startswith((".", file_name("*").partition("*")[0]))


def pack(root: Path, names: Iterable[str]) -> dict[str, int]:
    """Move the rows of these experiments' own files into the packs; how many files of each went.

    A pack is written whole before a file is deleted, and a file that was replaced meanwhile stays, as does one that
    cannot be read. PackError if there is a pack that cannot be read.
    """
    counts = dict.fromkeys(names, 0)
    for table in TABLES:
        folders = [TableFolder(root, name, table) for name in counts]
        for name in _into_pack([folder for folder in folders if folder.files()]):
            counts[name] += 1
    return counts


def _into_pack(folders: Sequence[TableFolder]) -> Iterator[str]:
    """Pack one table of some experiments; the experiment of each file that went."""
    if not folders:
        return
    path, row_type = folders[0].pack_path, folders[0].row_type
    path.parent.mkdir(parents=True, exist_ok=True)
    with locks.lock(path.parent, folders[0].table, wait=True):
        rows = read_pack(path, row_type) if path.exists() else {}
        if rows is None:
            raise PackError(f"{path} cannot be read: bring it back, or delete it to lose its cells.")
        packed = []
        for folder in folders:
            files = {run_id: (file, file.stat()) for run_id, file in folder.files().items()}
            new = {run_id: read_table(file, row_type) for run_id, (file, _) in files.items()}
            readable = {run_id: table for run_id, table in new.items() if table is not None}
            rows[folder.experiment] = rows.get(folder.experiment, {}) | readable
            packed += [(folder.experiment, *files[run_id]) for run_id in readable]
        if packed:
            _write(path, rows)
        for name, file, before in packed:
            now = file.stat()
            if (now.st_ino, now.st_mtime_ns) == (before.st_ino, before.st_mtime_ns):
                file.unlink()
            yield name


def _write(path: Path, rows: Cells) -> None:
    if any(rows.values()):
        write_pack(path, rows)
    else:
        path.unlink()
