"""One answer whose text shows who said what, as a page and as a figure: OPT-Tree's Figure 10, and GSD's Figure 6."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from html import escape
from itertools import groupby
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure as Canvas
from matplotlib.font_manager import findfont, get_font
from matplotlib.patches import Rectangle

from specdec_trees.artifacts.outputs import Html, NoResultsError, Output
from specdec_trees.artifacts.style import Figure, styled

FILE = "case_study.json"
TARGET, DRAFT, LISTED, MERGED = "target", "draft", "listed", "merged"
"""Who said a piece: the target alone, or the draft and the target accepted it; `merged` behind a merge edge."""


@dataclass(frozen=True, slots=True)
class Look:
    """How the pieces of one kind are written, and the words that say in the key what they are."""

    words: str
    ink: str
    paper: str = "#FFFFFF"
    underline: str = ""  # "solid", "dotted" or none: colour is never the only cue


Run = tuple[str, Look]

_BLUE = Look("accepted draft token", "#00507F", "#D6E9F5")
_GAP = Look("", "#111111")
_ORANGE = Look("token of the target", "#8A3D00", "#FBE0CC", "solid")
LOOKS = {DRAFT: _BLUE, LISTED: _BLUE, MERGED: _BLUE, TARGET: _ORANGE}
_STYLE = """
:root { color-scheme: light; }
body { font: 16px/1.6 system-ui, sans-serif; max-width: 46rem; margin: 2rem auto; padding: 0 1rem; color: #111; }
h1 { font-size: 1.25rem; }
.prompt { background: #eee; border-radius: .4rem; padding: .6rem .8rem; }
.prompt, .answer { white-space: pre-wrap; overflow-wrap: anywhere; font: .9rem/1.6 ui-monospace, monospace; }
footer { color: #444; font-size: .9rem; }
"""


@dataclass(frozen=True, slots=True)
class CaseStudy:
    """One generation: `pieces` are texts in order, each with one of `TARGET`, `DRAFT`, `LISTED`, `MERGED`."""

    title: str
    prompt: str
    pieces: list[tuple[str, str]]
    mal: float
    tokens_per_s: float
    run_id: str = ""

    def count(self, *who: str) -> int:
        """How many pieces these said."""
        return sum(by in who for _, by in self.pieces)


def read(folder: Path, pair: str | None = None) -> CaseStudy:
    """The case study of an experiment's folder; NoResultsError if it was not written, ValueError if it is not one."""
    path = folder / FILE
    if not path.exists():
        raise NoResultsError(f"there is no {path}")
    try:
        fields = json.loads(path.read_text(encoding="utf-8"))
        pieces = [(str(text), _known(who)) for text, who in fields["pieces"]]
        return CaseStudy(**{**fields, "pieces": pieces})
    except (TypeError, KeyError, ValueError) as error:
        raise ValueError(f"{path} is not a case study: it needs {', '.join(CaseStudy.__annotations__)}") from error


def speed(study: CaseStudy) -> str:
    """MAL and tokens/s of the answer, in words."""
    return f"MAL {study.mal:.2f}, {study.tokens_per_s:.2f} tokens/s"


def pages(name: str, study: CaseStudy, looks: Mapping[str, Look], summary: str) -> list[Output]:
    """The answer as an HTML page and as a figure; `looks` has one for whoever may have said a piece."""
    runs = [(text, looks[who]) for text, who in study.pieces]
    key = list(dict.fromkeys(looks.values()))
    canvas = _page(study.title, study.prompt, runs, key, summary)
    return [Html(name, _html(study, runs, key, summary)), Figure(name, study.title, canvas, (study.run_id,))]


def _known(who: object) -> str:
    if who not in LOOKS:
        raise ValueError(f"nobody is called {who!r}")
    return str(who)


def _html(study: CaseStudy, runs: list[Run], key: list[Look], summary: str) -> str:
    title = escape(study.title)
    spans = (_span(text, look) for text, look in _merged(runs))
    legend = " ".join(_span(look.words, look) for look in key)
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>{_STYLE}</style>
</head>
<body>
<h1>{title}</h1>
<p>{legend}</p>
<div class="prompt">{escape(study.prompt)}</div>
<p class="answer">{"".join(spans)}</p>
<footer>{escape(summary)}</footer>
</body>
</html>
"""


def _span(text: str, look: Look) -> str:
    line = f"; text-decoration: underline {look.underline}" if look.underline else ""
    return f'<span title="{look.words}" style="color: {look.ink}; background: {look.paper}{line}">{escape(text)}</span>'


# the figure: coloured monospaced text

_FONT = "DejaVu Sans Mono"
_WIDTH = 92  # characters a line
_LINES = 70  # of the answer; the HTML page has all of it
_SIZE = 8.0  # points
_CELL = (_SIZE * 0.602 / 72, _SIZE * 1.55 / 72)
"""Inches of a character: DejaVu Sans Mono's advance, and the line height."""


@styled
def _page(title: str, prompt: str, pieces: Sequence[Run], key: Sequence[Look], summary: str) -> Canvas:
    """Prompt and answer, every piece in its look; the key stands between them, the summary below."""
    answer = _lines(pieces)
    cut, answer = len(answer) - _LINES, answer[:_LINES]
    above = [*textwrap.wrap(title, _WIDTH), ""]
    start = len(above)
    above += _wrapped(prompt)
    below = [f"... and {cut} lines more in the HTML page", ""] if cut > 0 else [""]
    below += textwrap.wrap(summary, _WIDTH)
    words = list(_key(key))
    first = len(above) + len(words) + 1.5
    canvas, axes = _sheet(len(above) + len(words) + len(answer) + len(below) + 2)
    axes.add_patch(Rectangle((-1, start - 0.5), _WIDTH + 2, len(above) - start, facecolor="#EEEEEE", linewidth=0))
    _plain(axes, 0, above)
    for offset, line in enumerate(words):
        _coloured(axes, len(above) + 1 + offset, line)
    for offset, line in enumerate(answer):
        _coloured(axes, first + offset, line)
    _plain(axes, first + len(answer) + 0.5, below)
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
    """Pieces of one look that follow each other as one."""
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


def _key(key: Iterable[Look]) -> Iterator[list[Run]]:
    """The looks' words in lines of at most `_WIDTH`, two columns between them."""
    line: list[Run] = []
    for look in key:
        if line and sum(len(text) for text, _ in line) + 2 + len(look.words) > _WIDTH:
            yield line
            line = []
        line += [*[("  ", _GAP)] * bool(line), (look.words, look)]
    yield line


def _coloured(axes: Axes, line: float, runs: Iterable[Run]) -> None:
    start = 0
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
