"""Links from the pages to files and folders, relative, so that results and report can be moved together."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from bench.report.site.values import Link


@dataclass(frozen=True, slots=True)
class Links:
    """Links from pages in the folder `out`."""

    out: Path

    def file(self, path: Path) -> Link:
        """To a file, by its suffix: `PDF`."""
        return Link(path.suffix.removeprefix(".").upper(), self._href(path))

    def folders(self, results: Path) -> tuple[Link, ...]:
        """To what is in an artifact's folder: its tables of rows, and files such as a plan or a case study."""
        found = sorted(path for path in results.glob("*") if not path.name.startswith("."))
        inner = [path for path in found if path.is_file() or any(path.glob("*.parquet"))]
        return tuple(Link(path.name + "/" * path.is_dir(), self._href(path) + "/" * path.is_dir()) for path in inner)

    def _href(self, path: Path) -> str:
        return quote(Path(os.path.relpath(path.resolve(), self.out.resolve())).as_posix())
