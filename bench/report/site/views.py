"""What the pages show of an output, as values: a table, a figure or a page, with links to the files it wrote."""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import Collection, QuadMesh
from matplotlib.transforms import Transform
from PIL import Image

from bench.artifacts.outputs import Html, Output
from bench.artifacts.style import Figure
from bench.artifacts.tables import ABSENT, Table, leading_constants
from bench.report.site import status

DETAILS = "_details"
"""What the name of a table ends with that has another one's rows at length."""
_CSS_DPI = 96
_INTERVAL = re.compile(r"(.*\S)\s+(\[[^\[\]]*\])\s*(.*)", re.DOTALL)
_NUMBER = re.compile(r"[+-]?\d[\d.,]*\s?[%x]?(\s.*)?", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Link:
    """Words and where they lead, relative to the folder of the pages."""

    words: str
    href: str


@dataclass(frozen=True, slots=True)
class Header:
    """A column's name, its meaning if the legend has it, and whether it holds numbers."""

    text: str
    meaning: str = ""
    numeric: bool = False


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell's words, the interval and the mark behind them, and the tone of a verdict (part of its CSS class)."""

    text: str
    interval: str = ""
    mark: str = ""
    tone: str = ""


@dataclass(frozen=True, slots=True)
class TableView:
    """A table as it is drawn; `headers` and the cells of each row are in the same order."""

    title: str
    headers: tuple[Header, ...]
    rows: tuple[tuple[Cell, ...], ...]
    notes: tuple[str, ...]
    legend: tuple[tuple[str, str], ...]
    files: tuple[Link, ...]
    folded: str = ""
    warning: str = ""
    kind: str = "table"


@dataclass(frozen=True, slots=True)
class FigureView:
    """A figure as a data URI, with its size in CSS pixels at which its print is 9 points."""

    title: str
    source: str
    width: int
    height: int
    files: tuple[Link, ...]
    folded: str = ""
    kind: str = "figure"


@dataclass(frozen=True, slots=True)
class PageView:
    """A self-contained page that is shown in a frame."""

    text: str
    files: tuple[Link, ...]
    folded: str = ""
    kind: str = "page"


View = TableView | FigureView | PageView
"""`folded`: the words under which it is folded away, "" if it is not; `kind` tells templates which one it is."""


def of(output: Output, files: Sequence[Path], out: Path, beside: Sequence[Output] = ()) -> View:
    """What pages in `out` show of an output that wrote these files, among the outputs `beside` it."""
    written = tuple(link(path, out) for path in files)
    same = [type(other) for other in beside if other.name == output.name and other is not output]
    if isinstance(output, Table):
        return _table(output, written, drawn=Figure in same)
    if isinstance(output, Figure):
        return _figure(output, next(path for path in files if path.suffix == ".png"), written, told=Html in same)
    if isinstance(output, Html):
        return PageView(output.text, written)
    raise TypeError(f"the report cannot show a {type(output).__name__}")


def is_empty(output: Output) -> bool:
    """Whether there is nothing to see in an output."""
    if isinstance(output, Table):
        return output.frame.empty
    return isinstance(output, Figure) and empty(output)


def _table(table: Table, files: tuple[Link, ...], *, drawn: bool) -> TableView:
    """Details are folded away, and so is what a figure shows; what is the same in all rows is a note."""
    count = f"{len(table.frame)} row{'s' * (len(table.frame) != 1)}"
    words = "Details" if table.name.endswith(DETAILS) else "The numbers" if drawn else ""
    every = [
        Header(table.header(str(name)), table.legend.get(str(name), ""), _is_numeric(table.frame[name]))
        for name in table.frame
    ]
    same = leading_constants(table.frame)
    constant = ", ".join(f"{table.header(name)} {value}" for name, value in same.items())
    headers, rows = every[len(same) :], table.frame.iloc[:, len(same) :].itertuples(index=False, name=None)
    return TableView(
        title=table.title,
        headers=tuple(headers),
        rows=tuple(tuple(_cell(header, str(text)) for header, text in zip(headers, row, strict=True)) for row in rows),
        notes=(*[f"In all rows: {constant}."] * bool(same), *table.notes),
        legend=tuple((header.text, header.meaning) for header in every if header.meaning),
        files=files,
        folded=f"{words} ({count})" if words else "",
        warning=table.warning,
    )


def _cell(header: Header, text: str) -> Cell:
    if status.is_verdict(header.text):
        return Cell(text, tone=status.TONES.get(status.word(text), "none"))
    parts = _INTERVAL.fullmatch(text) if header.numeric else None
    return Cell(*parts.groups()) if parts else Cell(text)


def _is_numeric(column: Iterable[str]) -> bool:
    """Whether all cells that say something begin with a number; an interval or a mark may follow."""
    said = [str(text) for text in column if str(text) not in (ABSENT, "")]
    return bool(said) and all(_NUMBER.fullmatch(text) for text in said)


def _figure(figure: Figure, png: Path, files: tuple[Link, ...], *, told: bool) -> FigureView:
    """A page of the same name shows it already."""
    content = png.read_bytes()
    with Image.open(BytesIO(content)) as image:
        width, height = (
            round(pixels * _CSS_DPI / dpi) for pixels, dpi in zip(image.size, image.info["dpi"], strict=True)
        )
    return FigureView(
        title=figure.title,
        source=f"data:image/png;base64,{base64.b64encode(content).decode()}",
        width=width,
        height=height,
        files=files,
        folded="The same as a figure" if told else "",
    )


def empty(figure: Figure) -> bool:
    """Whether no axes has a line, mark, bar, area or image that stands for data.

    Text is no data, nor is what does not follow the data's coordinates on both axes, such as a rule across a panel.
    """
    return not any(found for axes in figure.canvas.axes for found in _data(axes))


def _data(axes: Axes) -> Iterator[bool]:
    yield from (_any_number(image.get_array()) for image in axes.images)
    yield from (_on(axes, line.get_transform()) and _any_point(line.get_xydata()) for line in axes.lines)
    yield from (_on(axes, patch.get_transform()) and _any_point(patch.get_extents().extents) for patch in axes.patches)
    yield from (_collected(axes, collection) for collection in axes.collections)


def _collected(axes: Axes, collection: Collection) -> bool:
    if isinstance(collection, QuadMesh):
        return _any_number(collection.get_array())
    if _on(axes, collection.get_offset_transform()):
        return _any_point(collection.get_offsets())
    paths = collection.get_paths()
    return _on(axes, collection.get_transform()) and any(_any_point(path.vertices) for path in paths)


def _on(axes: Axes, transform: Transform) -> bool:
    """Whether both coordinates are the data's."""
    return all(transform.contains_branch_seperately(axes.transData))


def _any_number(values: Any) -> bool:
    """Whether an array has an entry that is neither masked nor infinite nor nan."""
    return bool(np.ma.count(np.ma.masked_invalid(values)))


def _any_point(points: Any) -> bool:
    """Whether a row of an array has all its coordinates."""
    hidden = np.ma.getmaskarray(np.ma.masked_invalid(np.ma.atleast_2d(points)))
    return bool((~hidden.any(axis=-1)).any())


def link(path: Path, out: Path) -> Link:
    """From the pages in `out` to a file by its suffix, `PDF`; relative, so that results and report can be moved."""
    return Link(path.suffix.removeprefix(".").upper(), _href(path, out))


def folders(results: Path, out: Path) -> tuple[Link, ...]:
    """To what is in an artifact's folder: its tables of rows, and files such as a plan or a case study."""
    found = sorted(path for path in results.glob("*") if not path.name.startswith("."))
    inner = [path for path in found if path.is_file() or any(path.glob("*.parquet"))]
    return tuple(Link(path.name + "/" * path.is_dir(), _href(path, out) + "/" * path.is_dir()) for path in inner)


def _href(path: Path, out: Path) -> str:
    return quote(Path(os.path.relpath(path.resolve(), out.resolve())).as_posix())
