"""What pages say of an artifact: its place in the paper, its status and verdicts, and what it was measured with.

The artifacts are all tables and figures of the papers, and those that are our own.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path

import pandas as pd

from specdec_trees import published
from specdec_trees.artifacts import verdict
from specdec_trees.artifacts.outputs import Output
from specdec_trees.artifacts.tables import ABSENT, VERDICT, Table, named_rows
from specdec_trees.papers.registry import TITLES
from specdec_trees.results.progress import Progress
from specdec_trees.results.store import Store

OURS = "bench"
"""The page of what no paper has."""
ALONE = WHICH, CLAIMS = "which", "claims"
"""The summaries that have a page of their own, before all others."""
YOURS = "yours"
"""The page of experiments that are no artifact."""
_TITLES = {
    "budget": "All drafters at equal budget: MAL and speedup against tree size",
    "draft_temperature": "What the draft's temperature does to each drafter",
    "baselines": "How strong the papers' autoregressive baselines were",
    WHICH: "Which method for which model",
    CLAIMS: "Which claims hold, on embedded pairs and on a real model",
    "smoke": "Tree methods on the embedded pair and prompts",
}
_ON = {"mt_bench": "MT-Bench", "gsm8k": "GSM8K", "c4": "C4", "cnn_dm": "CNN/DailyMail", "xsum": "XSum"}
"""Datasets whose experiments have the methods of OPT-Tree's Table 1."""
_KINDS = {"table": "Table", "fig": "Figure", "figure": "Figure", "algorithm": "Algorithm"}
MEASURED, PARTLY, RUNNING = "measured", "partly", "running"
FAILED, NOT_RUN, NOTHING = "failed", "not run", "nothing to measure"
STATES = (MEASURED, PARTLY, RUNNING, FAILED, NOT_RUN, NOTHING)
UNRUN = (NOT_RUN, NOTHING)
"""What is folded away."""
PRINTED = "printed numbers"
"""The state of what shows the papers' numbers alone; it is none of `STATES`, which count what was run."""
VERDICTS = (
    *(verdict.MATCHES, verdict.ORDER_HOLDS, verdict.DIFFERS, verdict.NOT_RESOLVED),
    *(verdict.not_comparable("").partition(":")[0], verdict.NOT_RUN),
)
"""The verdicts without their reasons, in the order in which they are listed."""
TONES = dict(zip(VERDICTS, ("good", "fair", "bad", "unsure", "none", "none"), strict=True))
_VERSIONS = {
    "package_version": "specdec-trees",
    "torch_version": "torch",
    "transformers_version": "transformers",
    "python_version": "Python",
    "cuda_version": "CUDA",
    "driver_version": "driver",
}
_MEASURED = ("latency", "attention", "decisions", "acceptance")
"""Tables of measurements that no run belongs to, which know their device."""


@dataclass(frozen=True, slots=True)
class Entry:
    """An artifact: `name` is that of the registry, `absent` says why it is not reproduced ("" if it is)."""

    name: str
    title: str = ""
    place: str = ""
    absent: str = ""
    page: str = ""

    @property
    def paper(self) -> str:
        """The page on which it stands."""
        alone = self.name.partition("/")[0] if "/" in self.name or self.name in ALONE else OURS
        return self.page or alone

    @property
    def anchor(self) -> str:
        """Its place on that page."""
        return self.name.replace("/", "-") if self.page else self.name.rpartition("/")[2]

    @property
    def label(self) -> str:
        """`Table 1`, `Figure 5a`; of what has no number the name."""
        if self.page:
            return self.name
        kind, number = re.fullmatch(r"([a-z]*)_?(.*)", self.anchor).groups()  # type: ignore[union-attr]
        return f"{_KINDS[kind]} {number}" if kind in _KINDS and number else self.anchor


def entries(registered: Collection[str]) -> list[Entry]:
    """The papers' artifacts in their order, each paper's registered ones that it does not list, then ours."""
    unbuilt = "nothing in this project builds it"
    rows = [(f"{row.paper}/{row.artifact}", row) for row in named_rows(published.artifacts())]
    listed = [
        Entry(name, row.title, row.place, row.absent or ("" if name in registered else unbuilt)) for name, row in rows
    ]
    known = {entry.name for entry in listed}
    others = [
        on_datasets(Entry(name, _TITLES.get(name.rpartition("/")[2], "")), [name.rpartition("/")[2]])
        for name in registered
        if name not in known
    ]
    return [entry for paper in papers() for entry in (*listed, *others) if entry.paper == paper]


def on_datasets(entry: Entry, datasets: Sequence[str]) -> Entry:
    """Of an experiment that is named after a dataset the entry with the datasets that it was run on in its title."""
    if entry.name.removeprefix(f"{OURS}/") not in _ON or not datasets:
        return entry
    words = ", ".join(_ON.get(name, name) for name in datasets)
    return replace(entry, title=f"The methods of OPT-Tree's Table 1 on {words}")


def papers() -> list[str]:
    """The keys of the pages in order."""
    return [*ALONE, *TITLES, OURS]


@dataclass(frozen=True, slots=True)
class Built:
    """How building went: at most one of the first three says something; and each output with the files that it wrote.

    `missing`: what there are no results of; `failure`: why they could not be read; `empty`: outputs that show nothing.
    """

    missing: str = ""
    failure: str = ""
    empty: tuple[str, ...] = ()
    written: Sequence[tuple[Output, list[Path]]] = ()


def status(built: Built, progress: Progress, absent: str = "") -> tuple[str, str]:
    """One of `STATES`, and why or how far; `absent` is why this project leaves it out, if nothing was built."""
    cells = _cells(progress)
    told = f"{cells}: {progress.detail}" if progress.failed and progress.detail else cells
    if built.failure:
        return FAILED, built.failure
    if built.empty:
        return FAILED, f"nothing is shown in {', '.join(built.empty)}"
    if progress.running:
        return RUNNING, cells
    if progress.failed and (built.missing or not progress.done):
        return FAILED, told
    if not built.missing:
        return (PARTLY, told) if progress.failed or progress.missing else (MEASURED, cells)
    if absent:
        return NOTHING, absent
    return (PARTLY, f"{cells}; {built.missing}") if progress.done else (NOT_RUN, "")


def _cells(progress: Progress) -> str:
    """`3 of 8 cells, 1 failed, 2 running`; without a plan nobody knows of how many."""
    planned = progress.planned
    total = planned or progress.done
    done = (f"{progress.done} of " if planned else "") + f"{total} cell{'s' * (total != 1)}" if total else ""
    others = {"failed": progress.failed, "running": progress.running}
    return ", ".join([*filter(None, [done]), *(f"{count} {word}" for word, count in others.items() if count)])


def is_verdict(column: str) -> bool:
    """Whether a column holds verdicts, by its key."""
    return column.endswith(VERDICT.lstrip("_"))


def word(cell: str) -> str:
    """The verdict of a cell without what is said of it; a word that the rule does not have stands for itself."""
    return next((known for known in VERDICTS if cell.startswith(known)), cell)


def count_verdicts(tables: Iterable[Table], *, of_times: bool = False) -> dict[str, int]:
    """How often each verdict was given, of all numbers or of times alone, in the order of `VERDICTS`.

    Cells without one do not count.
    """
    columns = [
        table.frame[column]
        for table in tables
        for column in table.frame
        if is_verdict(str(column)) and (not of_times or column in _timed(table))
    ]
    counts = Counter(word(str(cell)) for column in columns for cell in column)
    order = [*VERDICTS, *(other for other in counts if other not in (*VERDICTS, ABSENT, ""))]
    return {one: counts[one] for one in order if counts[one]}


def _timed(table: Table) -> set[str]:
    """The columns with verdicts on times."""
    return set() if table.long is None else {one.verdict for one in table.long["metric"].unique() if one.timed}


@dataclass(frozen=True, slots=True)
class Provenance:
    """Distinct values over runs, each in the order of first sight; `dates` are days in UTC."""

    runs: tuple[str, ...] = ()
    pairs: tuple[str, ...] = ()
    datasets: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    versions: tuple[str, ...] = ()
    revisions: tuple[str, ...] = ()
    dates: tuple[str, ...] = ()

    @property
    def days(self) -> str:
        """The day of the runs, or the first and the last."""
        return " to ".join(dict.fromkeys((min(self.dates), max(self.dates)))) if self.dates else ""


def provenance(root: Path, artifact: str, pair: str | None = None) -> Provenance:
    """Of all runs of an artifact, or of those of one pair; of what was measured without runs the device is known."""
    store = Store(root, artifact)
    runs = _of_pair(store.read("runs"), pair).sort_values("created_utc", kind="stable")
    if runs.empty:
        measured = [_of_pair(store.read(table), pair) for table in _MEASURED]
        return Provenance(
            runs=_distinct(table["run_id"] for table in measured),
            pairs=_distinct(table["pair"] for table in measured if "pair" in table),
            devices=_distinct(table["device_name"] for table in measured),
        )
    return Provenance(
        runs=_distinct([runs["run_id"]]),
        pairs=_distinct([runs["pair"]]),
        datasets=_distinct([runs["dataset"]]),
        devices=_distinct([runs["device_name"]]),
        versions=_distinct(words + " " + runs[column].dropna() for column, words in _VERSIONS.items()),
        revisions=_distinct([_revisions(runs)]),
        dates=_distinct([runs["created_utc"].astype(str).str[:10]]),
    )


def together(parts: Iterable[Provenance]) -> Provenance:
    """Of several artifacts at once."""
    every, names = list(parts), [one.name for one in fields(Provenance)]
    lists = {name: dict.fromkeys(value for part in every for value in getattr(part, name)) for name in names}
    return Provenance(**{name: tuple(values) for name, values in lists.items()})


def _revisions(runs: pd.DataFrame) -> pd.Series:
    known = runs[runs["git_revision"].notna()]
    changed = known["git_dirty"].fillna(False).astype(bool).map({True: " with changes", False: ""})
    return known["git_revision"].str[:10] + changed


def _of_pair(rows: pd.DataFrame, pair: str | None) -> pd.DataFrame:
    return rows if pair is None or "pair" not in rows else rows[rows["pair"] == pair]


def _distinct(columns: Iterable[pd.Series]) -> tuple[str, ...]:
    values = (str(value) for column in columns for value in column.dropna() if str(value))
    return tuple(dict.fromkeys(values))
