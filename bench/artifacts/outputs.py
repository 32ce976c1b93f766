"""What a report is made of: values with a name that write themselves into a folder (`Table`, `Figure`, `Html`)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


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
        path.write_text(self.text, encoding="utf-8")
        return [path]


def write_all(outputs: Iterable[Output], folder: Path) -> list[Path]:
    """Write every output into `folder`, which is made if needed; the paths in order."""
    folder.mkdir(parents=True, exist_ok=True)
    return [path for output in outputs for path in output.write(folder)]
