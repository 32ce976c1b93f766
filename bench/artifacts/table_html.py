"""A table as HTML for notebooks, whose pages have a style of their own: every style stands in its element."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

from bench.artifacts.tables import Table, leading_constants

_SMALL = "font-size: 0.85em; max-width: 75em; white-space: normal"
_CELL = "text-align: left; vertical-align: top; padding: 0.2em 0.6em"
_LONG = 26
"""Characters from which a cell may wrap: numbers with their intervals do not."""


def table_html(table: Table) -> str:
    """Title, rows, notes; the meaning of the columns and the runs unfold, and so does all of an artifact's details."""
    same = leading_constants(table.frame)
    frame = table.frame.drop(columns=list(same)).rename(columns=table.header)
    lines = _row(frame, "th") + "".join(_row(row, "td") for row in frame.itertuples(index=False, name=None))
    names = [str(name) for name in table.frame]
    known = [name for name in names if name in table.legend]
    legend = [f"<b>{escape(table.header(name))}</b>: {escape(table.legend[name])}" for name in known]
    every = ", ".join(f"{name} {value}" for name, value in same.items())
    runs = escape(", ".join(dict.fromkeys(run for run in table.runs if run)))
    content = (
        (f"<p>{escape(table.warning)}</p>" if table.warning else "")
        + (f'<p style="{_SMALL}">In all rows: {escape(every)}.</p>' if same else "")
        + f'<div style="overflow-x: auto"><table>{lines}</table></div>'
        + _list(map(escape, table.notes))
        + _folded("What the columns are", _list(legend))
        + _folded("Runs", f'<p style="{_SMALL}">{runs}</p>' if runs else "")
    )
    title = escape(table.title)
    return _folded(title, content) if table.name.endswith("_details") else f"<p><b>{title}</b></p>{content}"


def _row(texts: Iterable[object], tag: str) -> str:
    cells = (str(text) for text in texts)
    return "<tr>" + "".join(f'<{tag} style="{_style(cell, tag)}">{escape(cell)}</{tag}>' for cell in cells) + "</tr>"


def _style(cell: str, tag: str) -> str:
    if tag == "th":
        return _CELL
    return f"{_CELL}; min-width: {min(20, len(cell) // 3)}em" if len(cell) > _LONG else f"{_CELL}; white-space: nowrap"


def _list(items: Iterable[str]) -> str:
    lines = "".join(f"<li>{item}</li>" for item in items)
    return f'<ul style="{_SMALL}">{lines}</ul>' if lines else ""


def _folded(summary: str, content: str) -> str:
    return f"<details><summary>{summary}</summary>{content}</details>" if content else ""
