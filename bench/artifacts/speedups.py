"""Speedup and tokens per step of several methods: as a paper prints them, and a row per method with all details."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pandas as pd

from bench import published
from bench.artifacts import control, definitions, grid, metric, tables, ties
from bench.artifacts.arms import LENGTH, Arm
from bench.artifacts.blocks import NO_DRAFT, Block, blocks, drafted
from bench.artifacts.grid import Cells, Column, Setting, beside, in_one
from bench.artifacts.metric import Metric
from bench.artifacts.outputs import Output
from bench.artifacts.tables import ABSENT, Table
from bench.artifacts.wording import left_out, scale, stand_ins, titled, who
from bench.published import params_of
from bench.results.store import Results


def times(speedup: float | None) -> str:
    """`2.31x`."""
    return f"{tables.number(speedup)}{'' if speedup is None else 'x'}"


def seconds(digits: int) -> Metric:
    """Seconds per decoded token."""
    return Metric("s/token", lambda run: run.seconds, definitions.SECONDS_PER_TOKEN, digits)


TREE = (Column(metric.NODES), Column(metric.LEVELS))
_SPEEDUP = metric.measured("speedup", "speedup", f"{definitions.SPEEDUP}; in brackets the 95% interval")
SPEEDUP = Column(_SPEEDUP, paper="speedup", ended=True, timed=True)
MAL = Column(metric.MAL, paper=LENGTH, of_tree=True)
MEASURED = (*TREE, SPEEDUP, Column(metric.PREDICTED_SPEEDUP), MAL, Column(metric.PREDICTED_MAL))
SPEEDUPS = replace(SPEEDUP, plain=times)
IS_LOSSLESS = Column(metric.IS_LOSSLESS)


@dataclass(frozen=True, slots=True)
class Layout:
    """One table of a paper: its methods, and what stands in its rows; functions give what it alone has."""

    paper: str  # whose published numbers stand beside ours
    title: str
    arms: tuple[Arm, ...]
    match: tuple[str, ...] = ("dataset", "temperature")  # what the paper states of a row's setting
    cell: Column = SPEEDUPS  # what the printed table has under a method, before tokens per step
    means: str = f"speedup, in parentheses {{}}; speedup: {definitions.SPEEDUP}"  # what both of them are
    wide: Callable[[Setting, Cells], Cells] = lambda one, methods: methods
    """A row as the paper prints it, in the order of its columns; two of them are of each method."""
    details: Sequence[Column] = (*MEASURED, IS_LOSSLESS)
    below: Callable[[Setting], Iterable[Cells]] = lambda one: ()  # rows of the details that are of no arm
    legend: Mapping[str, str] = field(default_factory=dict)  # of what the functions add
    remarks: Callable[[Sequence[Setting], Sequence[Setting]], Iterable[str]] = lambda rows, every: ()
    """Notes on our rows; `every` are the settings of the paper's table, without ours."""

    def __call__(self, name: str, results: Results) -> list[Output]:
        """The table, twice: as printed, and a row per method with intervals, predictions and verdicts."""
        paper = published.find(self.paper, name)
        paper["top_p"] = [float(params_of(text).get("top_p", "nan")) for text in paper["params"]]
        found = [block.standing_in(drafted(paper)) for block in blocks(results)]
        every = [Setting(words, self.arms, rows) for words, rows in settings(paper, self.match)]
        rows = [
            Setting(
                who(block) | _sampling(block.first, self.match),
                self.arms,
                of_block(paper, self.match, block),
                [block],
            )
            for block in found
        ]
        title, shown = titled(self.title, found), rows or every
        notes = (*_notes(paper, rows), *self.remarks(rows, every), *control.notes(found))
        where = f"Intervals, marks and verdicts are in {name}_details."
        details = grid.in_detail(name, title, shown, self.details, notes, ranked=(SPEEDUP, MAL), below=self.below)
        return [_wide(name, title, self, shown, (where, *notes)), details]


def _wide(name: str, title: str, layout: Layout, rows: Sequence[Setting], notes: tuple[str, ...]) -> Table:
    """As printed, without methods that have no number: SpecTr is in no table of its paper, but may have been run."""
    lines = [{**row.who, **layout.wide(row, _by_method(row, layout.cell))} for row in rows]
    own = {arm.header: (arm.header, beside(arm.header)) for arm in layout.arms}
    shown = [
        name
        for name, pair in own.items()
        if any(line.get(column, ABSENT) != ABSENT for line in lines for column in pair)
    ]
    columns = [
        column
        for column in {**lines[0], **dict.fromkeys(name for line in lines for name in line)}
        if all(name in shown for name, pair in own.items() if column in pair)
    ]
    length = definitions.length(layout.paper)
    headers = {name: f"{name}: {layout.cell.header} ({length})" for name in shown}
    mal = definitions.MAL.partition("; in brackets")[0]
    legend = {name: f"{layout.means.format(length)}; {length}: {mal}" for name in shown[:1]} | dict(layout.legend)
    frame, runs = tables.frame(lines, columns), tuple(row.run_ids for row in rows)
    return Table(name, title, frame, (*notes, *ties.note(frame)), legend, runs, headers)


def _by_method(row: Setting, column: Column) -> Cells:
    """The two cells of each method in the printed table: ours, and the paper's beside it."""
    cells: Cells = {}
    for cell in row.cells:
        cells[cell.arm.header], cells[beside(cell.arm.header)] = in_one(cell, column, MAL)
    return cells


def _notes(paper: pd.DataFrame, rows: Sequence[Setting]) -> Iterator[str]:
    found = [row.block for row in rows if row.block]
    for row, block in zip(rows, found, strict=True):
        yield scale(block) + where_published(row.paper)
    yield from stand_ins(found)
    yield from left_out(paper, found)


def where_published(paper: pd.DataFrame) -> str:
    """The hardware of the paper's rows for a setting, behind the words for what was run."""
    hardware = " / ".join(paper["hardware"].unique())
    return f" Published: {hardware}." if hardware else " The paper has no numbers for this setting."


def of_block(paper: pd.DataFrame, match: Sequence[str], block: Block) -> pd.DataFrame:
    """The paper's rows for a block's models and for what it has in the columns of `match`; empty if there are none."""
    target, draft = block.published_as or ("", "")
    keep = (paper["target"] == target) & paper["draft"].isin([draft, NO_DRAFT])
    for column in match:
        keep &= paper[column] == block.first[column]
    return paper[keep]


def settings(paper: pd.DataFrame, match: Sequence[str]) -> Iterator[tuple[Cells, pd.DataFrame]]:
    """All rows of the paper's table: the words for the setting, and its published rows."""
    with_draft, columns = drafted(paper), ["target", *match]
    for _, rows in with_draft.groupby(["draft", *columns], sort=False):
        first = rows.iloc[0]
        alone = paper[(paper["draft"] == NO_DRAFT) & (paper[columns] == first[columns]).all(axis=1)]
        names = {"Target": first["target"], "Draft": first["draft"], "Dataset": first["dataset"]}
        yield names | _sampling(first, match), pd.concat([rows, alone]).sort_index()


def _sampling(row: pd.Series, match: Sequence[str]) -> Cells:
    """What stands under temperature, and under top-p where the paper states it, for a row of the paper's or of ours."""
    words = {"temperature": ABSENT if pd.isna(row["temperature"]) else f"{row['temperature']:g}"}
    return words | ({"top-p": f"{row['top_p']:.1f}"} if "top_p" in match else {})
