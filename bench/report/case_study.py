"""OPT-Tree, Figure 10: one answer, the accepted draft tokens in one colour and the target's own tokens in another."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from html import escape
from itertools import groupby
from pathlib import Path

from bench import published
from bench.report.figures.text import page
from bench.report.outputs import Html, NoResultsError, Output

FILE = "case_study.json"
DRAFT, TARGET = "accepted draft token", "token of the target"
_STYLE = """
:root { color-scheme: light; }
body { font: 16px/1.6 system-ui, sans-serif; max-width: 46rem; margin: 2rem auto; padding: 0 1rem; color: #111; }
h1 { font-size: 1.25rem; }
.prompt { background: #e8f1f8; border-radius: .4rem; padding: .6rem .8rem; }
.prompt, .answer { white-space: pre-wrap; overflow-wrap: anywhere; font: .9rem/1.6 ui-monospace, monospace; }
.draft { color: #00507f; background: #d6e9f5; }
.target { color: #8a3d00; background: #fbe0cc; text-decoration: underline; }
footer { color: #444; font-size: .9rem; }
"""


@dataclass(frozen=True, slots=True)
class CaseStudy:
    """One generation: `pieces` are texts in order, True for accepted draft tokens, False for tokens of the target."""

    title: str
    prompt: str
    pieces: list[tuple[str, bool]]
    mal: float
    tokens_per_s: float
    run_id: str = ""


def read(folder: Path) -> CaseStudy:
    """The case study of an experiment's folder; NoResultsError if it was not written, ValueError if it is not one."""
    path = folder / FILE
    if not path.exists():
        raise NoResultsError(f"there is no {path}")
    try:
        fields = json.loads(path.read_text(encoding="utf-8"))
        pieces = [(str(text), bool(drafted)) for text, drafted in fields["pieces"]]
        return CaseStudy(**{**fields, "pieces": pieces})
    except (TypeError, KeyError, ValueError) as error:
        raise ValueError(f"{path} is not a case study: it needs {', '.join(CaseStudy.__annotations__)}") from error


def render(study: CaseStudy, name: str = "fig10") -> list[Output]:
    """The page as HTML and as a figure."""
    study = replace(study, title=f"OPT-Tree Figure 10: {study.title}")
    drafted = sum(accepted for _, accepted in study.pieces)
    summary = (
        f"MAL {study.mal:.2f}, {study.tokens_per_s:.2f} tokens/s; {drafted} of {len(study.pieces)} pieces are accepted "
        f"draft tokens. {_paper()}"
    )
    return [
        Html(name, _html(study, summary)),
        page(name, study.title, study.prompt, study.pieces, summary, (DRAFT, TARGET), study.run_id),
    ]


def _html(study: CaseStudy, summary: str) -> str:
    title = escape(study.title)
    runs = groupby(study.pieces, key=lambda piece: piece[1])
    spans = (
        f'<span class="{_css(drafted)}">{escape("".join(text for text, _ in run))}</span>' for drafted, run in runs
    )
    legend = " ".join(
        f'<span class="{_css(drafted)}">{DRAFT if drafted else TARGET}</span>' for drafted in (True, False)
    )
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


def _css(drafted: bool) -> str:
    return "draft" if drafted else "target"


def _paper() -> str:
    facts = published.find("opt_tree", "section4_7").set_index("metric")["value"]
    return f"The paper (LLaMA-2-70B + LLaMA-2-7B): MAL {facts['mal']:g}, {facts['tokens_per_s']:g} tokens/s."
