"""The pages: every artifact built and gathered as far as it can be, then filled into the templates beside this file.

One artifact that cannot be built does not stop the others.
"""

from __future__ import annotations

import sys
import traceback
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import jinja2
from tqdm import tqdm

from bench.artifacts.outputs import NoResultsError, Output, write_all
from bench.artifacts.tables import Table
from bench.papers import registry as artifacts
from bench.report.site import catalogue, provenance, status, views
from bench.report.site.catalogue import Entry
from bench.report.site.provenance import Provenance
from bench.report.site.status import Attempt, Status
from bench.report.site.views import Link, View
from bench.results import progress
from bench.results.progress import Progress

INDEX = "index.html"


@dataclass(frozen=True, slots=True)
class Report:
    """Where results are, of which pair they are taken (None: all), and where the report goes."""

    results: Path
    out: Path
    pair: str | None = None


@dataclass(frozen=True, slots=True)
class Built:
    """How an artifact's building went, and each output with the files that it wrote."""

    attempt: Attempt
    written: Sequence[tuple[Output, list[Path]]] = ()


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


def write(report: Report) -> tuple[Site, list[Path]]:
    """Build everything, write the index and a page per paper; what was found, and the paths of the pages."""
    report.out.mkdir(parents=True, exist_ok=True)
    found, templates = site(report), _templates()
    texts = {INDEX: templates.get_template("index.html").render(site=found)}
    for paper in found.papers:
        texts[paper.href] = templates.get_template("paper.html").render(site=found, paper=paper)
    for name, text in texts.items():
        (report.out / name).write_text(text, encoding="utf-8")
    return found, [report.out / name for name in texts]


def _templates() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("bench.report.site"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals |= {"STATES": status.STATES, "VERDICTS": status.VERDICTS, "TONES": status.TONES}
    return environment


def site(report: Report) -> Site:
    """All pages; tables and figures are written into a folder per paper on the way."""
    entries = catalogue.entries(artifacts.ARTIFACTS)
    sections = [section(report, entry) for entry in tqdm(entries, desc="report", unit="artifact", disable=None)]
    papers = [
        Paper(key, catalogue.title(key), tuple(one for one in sections if one.entry.paper == key))
        for key in catalogue.papers()
    ]
    return Site(tuple(papers), provenance.together(one.provenance for one in sections), report.pair)


def section(report: Report, entry: Entry) -> Section:
    """One artifact, built and written as far as it can be."""
    registered = entry.name in artifacts.ARTIFACTS
    built = attempt(report, entry.name) if registered else Built(Attempt(missing=entry.absent))
    found, built = _progress(report, entry.name, built)
    outputs = [output for output, _ in built.written]
    shown = [(output, files) for output, files in built.written if not views.is_empty(output)]
    return Section(
        entry=entry,
        status=status.judge(built.attempt, found, entry.absent),
        command=artifacts.command(entry.name, report.pair, report.results) if registered else "",
        views=tuple(views.of(output, files, report.out, outputs) for output, files in shown),
        verdicts=status.count_verdicts(output for output in outputs if isinstance(output, Table)),
        provenance=provenance.read(report.results, entry.name, report.pair),
        rows=views.folders(report.results / entry.name, report.out),
    )


def attempt(report: Report, name: str, wanted: tuple[type, ...] = (object,)) -> Built:
    """Build a registered artifact and write its outputs of the wanted types, if it can be built."""
    try:
        outputs = [
            output for output in artifacts.build(name, report.results, report.pair) if isinstance(output, wanted)
        ]
        written = [(output, write_all([output], (report.out / name).parent)) for output in outputs]
        return Built(Attempt(empty=tuple(output.name for output in outputs if views.is_empty(output))), written)
    except NoResultsError as missing:
        return Built(Attempt(missing=str(missing) or "there are no results"))
    except Exception as error:  # whatever it is, the other artifacts are built, and the list says that this one was not
        return Built(_failed(name, error))


def pairs(results: Path, pair: str | None = None) -> tuple[str, ...]:
    """The pairs of which any artifact has rows, or the one that is asked for if any has."""
    return provenance.together(provenance.read(results, name, pair) for name in artifacts.ARTIFACTS).pairs


def _progress(report: Report, name: str, built: Built) -> tuple[Progress, Built]:
    """How far an artifact is; one of which that cannot be told counts as one that could not be built."""
    try:
        return progress.read(report.results, name, report.pair), built
    except Exception as error:  # as above
        return Progress(planned=None, done=0, failed=0, running=0), Built(_failed(name, error), built.written)


def _failed(name: str, error: Exception) -> Attempt:
    print(f"{name} could not be built:", file=sys.stderr)
    traceback.print_exception(error)
    return Attempt(failure=_sentence(error))


def _sentence(error: Exception) -> str:
    """A ValueError is raised with a sentence for people; of others the kind is told too."""
    text = str(error).strip().partition("\n")[0]
    return text if type(error) is ValueError and text else f"{type(error).__name__}: {text}".rstrip(": ")


def _sums(counts: Iterable[Mapping[str, int]]) -> Counter[str]:
    total: Counter[str] = Counter()
    for count in counts:
        total.update(count)
    return total
