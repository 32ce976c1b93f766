"""From outputs and the files that they wrote to what the pages show of them."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Sequence
from io import BytesIO
from pathlib import Path

from PIL import Image

from bench.artifacts.outputs import Html, Output
from bench.artifacts.style import Figure
from bench.artifacts.tables import ABSENT, Table, leading_constants
from bench.report.site import verdicts
from bench.report.site.links import Links
from bench.report.site.plots import empty
from bench.report.site.values import Cell, FigureView, Header, Link, PageView, TableView, View

DETAILS = "_details"
"""What the name of a table ends with that has another one's rows at length."""
_CSS_DPI = 96
_INTERVAL = re.compile(r"(.*\S)\s+(\[[^\[\]]*\])\s*(.*)", re.DOTALL)
_NUMBER = re.compile(r"[+-]?\d[\d.,]*\s?[%x]?(\s.*)?", re.DOTALL)


def of(output: Output, files: Sequence[Path], links: Links, beside: Sequence[Output] = ()) -> View:
    """What is shown of an output that wrote these files, among the outputs `beside` it."""
    written = tuple(links.file(path) for path in files)
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
    if verdicts.is_verdict(header.text):
        return Cell(text, tone=verdicts.TONES.get(verdicts.word(text), "none"))
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
