"""GSD, Figure 6: one answer, with the tokens of the target, of the draft, and of the draft behind a merge edge."""

from __future__ import annotations

from dataclasses import replace

from bench import published
from bench.artifacts import tables
from bench.artifacts.case_study import DRAFT, MERGED, TARGET, CaseStudy, pages, speed
from bench.artifacts.outputs import Output
from bench.artifacts.tables import Table
from bench.artifacts.text import Look

TITLE = "GSD Figure 6: one answer by who said it"
LOOKS = {
    TARGET: Look("token of the target", "#111111"),
    DRAFT: Look("accepted draft token", "#A82800", "#FBE0CC", "dotted"),
    MERGED: Look("accepted behind a merge edge", "#00507F", "#D6E9F5", "solid"),
}
COLUMNS = ("Said by", "pieces", "share of the answer", "share of the accepted", "published")
LEGEND = {
    "Said by": "the target itself; or the draft, and the target accepted it: before or behind the path's merge edge",
    "pieces": "of text: a token each, but where several make up one character",
    "published": "the paper's share of the accepted, from its text",
}


def story(study: CaseStudy, name: str = "fig6") -> list[Output]:
    """The answer as a page and a figure in the paper's colours, and a table of who said how much of it."""
    study = replace(study, title=f"{TITLE} ({study.title})")
    accepted = study.count(DRAFT, MERGED)
    summary = (
        f"{speed(study)}; {accepted} of {len(study.pieces)} pieces are accepted draft tokens, "
        f"{tables.percent(_share(study.count(MERGED), accepted))} of them behind a merge edge. The paper: about "
        f"{_published():g}%."
    )
    return [*pages(name, study, LOOKS, summary), _table(name, study)]


def _table(name: str, study: CaseStudy) -> Table:
    accepted = study.count(DRAFT, MERGED)
    rows = [
        {
            "Said by": look.words,
            "pieces": str(study.count(who)),
            "share of the answer": tables.percent(_share(study.count(who), len(study.pieces))),
            "share of the accepted": tables.percent(None if who == TARGET else _share(study.count(who), accepted)),
            "published": f"about {_published():g}%" if who == MERGED else tables.ABSENT,
        }
        for who, look in LOOKS.items()
    ]
    notes = ("The paper does not say whose answer it shows.",)
    return Table(name, study.title, tables.frame(rows, COLUMNS), notes, LEGEND, (study.run_id,) * len(rows))


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def _published() -> float:
    """What the paper's text says of the share of the accepted draft tokens that are behind merge edges, in percent."""
    return float(published.find("gsd", "fig6", metric="accepted_from_merged_share")["value"].iloc[0])
