"""Speedup and tokens per step of several methods: as a paper prints them, and a row per method with all details."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import pandas as pd

from bench import published
from bench.artifacts import control, definitions, devices, metric, tables, ties, verdict
from bench.artifacts.blocks import Block, blocks
from bench.artifacts.metric import Metric
from bench.artifacts.outputs import Output
from bench.artifacts.runs import PUBLISHED, Run, pairing
from bench.artifacts.speedups.arms import Arm, has_tree
from bench.artifacts.speedups.settings import drafted, left_out, sampling, setting_of, settings, stand_ins, who
from bench.artifacts.tables import ABSENT, Table
from bench.artifacts.wording import scale, setting
from bench.published import params_of
from bench.results.rows import AUTOREGRESSIVE
from bench.results.store import Results
from bench.statistics.intervals import Interval

SECONDS = "latency_s_per_token"
"""The name of seconds per token in published rows."""
Cells = dict[str, str]


@dataclass(frozen=True, slots=True)
class Cell:
    """What stands under a method of a printed table, before the tokens per step: of our run and of the paper's row."""

    header: str
    means: str
    ours: Callable[[Run], str]
    published: Callable[[Mapping[str, float]], str]


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the details: its header, what stands in the row of a method, and what it means."""

    header: str
    cell: Callable[[Row, Arm], str]
    means: str = ""


@dataclass(frozen=True)
class Row:
    """A block, or a setting of the paper that was not run (`block` is None), and the paper's rows for it."""

    layout: Layout
    who: Cells  # models, dataset, temperature
    paper: pd.DataFrame
    block: Block | None = None

    @property
    def first(self) -> Arm:
        """The method that the paper proposes."""
        return self.layout.arms[0]

    @cached_property
    def runs(self) -> dict[str, Run | None]:
        """Ours by arm. Where the machine chose the printed tree, that run is the one of the printed tree too."""
        found = {arm.header: arm.chosen(self.block) if self.block else None for arm in self.layout.arms}
        first = found[self.first.header]
        for arm in self.layout.arms:
            if arm.printed_tree and has_tree(first, self._printed[arm.header]):
                found[arm.header] = first
        return found

    @property
    def run_ids(self) -> str:
        """The runs of all arms."""
        return " ".join(dict.fromkeys(run.run_id for run in self.runs.values() if run))

    @cached_property
    def published(self) -> dict[str, dict[str, float]]:
        """The paper's numbers by arm and metric, none of arms that were run with another budget."""
        return {header: {} if header in self.hidden else numbers for header, numbers in self._printed.items()}

    @cached_property
    def hidden(self) -> dict[str, int]:
        """The arms for which the paper has numbers of another budget than ours, and ours."""
        arms = [arm for arm in self.layout.arms if arm.budget and self._printed[arm.header]]
        ours = [(arm, run.budget) for arm in arms if (run := self.runs[arm.header])]
        return {arm.header: budget for arm, budget in ours if budget not in (None, arm.budget)}

    @cached_property
    def other_trees(self) -> set[str]:
        """The arms whose tree was chosen and is not, as far as the paper prints it, the paper's."""
        chosen = [arm.header for arm in self.layout.arms if arm.chosen_tree or arm.printed_tree]
        return {header for header in chosen if not has_tree(self.runs[header], self._printed[header])}

    @cached_property
    def _printed(self) -> dict[str, dict[str, float]]:
        """All of the paper's numbers; a speedup it leaves out is taken from its times on one device."""
        found = {arm.header: arm.published(self.paper) for arm in self.layout.arms}
        plain = self.paper[self.paper["method"] == AUTOREGRESSIVE]
        for arm in self.layout.arms if len(plain) else ():
            own, same = found[arm.header], self.paper["method"] == arm.paper
            if SECONDS in own and set(self.paper.loc[same, "hardware"]) == set(plain["hardware"]):
                own.setdefault("speedup", float(plain["value"].iloc[0]) / own[SECONDS])
        return found

    def details(self) -> Iterator[tuple[Cells, str]]:
        """A row per arm, the best marked, and its run; then what the layout has below."""
        arms, columns = self.layout.arms, self.layout.details
        rows = [
            self.who | {"Method": arm.header} | {column.header: column.cell(self, arm) for column in columns}
            for arm in arms
        ]
        ties.mark(rows, {one.header: [self._ranked(one, arm) for arm in arms] for one in (metric.SPEEDUP, metric.MAL)})
        yield from zip(rows, (run.run_id if (run := self.runs[arm.header]) else "" for arm in arms), strict=True)
        yield from ((self.who | cells, "") for cells in self.layout.below(self))

    def _ranked(self, ranked: Metric, arm: Arm) -> ties.Entry:
        """Tokens per step grow with the tree: only arms with as many nodes as the first one are ranked by them."""
        own, first = self.runs[arm.header], self.runs[self.first.header]
        twice = arm.printed_tree and own is first
        like = ranked is not metric.MAL or (own is not None and first is not None and own.nodes == first.nodes)
        return ranked.entry(own if like and not twice else None)

    def verdict(self, arm: Arm, name: str) -> str:
        """On the `mal` or `speedup` of an arm."""
        if self.block is None:
            return verdict.NOT_RUN
        own = self.runs[arm.header]
        known = own is not None and own.interval(name) is not None
        if arm.header in self.hidden and known:
            return verdict.not_comparable("other budget")
        unlike = self.other_trees if name == "mal" else set()
        if arm.header in unlike and PUBLISHED[name] in self.published[arm.header] and known:
            return verdict.not_comparable("other tree")
        pairings = {
            header: pairing(run, name, self.published[header])
            for header, run in self.runs.items()
            if header == arm.header or (header not in unlike and run is not own)
        }
        hardware = "".join(self.paper["hardware"].unique()[:1])
        same = name == "mal" or devices.same_device(str(self.block.first["device_name"]), hardware)
        speedup = name == "speedup"
        return verdict.judge(arm.header, pairings, stand_in=self.block.stand_in, same_device=same, speedup=speedup)


def of_run(one: Metric) -> Column:
    """What a metric says of a method's run."""
    return Column(one.header, lambda row, arm: one.cell(row.runs[arm.header]), one.means)


def of_paper(header: str, name: str, text: Callable[[float | None], str] = tables.number) -> Column:
    """The paper's number, by its name in published rows, beside the column of a header."""
    return Column(f"{header} published", lambda row, arm: text(row.published[arm.header].get(name)))


def _judged(name: str, header: str, means: str = "") -> Column:
    return Column(f"verdict {header}", lambda row, arm: row.verdict(arm, name), means)


def printed(value: float | None) -> str:
    """A number with the digits that the paper gives it."""
    return ABSENT if value is None else f"{value:g}"


def with_length(text: str, mal: float | None) -> str:
    """`2.31x (3.40)`: what stands in a cell, and tokens per step, as the papers print them."""
    return ABSENT if text == ABSENT and mal is None else f"{text} ({tables.number(mal)})"


def times(speedup: float | None) -> str:
    """`2.31x`."""
    return f"{tables.number(speedup)}{'' if speedup is None else 'x'}"


def value(interval: Interval | None) -> float | None:
    """Without its interval."""
    return interval.value if interval else None


def beside(header: str) -> str:
    """The header of the column with the paper's numbers."""
    return f"{header} published"


def seconds(digits: int) -> Metric:
    """Seconds per decoded token."""
    return Metric("s/token", lambda run: run.seconds, definitions.SECONDS_PER_TOKEN, digits)


TREE = (of_run(metric.NODES), of_run(metric.LEVELS))
_SPEEDUP = metric.measured("speedup", "speedup", f"{definitions.SPEEDUP}; in brackets the 95% interval")
SPEEDUP = (of_run(metric.or_status(_SPEEDUP)), of_paper("speedup", "speedup"))
LENGTH = (of_run(metric.MAL), of_paper("MAL", PUBLISHED["mal"]), of_run(metric.PREDICTED_MAL))
MEASURED = (*TREE, *SPEEDUP, of_run(metric.PREDICTED_SPEEDUP), *LENGTH)
JUDGED = (of_run(metric.KEEPS_LAW), _judged("speedup", "speedup", definitions.VERDICT), _judged("mal", "MAL"))
SPEEDUPS = Cell(
    "speedup",
    f"speedup, in parentheses {{}}; speedup: {definitions.SPEEDUP}",
    lambda run: times(value(run.speedup)),
    lambda paper: times(paper.get("speedup")),
)


def under(row: Row, arm: Arm) -> Cells:
    """The two cells of a method in the printed table: ours, and the paper's beside it."""
    cell, run, paper = row.layout.cell, row.runs[arm.header], row.published[arm.header]
    ours = run.status if run else ABSENT
    if run and run.ok:
        ours = with_length(cell.ours(run), value(run.mal))
    theirs = with_length(cell.published(paper), paper.get(PUBLISHED["mal"]))
    if arm.header in row.hidden:
        theirs = f"{ABSENT} (ours: {row.hidden[arm.header]} nodes)"
    return {arm.header: ours, beside(arm.header): theirs}


def by_method(row: Row) -> Cells:
    """Two cells for each method, and nothing else."""
    return {header: cell for arm in row.layout.arms for header, cell in under(row, arm).items()}


@dataclass(frozen=True, slots=True)
class Layout:
    """One table of a paper: its methods, and what stands in its rows; functions give what it alone has."""

    paper: str  # whose published numbers stand beside ours
    title: str
    arms: tuple[Arm, ...]
    match: tuple[str, ...] = ("dataset", "temperature")  # what the paper states of a row's setting
    cell: Cell = SPEEDUPS
    wide: Callable[[Row], Cells] = by_method  # a row as the paper prints it, in the order of its columns
    details: Sequence[Column] = (*MEASURED, *JUDGED)
    below: Callable[[Row], Iterable[Cells]] = lambda row: ()  # rows of the details that are of no arm
    legend: Mapping[str, str] = field(default_factory=dict)  # of what the functions add
    remarks: Callable[[Sequence[Row], Sequence[Row]], Iterable[str]] = lambda rows, every: ()
    """Notes on our rows; `every` are the settings of the paper's table, without ours."""

    def __call__(self, name: str, results: Results) -> list[Output]:
        """The table by its name, as printed and in detail."""
        return speedup_table(name, self, results)


def speedup_table(name: str, layout: Layout, results: Results) -> list[Output]:
    """One table of a paper, twice: as printed, and a row per method with intervals, predictions and verdicts."""
    paper = published.find(layout.paper, name)
    paper["top_p"] = [float(params_of(text).get("top_p", "nan")) for text in paper["params"]]
    found = [block.standing_in(drafted(paper)) for block in blocks(results)]
    every = [Row(layout, words, of_setting) for words, of_setting in settings(paper, layout.match)]
    rows = [
        Row(layout, who(block) | sampling(block.first, layout.match), setting_of(paper, layout.match, block), block)
        for block in found
    ]
    title = f"{layout.title} ({setting(found) if found else 'not run'})"
    notes = (*_notes(paper, rows), *layout.remarks(rows, every), *control.notes(found))
    where = f"Intervals, marks and verdicts are in {name}_details."
    shown = rows or every
    return [_wide(name, title, shown, (where, *notes)), _details(f"{name}_details", title, shown, notes)]


def _wide(name: str, title: str, rows: Sequence[Row], notes: tuple[str, ...]) -> Table:
    """As printed, without methods that have no number: SpecTr is in no table of its paper, but may have been run."""
    layout = rows[0].layout
    lines = [row.who | layout.wide(row) for row in rows]
    own = {arm.header: (arm.header, beside(arm.header)) for arm in layout.arms}
    shown = [name for name, pair in own.items() if any(line[column] != ABSENT for line in lines for column in pair)]
    columns = [column for column in lines[0] if all(name in shown for name, pair in own.items() if column in pair)]
    length, cell = definitions.length(layout.paper), layout.cell
    headers = {name: f"{name}: {cell.header} ({length})" for name in shown}
    mal = definitions.MAL.partition("; in brackets")[0]
    legend = {name: f"{cell.means.format(length)}; {length}: {mal}" for name in shown[:1]} | dict(layout.legend)
    return Table(name, title, tables.frame(lines, columns), notes, legend, tuple(row.run_ids for row in rows), headers)


def _details(name: str, title: str, rows: Sequence[Row], notes: tuple[str, ...]) -> Table:
    lines = [line for row in rows for line in row.details()]
    columns = rows[0].layout.details
    names = (*rows[0].who, "Method", *(column.header for column in columns))
    frame = tables.frame([line for line, _ in lines], names).fillna(ABSENT)
    legend = {column.header: column.means for column in columns if column.means}
    return Table(
        f"{name}", f"{title}, details", frame, (*notes, *ties.note(frame)), legend, tuple(run for _, run in lines)
    )


def _notes(paper: pd.DataFrame, rows: Sequence[Row]) -> Iterator[str]:
    found = [row.block for row in rows if row.block]
    for row, block in zip(rows, found, strict=True):
        hardware = " / ".join(row.paper["hardware"].unique())
        yield scale(block) + (f" Published: {hardware}." if hardware else " The paper has no numbers for this setting.")
    yield from stand_ins(found)
    yield from left_out(drafted(paper), found)
