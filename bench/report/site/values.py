"""What the pages show, as values: everything is gathered into these before a template sees it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from bench.report.site import catalogue
from bench.report.site.catalogue import Entry
from bench.report.site.provenance import Provenance
from bench.report.site.status import Status


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


@dataclass(frozen=True, slots=True)
class Section:
    """One artifact: its status, what was built of it, where its rows are and what they were measured with."""

    entry: Entry
    status: Status
    command: str = ""
    views: tuple[View, ...] = ()
    verdicts: Mapping[str, int] = field(default_factory=dict)
    provenance: Provenance = field(default_factory=Provenance)
    rows: tuple[Link, ...] = ()


@dataclass(frozen=True, slots=True)
class Paper:
    """The artifacts of one paper, or of none (`OURS`), on a page of their own."""

    key: str
    title: str
    sections: tuple[Section, ...]

    @property
    def source(self) -> str:
        """Where the paper is found."""
        return catalogue.source(self.key)

    @property
    def short(self) -> str:
        """Its name in the navigation."""
        return catalogue.short(self.key)

    @property
    def href(self) -> str:
        """The name of its page."""
        return f"{self.key}.html"

    @property
    def states(self) -> Counter[str]:
        """How many artifacts are in each state."""
        return _sums({section.status.state: 1} for section in self.sections)

    @property
    def verdicts(self) -> Counter[str]:
        """The verdicts of all its tables."""
        return _sums(section.verdicts for section in self.sections)


@dataclass(frozen=True, slots=True)
class Site:
    """All papers, and what all their runs have in common."""

    papers: tuple[Paper, ...]
    provenance: Provenance
    pair: str | None = None

    @property
    def states(self) -> Counter[str]:
        """How many artifacts are in each state."""
        return _sums(paper.states for paper in self.papers)

    @property
    def verdicts(self) -> Counter[str]:
        """The verdicts of all papers' tables; ours judge the same rows again."""
        return _sums(paper.verdicts for paper in self.papers if paper.key != catalogue.OURS)


def _sums(counts: Iterable[Mapping[str, int]]) -> Counter[str]:
    total: Counter[str] = Counter()
    for count in counts:
        total.update(count)
    return total
