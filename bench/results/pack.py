"""Where a table's rows lie: a file per cell, or many cells in one, `packed.parquet`, as results are committed.

A cell's own file stands before its rows in the pack: new runs go on as ever, and a kill while packing doubles nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from bench.results import locks
from bench.results.parquet import PACK, file_name, has_footer, packed_ids, read_pack, read_table, write_pack

_LOCK = "pack"


class PackError(RuntimeError):
    """Rows cannot be packed; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class TableFolder:
    """The folder of one table of an experiment."""

    path: Path
    row_type: type

    @property
    def pack_path(self) -> Path:
        """The file of many cells."""
        return self.path / PACK

    def ids(self) -> set[str]:
        """The cells that have rows here, be they none; of a pack the footer alone is read."""
        return {*self._own(), *packed_ids(self.pack_path)}

    def has(self, run_id: str) -> bool:
        """Whether a cell is one of these."""
        return self._file(run_id).exists() or run_id in packed_ids(self.pack_path)

    def whole(self, run_id: str) -> bool:
        """Whether it is, and its file was not cut off."""
        path = self._file(run_id)
        return has_footer(path) if path.exists() else run_id in packed_ids(self.pack_path)

    def tables(self, run_ids: Iterable[str] | None = None) -> list[pa.Table | None]:
        """Rows as they are, of some cells in this order or of all by name; None with a warning for a useless file."""
        names = None if run_ids is None else [file_name(run_id) for run_id in dict.fromkeys(run_ids)]
        found = [path for path in self.path.glob("*.parquet") if not path.name.startswith(".") and path.name != PACK]
        own, packed = {path.name: path for path in found}, {}
        if names is None or not own.keys() >= set(names):
            packed = {file_name(run_id): rows for run_id, rows in (self._packed() or {}).items()}
        there = own.keys() | packed.keys()
        wanted = sorted(there) if names is None else [name for name in names if name in there]
        return [read_table(own[name], self.row_type) if name in own else packed[name] for name in wanted]

    def by_id(self) -> dict[str, pa.Table | None]:
        """All rows by cell; None with a warning for a useless file."""
        own = {run_id: read_table(path, self.row_type) for run_id, path in self._own().items()}
        return dict(sorted(((self._packed() or {}) | own).items()))

    def forget(self, run_id: str) -> None:
        """Delete a cell's rows; a pack that cannot be read stays."""
        self._file(run_id).unlink(missing_ok=True)
        if run_id in packed_ids(self.pack_path):
            with locks.lock(self.path, _LOCK, wait=True):
                rows = self._packed()
                if rows and rows.pop(run_id, None) is not None:
                    self._write(rows)

    def pack(self) -> int:
        """Move the rows of cells' own files into the pack, where they can be read; returns how many files went.

        The pack is written whole before a file is deleted, and a file that was replaced meanwhile stays. PackError if
        there is a pack that cannot be read.
        """
        with locks.lock(self.path, _LOCK, wait=True):
            if (rows := self._packed()) is None:
                raise PackError(f"{self.pack_path} cannot be read: bring it back, or delete it to lose its cells.")
            files = {run_id: (path, path.stat()) for run_id, path in self._own().items()}
            new = {run_id: read_table(path, self.row_type) for run_id, (path, _) in files.items()}
            readable = {run_id: table for run_id, table in new.items() if table is not None}
            if readable:
                self._write(rows | readable)
            for path, before in (files[run_id] for run_id in readable):
                now = path.stat()
                if (now.st_ino, now.st_mtime_ns) == (before.st_ino, before.st_mtime_ns):
                    path.unlink()
        return len(readable)

    def _file(self, run_id: str) -> Path:
        return self.path / file_name(run_id)

    def _own(self) -> dict[str, Path]:
        """Cells' own files."""
        return {path.stem.partition("=")[2]: path for path in self.path.glob(file_name("*"))}

    def _packed(self) -> dict[str, pa.Table] | None:
        return read_pack(self.pack_path, self.row_type) if self.pack_path.exists() else {}

    def _write(self, rows: dict[str, pa.Table]) -> None:
        if rows:
            write_pack(self.pack_path, rows)
        else:
            self.pack_path.unlink()
