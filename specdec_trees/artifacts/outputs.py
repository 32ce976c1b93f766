"""What an artifact is: how the rows behind it are read, what builds it, and the outputs that it is made of.

Outputs are values with a name that write themselves into a folder: `Table`, `Figure`, `Html`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from specdec_trees.results import progress, store
from specdec_trees.results.parquet import replace_text


class NoResultsError(Exception):
    """There is nothing to report on; the message says what is missing."""


class Output(Protocol):
    """A table, figure or page; `name` is the stem of its files."""

    @property
    def name(self) -> str:
        """The stem of the files it writes."""
        ...

    def write(self, folder: Path) -> list[Path]:
        """Write its files into an existing folder and return their paths."""
        ...


@dataclass(frozen=True, slots=True)
class Html:
    """A self-contained page."""

    name: str
    text: str

    def write(self, folder: Path) -> list[Path]:
        """Write `<name>.html`."""
        path = folder / f"{self.name}.html"
        replace_text(path, self.text)
        return [path]


def write_all(outputs: Iterable[Output], folder: Path) -> list[Path]:
    """Write every output into `folder`, which is made if needed; the paths in order."""
    folder.mkdir(parents=True, exist_ok=True)
    return [path for output in outputs for path in output.write(folder)]


def read_results(folder: Path, pair: str | None) -> store.Results:
    """The tables in an experiment's folder, first what its plan asks for; NoResultsError if nothing was measured."""
    results = store.load(*store.located(folder), pair, first=progress.planned_runs(folder))
    measured = (results.runs, results.latency, results.acceptance, results.attention, results.decisions)
    if all(table.empty for table in measured):
        raise NoResultsError(f"there are none in {folder}")
    return results


@dataclass(frozen=True, slots=True)
class Artifact:
    """`build(name, found)` makes outputs of what `read(folder, pair)` finds."""

    build: Callable[[str, Any], list[Output]]
    read: Callable[[Path, str | None], Any] = read_results
