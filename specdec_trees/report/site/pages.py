"""The pages: every artifact built and gathered as far as it can be, then filled into the templates beside this file.

One artifact that cannot be built does not stop the others.
"""

from __future__ import annotations

import sys
import traceback
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import jinja2
from markdown import markdown
from markupsafe import Markup
from tqdm import tqdm

from specdec_trees.artifacts.outputs import NoResultsError, write_all
from specdec_trees.artifacts.tables import Table
from specdec_trees.papers import registry as artifacts
from specdec_trees.papers.registry import TITLES
from specdec_trees.report.site import facts, views
from specdec_trees.report.site.facts import Built, Entry, Provenance
from specdec_trees.report.site.views import Link, View
from specdec_trees.results import progress
from specdec_trees.results.parquet import replace_text
from specdec_trees.results.progress import Progress

INDEX, GUIDE = "index.html", "how_to_read.html"
_GUIDE = Path(__file__).parent / "how_to_read.md"
_OTHER_TITLES = {
    facts.WHICH: "Which method for which model",
    facts.CLAIMS: "Which of the papers' claims hold",
    facts.OURS: "Beyond the papers: our own runs",
    facts.YOURS: "Your runs",
}
_SHORT = {facts.WHICH: "Which method", facts.CLAIMS: "Claims", "gsd": "GSD", "improving_mcsd": "Improving MCSD"}
_SHORT["traversal"] = "Traversal"
_SOURCE = " (arXiv:"


@dataclass(frozen=True, slots=True)
class Report:
    """Where results are, of which pair they are taken (None: all), and where the report goes."""

    results: Path
    out: Path
    pair: str | None = None


@dataclass(frozen=True, slots=True)
class Section:
    """One artifact: its status, what was built of it, where its rows are and what they were measured with.

    `broken`: it has rows, and something of it cannot be shown.
    """

    entry: Entry
    state: str
    detail: str
    broken: bool
    command: str
    views: list[View]
    verdicts: Mapping[str, int]
    of_times: Mapping[str, int]
    provenance: Provenance
    rows: tuple[Link, ...]


@dataclass(frozen=True, slots=True)
class Paper:
    """The artifacts of one paper, or of none (`OURS`), on a page of their own."""

    key: str
    sections: tuple[Section, ...]

    @property
    def title(self) -> str:
        """The heading of the page: the paper's title without where it is found."""
        return {**TITLES, **_OTHER_TITLES}[self.key].partition(_SOURCE)[0]

    @property
    def source(self) -> str:
        """Where the paper is found, `arXiv:2406.17276`; "" if it is not known, or for our own page."""
        _, found, where = TITLES.get(self.key, "").partition(_SOURCE)
        return f"{found}{where}".strip(" ()")

    @property
    def short(self) -> str:
        """Its name in the navigation, in a word or two: what its title begins with."""
        return _SHORT.get(self.key) or self.title.partition(":")[0]

    @property
    def href(self) -> str:
        """The name of its page."""
        return f"{self.key}.html"

    @property
    def states(self) -> Counter[str]:
        """How many artifacts are in each state."""
        return Counter(section.state for section in self.sections)

    @property
    def ran(self) -> list[Section]:
        """What there is something of, in the paper's order."""
        return [section for section in self.sections if section.state not in facts.UNRUN]

    @property
    def unrun(self) -> list[Section]:
        """The others."""
        return [section for section in self.sections if section.state in facts.UNRUN]

    @property
    def left(self) -> str:
        """How many those are: `10 not run, 3 nothing to measure`."""
        return ", ".join(f"{self.states[state]} {state}" for state in facts.UNRUN if self.states[state])

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
    def broken(self) -> list[str]:
        """Artifacts that have rows and could not be drawn."""
        return [section.entry.name for paper in self.papers for section in paper.sections if section.broken]

    @property
    def title(self) -> str:
        """The heading of the first page: of which pairs there are results."""
        pairs = self.provenance.pairs
        on = pairs[0] if len(pairs) == 1 else f"{len(pairs)} pairs of models"
        return "Tree-based speculative decoding" + f" on {on}" * bool(pairs)

    @property
    def menu(self) -> list[Paper]:
        """The pages on which there is something."""
        return [paper for paper in self.papers if paper.ran]

    @property
    def alone(self) -> dict[str, Section]:
        """The summaries with a page of their own, as far as there is something of them."""
        return {paper.key: paper.ran[0] for paper in self.menu if paper.key in facts.ALONE}

    @property
    def listed(self) -> list[Paper]:
        """The other pages."""
        return [paper for paper in self.papers if paper.key not in facts.ALONE]

    @property
    def reproduced(self) -> list[str]:
        """The papers of which there is something, by their short names."""
        return [paper.short for paper in self.menu if paper.key in TITLES]

    @property
    def judged(self) -> list[str]:
        """The verdicts that any table has."""
        return [word for word in facts.VERDICTS if any(paper.verdicts[word] for paper in self.papers)]

    @property
    def verdicts(self) -> Counter[str]:
        """The verdicts of all papers' tables; ours judge the same rows again."""
        return _sums(paper.verdicts for paper in self.papers if paper.key != facts.OURS)

    @property
    def of_times(self) -> Counter[str]:
        """Those on times, which are the machine's."""
        papers = (paper for paper in self.papers if paper.key != facts.OURS)
        return _sums(section.of_times for paper in papers for section in paper.sections)


def write(report: Report) -> tuple[Site, list[Path]]:
    """Build everything, write the index and a page per paper; what was found, and the paths of the pages."""
    report.out.mkdir(parents=True, exist_ok=True)
    made, templates = site(report), _templates()
    texts = {INDEX: templates.get_template("index.html").render(site=made)}
    for paper in made.papers:
        texts[paper.href] = templates.get_template("paper.html").render(site=made, paper=paper)
    guide = Markup(markdown(_GUIDE.read_text("utf-8")))
    texts[GUIDE] = templates.get_template("guide.html").render(site=made, guide=guide)
    for name, text in texts.items():
        replace_text(report.out / name, text)
    return made, [report.out / name for name in texts]


def _templates() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("specdec_trees.report.site"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals |= {"STATES": facts.STATES, "VERDICTS": facts.VERDICTS, "GUIDE": GUIDE, "TONES": facts.TONES}
    return environment


def site(report: Report) -> Site:
    """All pages; tables and figures are written into a folder per paper on the way."""
    yours = [Entry(name, page=facts.YOURS) for name in artifacts.yours(report.results)]
    entries = [*facts.entries((*artifacts.ARTIFACTS, *artifacts.SUMMARIES)), *yours]
    sections = [section(report, entry) for entry in tqdm(entries, desc="report", unit="artifact", disable=None)]
    keys = [*facts.papers(), *[facts.YOURS] * bool(yours)]
    papers = [Paper(key, tuple(one for one in sections if one.entry.paper == key)) for key in keys]
    papers = [paper for paper in papers if paper.sections or paper.key not in facts.ALONE]
    return Site(tuple(papers), facts.together(one.provenance for one in sections), report.pair)


def section(report: Report, entry: Entry) -> Section:
    """One artifact, built and written as far as it can be."""
    registered = entry.name in artifacts.ARTIFACTS | artifacts.SUMMARIES or entry.page == facts.YOURS
    built = attempt(report, entry.name) if registered else Built(missing=entry.absent)
    reached, built = _progress(report, entry.name, built)
    outputs = [output for output, _ in built.written]
    tables = [output for output in outputs if isinstance(output, Table)]
    state, detail = facts.status(built, reached, entry.absent)
    detail = built.missing if state == facts.NOT_RUN and entry.name in artifacts.SUMMARIES else detail
    state = facts.PRINTED if state == facts.MEASURED and entry.name == artifacts.BASELINES else state
    measured = facts.provenance(report.results, entry.name, report.pair)
    parts = (part for output, files in built.written for part in views.parts(output, files))
    shown = [(output, files) for output, files in parts if not views.is_empty(output)]
    return Section(
        entry=facts.on_datasets(entry, measured.datasets),
        state=state,
        detail=detail,
        broken=bool(built.failure or built.empty),
        command=artifacts.command(entry.name, report.pair, report.results) if registered else "",
        views=sorted(
            (views.of(one, files, report.out, outputs) for one, files in shown), key=lambda one: one["folded"] > ""
        ),
        verdicts=facts.count_verdicts(tables),
        of_times=facts.count_verdicts(tables, of_times=True),
        provenance=measured,
        rows=views.folders(report.results, entry.name, report.out),
    )


def attempt(report: Report, name: str, wanted: tuple[type, ...] = (object,)) -> Built:
    """Build a registered artifact and write its outputs of the wanted types, if it can be built."""
    try:
        every = artifacts.build(name, report.results, report.pair)
        outputs = [output for output in every if isinstance(output, wanted)]
        written = [(output, write_all([output], (report.out / name).parent)) for output in outputs]
        return Built(empty=tuple(output.name for output in outputs if views.is_empty(output)), written=written)
    except NoResultsError as missing:
        return Built(missing=str(missing) or "there are no results")
    except Exception as error:  # whatever it is, the other artifacts are built, and the list says that this one was not
        return _failed(name, error)


def pairs(results: Path, pair: str | None = None) -> tuple[str, ...]:
    """The pairs of which anything has rows, or the one that is asked for if anything has."""
    names = (*artifacts.ARTIFACTS, *artifacts.yours(results))
    return facts.together(facts.provenance(results, name, pair) for name in names).pairs


def _progress(report: Report, name: str, built: Built) -> tuple[Progress, Built]:
    """How far an artifact is; one of which that cannot be told counts as one that could not be built."""
    try:
        return progress.read(report.results, name, *(report.pair.split(",") if report.pair else ())), built
    except Exception as error:  # as above
        return Progress(planned=None, done=0, failed=0, running=0), replace(_failed(name, error), written=built.written)


def _failed(name: str, error: Exception) -> Built:
    print(f"{name} could not be built:", file=sys.stderr)
    traceback.print_exception(error)
    return Built(failure=_sentence(error))


def _sentence(error: Exception) -> str:
    """A ValueError is raised with a sentence for people; of others the kind is told too."""
    text = str(error).strip().partition("\n")[0]
    return text if type(error) is ValueError and text else f"{type(error).__name__}: {text}".rstrip(": ")


def _sums(counts: Iterable[Mapping[str, int]]) -> Counter[str]:
    return sum(map(Counter, counts), Counter())
