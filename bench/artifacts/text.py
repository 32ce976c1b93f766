"""A page of coloured monospaced text as a figure."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from typing import Any

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure as Canvas
from matplotlib.font_manager import findfont, get_font
from matplotlib.patches import Rectangle

from bench.artifacts.style import styled

_FONT = "DejaVu Sans Mono"
_WIDTH = 92  # characters a line
_LINES = 70  # of the answer; the HTML page has all of it
_SIZE = 8.0  # points
_CELL = (
    _SIZE * 0.602 / 72,
    _SIZE * 1.55 / 72,
)  # inches of a character: DejaVu Sans Mono's advance, and the line height
WHITE = "#FFFFFF"


@dataclass(frozen=True, slots=True)
class Look:
    """How the pieces of one kind are written, and the words that say in the key what they are."""

    words: str
    ink: str
    paper: str = WHITE
    underline: str = ""  # "solid", "dotted" or none: colour is never the only cue


Run = tuple[str, Look]


@styled
def page(title: str, prompt: str, pieces: Sequence[Run], key: Sequence[Look], summary: str) -> Canvas:
    """Prompt and answer, every piece in its look; the key stands between them, the summary below."""
    answer = _lines(pieces)
    cut, answer = len(answer) - _LINES, answer[:_LINES]
    above = [*textwrap.wrap(title, _WIDTH), ""]
    start = len(above)
    above += _wrapped(prompt)
    below = [f"... and {cut} lines more in the HTML page", ""] if cut > 0 else [""]
    below += textwrap.wrap(summary, _WIDTH)
    canvas, axes = _sheet(len(above) + len(answer) + len(below) + 3)
    axes.add_patch(Rectangle((-1, start - 0.5), _WIDTH + 2, len(above) - start, facecolor="#EEEEEE", linewidth=0))
    _plain(axes, 0, above)
    _key(axes, len(above) + 1, key)
    for offset, line in enumerate(answer):
        _coloured(axes, len(above) + 2.5 + offset, line)
    _plain(axes, len(above) + len(answer) + 3, below)
    return canvas


def _lines(pieces: Iterable[Run]) -> list[list[Run]]:
    """The characters of the pieces in lines of at most `_WIDTH`, each a list of stretches of one look."""
    lines: list[list[Run]] = [[]]
    for text, look in pieces:
        for char in text.expandtabs(4).replace("\r", ""):
            if char == "\n":
                lines.append([])
            else:
                lines[-1].append((char if ord(char) in _glyphs() else "\N{REPLACEMENT CHARACTER}", look))
    while len(lines) > 1 and not lines[-1]:
        lines.pop()
    return [list(_merged(part)) for line in lines for part in _folded(line)]


def _folded(line: list[Run]) -> Iterator[list[Run]]:
    """A line of characters in parts that fit, broken behind the last space if there is one."""
    while len(line) > _WIDTH:
        spaces = [place for place, (char, _) in enumerate(line[:_WIDTH]) if char == " "]
        cut = spaces[-1] + 1 if spaces else _WIDTH
        yield line[:cut]
        line = line[cut:]
    yield line


@cache
def _glyphs() -> frozenset[int]:
    """The characters that the font can draw."""
    return frozenset(get_font(findfont(_FONT)).get_charmap())


def _merged(line: Sequence[Run]) -> Iterator[Run]:
    for look, run in groupby(line, key=lambda cell: cell[1]):
        yield "".join(char for char, _ in run), look


def _wrapped(text: str) -> list[str]:
    return [line for part in text.splitlines() for line in textwrap.wrap(part, _WIDTH) or [""]]


def _sheet(lines: int) -> tuple[Canvas, Axes]:
    """A canvas whose one axes counts in characters, downwards."""
    canvas = Canvas(figsize=((_WIDTH + 4) * _CELL[0], (lines + 2) * _CELL[1]))
    FigureCanvasAgg(canvas)
    axes = canvas.add_axes((0, 0, 1, 1))
    axes.set(xlim=(-2, _WIDTH + 2), ylim=(lines + 1, -1))
    axes.set_axis_off()
    return canvas, axes


def _plain(axes: Axes, line: float, texts: Iterable[str]) -> None:
    for offset, text in enumerate(texts):
        _write(axes, 0, line + offset, text, "#111111")


def _key(axes: Axes, line: float, key: Iterable[Look]) -> None:
    start = 0
    for look in key:
        _coloured(axes, line, [(look.words, look)], start)
        start += len(look.words) + 2


def _coloured(axes: Axes, line: float, runs: Iterable[Run], start: int = 0) -> None:
    for text, look in runs:
        end = start + len(text)
        axes.add_patch(Rectangle((start, line - 0.5), len(text), 1, facecolor=look.paper, linewidth=0))
        if look.underline:
            rule: Any = {"color": look.ink, "linestyle": look.underline, "linewidth": 0.8}
            axes.plot([start, end], [line + 0.4, line + 0.4], **rule)
        _write(axes, start, line, text, look.ink)
        start = end


def _write(axes: Axes, column: int, line: float, text: str, ink: str) -> None:
    style: Any = {"family": _FONT, "size": _SIZE, "color": ink, "va": "center_baseline", "ha": "left"}
    axes.text(column, line, text, parse_math=False, **style)
