"""What the templates show of an output: a table, a figure or a page, with links to the files it wrote."""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import Collection, QuadMesh
from matplotlib.transforms import Transform
from PIL import Image

from specdec_trees.artifacts.outputs import Html, Output
from specdec_trees.artifacts.style import Figure
from specdec_trees.artifacts.tables import ABSENT, PUBLISHED, SETTING, VERDICT, Table, leading_constants
from specdec_trees.report.site import facts
from specdec_trees.results import pack

DETAILS = "_details"
"""What the name of a table ends with that has another one's columns which stand aside."""
OTHERS = "_others"
"""What the names of tables end with that are of a pair's other settings."""
_CSS_DPI = 96
_INTERVAL = re.compile(r"(.*\S)\s+(\[[^\[\]]*\])\s*(.*)", re.DOTALL)
_NUMBER = re.compile(r"[+-]?\d[\d.,]*\s?[%x]?(\s.*)?", re.DOTALL)
Link = tuple[str, str]
"""Words and where they lead, relative to the folder of the pages."""
View = dict[str, Any]
"""An output in the words of the templates: its `kind`, `title` and `files`, the words under which it is `folded` away
("" if it is not), and what its kind is drawn from."""


def of(output: Output, files: Sequence[Path], out: Path, beside: Sequence[Output] = ()) -> View:
    """What pages in `out` show of an output that wrote these files, among the outputs `beside` it."""
    same = [type(other) for other in beside if other.name == output.name and other is not output]
    if isinstance(output, Table):
        view = _table(output, drawn=Figure in same)
    elif isinstance(output, Figure):
        view = _figure(output, next(path for path in files if path.suffix == ".png"), told=Html in same)
    elif isinstance(output, Html):
        view = {"kind": "page", "text": output.text, "folded": ""}
    else:
        raise TypeError(f"the report cannot show a {type(output).__name__}")
    return view | {"files": [link(path, out) for path in files]}


def parts(output: Output, files: Sequence[Path]) -> Iterator[tuple[Output, Sequence[Path]]]:
    """What is shown of an output, with its files: of a table with columns aside these are a table of their own.

    Of one with an answer for each setting every setting is a table.
    """
    if isinstance(output, Table) and output.answers:
        yield from _by_setting(output, files)
        return
    if not (isinstance(output, Table) and output.aside):
        yield output, files
        return
    yield replace(output, frame=output.main, aside=()), files
    bare = replace(output, aside=(), notes=(), findings=(), warning="")
    yield replace(bare, name=output.name + DETAILS, title=f"{output.title}, more columns", frame=output.details), ()


def _by_setting(table: Table, files: Sequence[Path]) -> Iterator[tuple[Table, Sequence[Path]]]:
    """A table for each setting, of a pair the first unfolded; the first of all has the notes and the files."""
    first, pairs = replace(table, findings=()), set[str]()
    alone = replace(first, notes=(), legend={})
    for setting, rows in table.frame.groupby(SETTING, sort=False):
        own, pair = alone if pairs else first, str(rows["pair"].iloc[0])
        name = f"{table.name}{OTHERS * (pair in pairs)}"
        shown, said = rows.drop(columns=["pair", SETTING]), {str(setting): table.answers[str(setting)]}
        yield replace(own, name=name, title=str(setting), frame=shown, answers=said), () if pairs else files
        pairs.add(pair)


def is_empty(output: Output) -> bool:
    """Whether there is nothing to see in an output."""
    if isinstance(output, Table):
        return output.frame.empty
    return isinstance(output, Figure) and empty(output)


def _judged(table: Table) -> bool:
    """Whether it has verdicts."""
    return any(facts.is_verdict(str(name)) for name in table.frame)


def _table(table: Table, *, drawn: bool) -> View:
    """What stands aside is folded away; so is what a figure shows.

    What is the same in all rows is a note. What is judged stands behind the method, with its verdict in its cell.
    """
    count = f"{len(table.frame)} row{'s' * (len(table.frame) != 1)}"
    judged = _judged(table)
    words = "Details" * (table.name.endswith(DETAILS) and not judged)
    words = words or "The numbers" * drawn or table.title * table.name.endswith(OTHERS)
    same = leading_constants(table.frame)
    constant = ", ".join(f"{table.header(name)} {value}" for name, value in same.items())
    names = _in_order([str(name) for name in table.frame][len(same) :])
    headers = [
        {"text": table.header(name), "meaning": table.legend.get(name, ""), "numeric": _is_numeric(table.frame[name])}
        for name in names
    ]
    rows = [dict(row) for _, row in table.frame.iterrows()]
    return {
        "kind": "table",
        "title": table.title,
        "anchor": re.sub(r"\W+", "-", table.title.lower()),
        "answer": " ".join(table.answers.values()),
        "warning": table.warning,
        "judged": judged,
        "headers": headers,
        "rows": [[_cell(name, header, row) for name, header in zip(names, headers, strict=True)] for row in rows],
        "notes": [*table.findings, *[f"In all rows: {constant}."] * bool(same), *table.notes],
        "legend": [
            (table.header(name), table.legend[name]) for name in map(str, table.frame) if table.legend.get(name)
        ],
        "folded": f"{words} ({count})" if words else "",
    }


def _in_order(names: Sequence[str]) -> list[str]:
    """The columns with what is judged behind the method; verdict and published number stand in the cell of ours."""
    own = [name for name in names if name + VERDICT in names]
    within = {column for name in own for column in (name + VERDICT, name + PUBLISHED)}
    own += [name for name in names if facts.is_verdict(name) and name not in within]
    rest = [name for name in names if name not in {*own, *within}]
    first = rest.index("label") + 1 if "label" in rest else 1
    return [*rest[:first], *own, *rest[first:]]


def _cell(name: str, header: View, row: Mapping[str, str]) -> View:
    """The words, the interval and the mark behind them, the published number, the verdict and its tone (CSS)."""
    text, own = str(row[name]), facts.is_verdict(name)
    verdict = text if own else str(row.get(name + VERDICT, ""))
    cell = {"text": "" if own else text, "interval": "", "mark": "", "verdict": verdict, "published": ""}
    cell["tone"] = facts.TONES.get(facts.word(verdict), "none")
    if verdict and not own and (published := str(row.get(name + PUBLISHED, ABSENT))) != ABSENT:
        cell["published"] = published
    parts = _INTERVAL.fullmatch(text) if header["numeric"] else None
    return cell | dict(zip(("text", "interval", "mark"), parts.groups(), strict=True)) if parts else cell


def _is_numeric(column: Iterable[str]) -> bool:
    """Whether all cells that say something begin with a number; an interval or a mark may follow."""
    said = [str(text) for text in column if str(text) not in (ABSENT, "")]
    return bool(said) and all(_NUMBER.fullmatch(text) for text in said)


def _figure(figure: Figure, png: Path, *, told: bool) -> View:
    """A data URI, with the size in CSS pixels at which its print is 9 points; a page of its name shows it already."""
    content = png.read_bytes()
    with Image.open(BytesIO(content)) as image:
        sizes = zip(image.size, image.info["dpi"], strict=True)
        width, height = (round(pixels * _CSS_DPI / dpi) for pixels, dpi in sizes)
    return {
        "kind": "figure",
        "title": figure.title,
        "source": f"data:image/png;base64,{base64.b64encode(content).decode()}",
        "width": width,
        "height": height,
        "folded": "The same as a figure" if told else "",
    }


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
    return path.suffix.removeprefix(".").upper(), _href(path, out)


def folders(results: Path, artifact: str, out: Path) -> tuple[Link, ...]:
    """To what is in an artifact's folder: its tables of rows, and files such as a plan or a case study; to the pack."""
    paths = sorted(path for path in (results / artifact).glob("*") if not path.name.startswith("."))
    inner = [path for path in paths if path.is_file() or any(path.glob("*.parquet"))]
    inner += [results / pack.FOLDER] * (artifact in pack.experiments(results))
    return tuple((path.name + "/" * path.is_dir(), _href(path, out) + "/" * path.is_dir()) for path in inner)


def _href(path: Path, out: Path) -> str:
    return quote(Path(os.path.relpath(path.resolve(), out.resolve())).as_posix())
