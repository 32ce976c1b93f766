"""Every artifact that the report lists: all tables and figures of the papers, and those that are our own."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass

import pandas as pd

from bench import published
from bench.artifacts.tables import named_rows

OURS = "bench"
"""The page of what no paper has."""
_OURS_TITLE = "Beyond the papers: our own runs"
_TITLES = {
    "budget": "All drafters at equal budget: MAL and speedup against tree size",
    "draft_temperature": "What the draft's temperature does to each drafter",
    "smoke": "Every tree method on the embedded pair and prompts",
    "mt_bench": "The methods of OPT-Tree's Table 1 on MT-Bench",
    "gsm8k": "The same methods on GSM8K",
    "c4": "The same methods on C4",
    "cnn_dm": "The same methods on CNN/DailyMail",
    "xsum": "The same methods on XSum",
}
_SHORT = {"gsd": "GSD", "improving_mcsd": "Improving MCSD"}
_SOURCE = " (arXiv:"
_KINDS = {"table": "Table", "fig": "Figure", "figure": "Figure", "algorithm": "Algorithm"}


@dataclass(frozen=True, slots=True)
class Entry:
    """An artifact: `name` is that of the registry, `absent` says why it is not reproduced ("" if it is)."""

    name: str
    title: str = ""
    place: str = ""
    absent: str = ""

    @property
    def paper(self) -> str:
        """The page on which it stands."""
        return self.name.partition("/")[0] if "/" in self.name else OURS

    @property
    def anchor(self) -> str:
        """Its place on that page."""
        return self.name.rpartition("/")[2]

    @property
    def label(self) -> str:
        """`Table 1`, `Figure 5a`; of what has no number the name."""
        kind, number = re.fullmatch(r"([a-z]*)_?(.*)", self.anchor).groups()  # type: ignore[union-attr]
        return f"{_KINDS[kind]} {number}" if kind in _KINDS and number else self.anchor


def entries(registered: Collection[str]) -> list[Entry]:
    """The papers' artifacts in their order, each paper's registered ones that it does not list, then ours."""
    listed = [_of_row(row, registered) for row in named_rows(published.artifacts())]
    known = {entry.name for entry in listed}
    others = [Entry(name, _TITLES.get(name.rpartition("/")[2], "")) for name in registered if name not in known]
    return [entry for paper in papers() for entry in (*listed, *others) if entry.paper == paper]


def papers() -> list[str]:
    """The keys of the pages in order."""
    return [*published.TITLES, OURS]


def title(paper: str) -> str:
    """The heading of a page: a paper's title without where it is found."""
    return published.TITLES.get(paper, _OURS_TITLE).partition(_SOURCE)[0]


def source(paper: str) -> str:
    """Where a paper is found, `arXiv:2406.17276`; "" if it is not known, or for our own page."""
    _, found, where = published.TITLES.get(paper, "").partition(_SOURCE)
    return f"{found}{where}".strip(" ()")


def short(paper: str) -> str:
    """A paper's name in a word or two: what its title begins with."""
    return _SHORT.get(paper) or title(paper).partition(":")[0]


def _of_row(row: pd.Series, registered: Collection[str]) -> Entry:
    name = f"{row.paper}/{row.artifact}"
    absent = row.absent or ("" if name in registered else "nothing in this project builds it")
    return Entry(name, row.title, row.place, absent)
