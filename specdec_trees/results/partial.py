"""A cell's rows while it runs, prompt by prompt: what is left of it after a kill, and where its next start goes on.

`<experiment>/.partial-<run_id>.jsonl`: what the rows are of, then a line for each start and for each prompt, flushed to
the disk before the next prompt begins. No reader of results looks at it; whoever holds the cell's lock writes it, and
deletes it behind the cell's `runs` row. A line that a kill cut off counts as not written.
"""

from __future__ import annotations

import dataclasses
import errno
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from specdec_trees.results.blocks import Blocks
from specdec_trees.results.parquet import sync_folder
from specdec_trees.results.rows import OF_STEPS, TABLES
from specdec_trees.results.store import explained, within

_PREFIX = ".partial-"


@dataclass(frozen=True, slots=True)
class Entry:
    """What one prompt gave: a turn of a conversation, or with `turn` None what is known at the conversation's end."""

    prompt_id: str
    turn: int | None
    rows: Mapping[str, Sequence[Any] | Blocks]
    """By table."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """Of the start that decoded it, up to this prompt."""


@dataclass(frozen=True, slots=True)
class EarlierStarts:
    """What earlier starts of a cell have left; `starts` has the entries of each, in order."""

    header: Mapping[str, Any]
    """What their rows are of: code, machine, weights, prompts, what is recorded."""
    starts: tuple[tuple[Entry, ...], ...] = ()

    @property
    def entries(self) -> list[Entry]:
        """Those of all starts."""
        return [entry for start in self.starts for entry in start]


class Partial:
    """The file of one cell, which is there from its first decoded prompt until its rows are whole."""

    def __init__(self, folder: Path, run_id: str) -> None:
        self.path = folder / f"{_PREFIX}{run_id}.jsonl"
        self._end: int | None = None
        """Bytes there behind the last line that this object wrote."""

    def read(self) -> EarlierStarts | None:
        """What is there; None where there is nothing that can be used."""
        lines = (line for _, line in self._lines())
        try:
            head = next(lines)
            starts: list[list[Entry]] = []
            for line in lines:
                if "start" in line:
                    starts.append([])
                else:
                    starts[-1].append(_entry(line, head["columns"]))
            return EarlierStarts(head["of"], tuple(map(tuple, starts)))
        except (StopIteration, LookupError, TypeError, ValueError, AttributeError):
            return None

    def begin(self, header: Mapping[str, Any], earlier: EarlierStarts | None) -> None:
        """Note a start of a cell, behind the earlier ones, or the first of a new file."""
        starts, self._end = 1 + len(earlier.starts if earlier else ()), None
        with explained(self.path.parent):
            if earlier is None or not self.path.is_file():
                self.path.unlink(missing_ok=True)
                self._append({"of": header, "columns": {table: _names(kind) for table, kind in TABLES.items()}})
                sync_folder(self.path.parent)
            else:
                self._repair()
            self._append({"start": starts})

    def add(self, entry: Entry) -> None:
        """Write a prompt's rows; they outlive the process and the machine when this returns. StoreError if not."""
        rows = {table: [_values(row) for row in found] for table, found in entry.rows.items() if found}
        line = {"prompt_id": entry.prompt_id, "turn": entry.turn, "rows": rows, "facts": entry.facts}
        with explained(self.path.parent):
            self._append(line)

    def drop(self) -> None:
        """Delete it."""
        with explained(self.path.parent):
            self.path.unlink(missing_ok=True)

    def _append(self, line: Mapping[str, Any]) -> None:
        data = json.dumps(line, separators=(",", ":"), default=_plain).encode() + b"\n"
        size = self.path.stat().st_size if self.path.is_file() else 0
        if self._end not in (None, size):
            raise OSError(errno.EBUSY, "another process runs the same cell: the file system has lost the cell's lock")
        with self.path.open("ab", buffering=0) as file:
            before = file.seek(0, os.SEEK_END)
            if file.write(data) != len(data):
                file.truncate(before)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))  # a disk that fills up takes a part
            os.fsync(file.fileno())
        self._end = before + len(data)

    def _lines(self) -> Iterator[tuple[int, Any]]:
        """The bytes and the value of each line that is whole."""
        if not self.path.is_file():
            return
        with self.path.open("rb") as file:
            for line in file:
                try:
                    if line.endswith(b"\n"):
                        yield len(line), json.loads(line)
                        continue
                except ValueError:
                    pass
                return

    def _repair(self) -> None:
        """Cut off what a kill has left of a line, and all behind it."""
        with self.path.open("rb+") as file:
            file.truncate(sum(size for size, _ in self._lines()))
            os.fsync(file.fileno())


def cells(root: Path) -> list[tuple[str, str]]:
    """Experiment and run id of all such files below a folder of results."""
    found = ((path.parent.relative_to(root).as_posix(), path.stem) for path in within(root, f"{_PREFIX}*.jsonl"))
    return sorted((experiment, stem.removeprefix(_PREFIX)) for experiment, stem in found)


def _entry(line: Mapping[str, Any], columns: Mapping[str, Sequence[str]]) -> Entry:
    rows = {
        table: _gathered(table, [dict(zip(columns[table], values, strict=True)) for values in found])
        for table, found in line["rows"].items()
    }
    return Entry(line["prompt_id"], line["turn"], rows, line["facts"])


def _gathered(table: str, rows: Sequence[Mapping[str, Any]]) -> Sequence[Any] | Blocks:
    """Rows of a table; those of steps as columns."""
    made = [TABLES[table](**row) for row in rows]
    if table not in OF_STEPS:
        return made
    blocks = Blocks(TABLES[table], made)
    blocks.settle()
    return blocks


def _names(row_type: type) -> list[str]:
    return [each.name for each in dataclasses.fields(row_type)]


def _values(row: Any) -> list[Any]:
    return [getattr(row, name) for name in _names(type(row))]


def _plain(value: Any) -> Any:
    """A number or an array of numpy's or torch's as Python has it."""
    return value.tolist()
