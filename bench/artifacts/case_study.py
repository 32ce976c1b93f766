"""One answer whose text shows who said what: OPT-Tree's Figure 10, and GSD's Figure 6."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from itertools import groupby
from pathlib import Path

from bench.artifacts.outputs import Html, NoResultsError, Output
from bench.artifacts.style import Figure
from bench.artifacts.text import Look, Run, page

FILE = "case_study.json"
TARGET, DRAFT, MERGED = "target", "draft", "merged"
"""Who said a piece: the target alone, or the draft and the target accepted it; `merged` behind a merge edge."""
_BLUE = Look("accepted draft token", "#00507F", "#D6E9F5")
_ORANGE = Look("token of the target", "#8A3D00", "#FBE0CC", "solid")
LOOKS = {DRAFT: _BLUE, MERGED: _BLUE, TARGET: _ORANGE}
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
    """One generation: `pieces` are texts in order, each with one of `TARGET`, `DRAFT`, `MERGED`."""

    title: str
    prompt: str
    pieces: list[tuple[str, str]]
    mal: float
    tokens_per_s: float
    run_id: str = ""

    def count(self, *who: str) -> int:
        """How many pieces these said."""
        return sum(by in who for _, by in self.pieces)


def read(folder: Path) -> CaseStudy:
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
    canvas = page(study.title, study.prompt, runs, key, summary)
    return [Html(name, _html(study, runs, key, summary)), Figure(name, study.title, canvas, (study.run_id,))]


def _known(who: object) -> str:
    if who not in (TARGET, DRAFT, MERGED):
        raise ValueError(f"nobody is called {who!r}")
    return str(who)


def _html(study: CaseStudy, runs: list[Run], key: list[Look], summary: str) -> str:
    title = escape(study.title)
    parts = groupby(runs, key=lambda run: run[1])
    spans = (_span("".join(text for text, _ in part), look) for look, part in parts)
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
