"""GSD, Tables 2, 4 and 6 to 9: a row per method, a column per dataset, and all details of every run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import pandas as pd

from bench import published
from bench.artifacts import control, definitions, grid, tables
from bench.artifacts.arms import Arm
from bench.artifacts.blocks import NO_DRAFT, Block, drafted, side_by_side
from bench.artifacts.grid import Cell, Cells, Column, Setting, beside, in_one
from bench.artifacts.metric import MAL, SPEEDUP
from bench.artifacts.outputs import Output
from bench.artifacts.speedups import times
from bench.artifacts.tables import Table
from bench.artifacts.wording import titled, who
from bench.papers.gsd import methods
from bench.papers.gsd.methods import (
    GREEDY,
    GSD,
    GSD_CODE,
    GSD_LEAVES,
    LARGE,
    MEDUSA,
    SAMPLED,
    SMALL,
    SSD,
    SSD_DRAWN,
    TSD,
    both_rules,
    bound,
)
from bench.results.store import Results

_DRAFTED = replace(methods.DRAFTED, header="drafted", means=f"Drafted Token Num: {definitions.DRAFTED_TOKENS}")
_SUCCESS, _CROSSED = (
    replace(one, text=lambda share, digits: tables.percent(share and share.value))
    for one in (methods.SUCCESS, methods.CROSSED)
)
_RULES = (
    methods.LOSSY_RULE,
    "Lossless: the target's own sample decides (SSD, TSD, GSD), or min(1, p/q) and the residual distribution for a "
    "sequence that was drawn from q (SSD, drawn).",
)
_GREEDY = (
    "The paper states no decoding of this table: greedy here. Its caption's thresholds: k = 4, tau = 1, theta_prob = "
    "0.4, theta_sib = 0.1.",
    methods.READINGS,
)
_MEDUSA = (
    "The paper gives no settings of its Medusa heads, and there are none in public for Llama-2-70B. Of the embedded "
    "target there are: four heads, and the tree of the 63 most probable nodes by their distributions.",
)


@dataclass(frozen=True, slots=True)
class Layout:
    """One of the tables; its speedup is the mean over its decodings, counts and the acceptance rate are of the first.

    Cells are the acceptance rate and the speedup, or without `acceptance` the speedup alone.
    """

    title: str
    arms: tuple[Arm, ...]
    notes: tuple[str, ...]
    decodings: tuple[int, ...] = (GREEDY,)
    acceptance: bool = True
    drafts_apart: bool = False
    """Whether its methods have drafts of different kinds: a pair then has a row of those alone that it was run with."""

    @property
    def means(self) -> str:
        """What a speedup is here."""
        return definitions.SPEEDUP if len(self.decodings) == 1 else definitions.MEAN_SPEEDUP

    @property
    def speedup(self) -> Column:
        """The column of the speedup."""
        metric = replace(SPEEDUP, means=f"{self.means}; in brackets the 95% interval")
        return Column(metric, of=self.decodings, paper="speedup", ended=True, timed=True)

    @property
    def rate(self) -> Column:
        """The column of the acceptance rate, with the paper's where it prints one."""
        means = f"Acceptance Rate: {definitions.ACCEPTANCE_RATE}"
        metric = replace(methods.RATE, header="acceptance", means=means)
        return Column(metric, of=self.decodings[:1], paper="acceptance_rate" if self.acceptance else "")

    @property
    def printed(self) -> tuple[Column, ...]:
        """What the paper has in one place: `0.795 (1.85x)` or `1.85x`."""
        return (*[self.rate] * self.acceptance, replace(self.speedup, plain=times))


def _bound(thresholds: Mapping[str, float], *arms: Arm) -> tuple[Arm, ...]:
    return tuple(bound(arm, thresholds) for arm in arms)


LAYOUTS: Mapping[str, Layout] = {
    "table2": Layout(
        "GSD Table 2: speedup of non-deterministic decoding",
        both_rules(*_bound(LARGE, SSD, SSD_DRAWN, TSD, GSD)),
        _RULES,
        (SAMPLED,),
        acceptance=False,
    ),
    "table4": Layout(
        "GSD Table 4: speedup beside Medusa's",
        _bound(LARGE, MEDUSA, GSD),
        _MEDUSA,
        (GREEDY, SAMPLED),
        acceptance=False,
        drafts_apart=True,
    ),
    **{
        f"table{number}": Layout(
            f"GSD Table {number}: acceptance rate and speedup, {models}",
            _bound(SMALL, SSD, TSD, GSD, GSD_LEAVES, GSD_CODE),
            _GREEDY,
        )
        for number, models in ((6, "BLOOM-7B1"), (7, "OPT-13B"), (8, "Llama-2-7B"))
    },
    "table9": Layout(
        "GSD Table 9: acceptance rate and speedup of non-deterministic decoding, Llama-2-7B",
        both_rules(*_bound(SMALL, SSD, SSD_DRAWN, GSD)),
        _RULES,
        (SAMPLED,),
    ),
}

Group = dict[str, Setting]
"""A pair's methods by dataset."""


def by_dataset(name: str, results: Results) -> list[Output]:
    """One of the tables, twice: in the paper's layout, and a row per run with intervals and verdicts."""
    layout, paper = LAYOUTS[name], published.find("gsd", name)
    found = methods.found_blocks(results, paper, layout.decodings)
    groups = list(_groups(layout, paper, found))
    if layout.drafts_apart:
        groups = _apart(groups)
    settings = [one for group in groups for one in group.values()]
    mean = len(layout.decodings) > 1
    title = titled(layout.title, found, but=["dataset", *["temperature"] * mean])
    notes = (*methods.said(paper, found), methods.NO_HARDWARE, *layout.notes, *control.notes(found))
    notes += tuple(methods.not_shown(results, layout.arms, settings))
    kept = [replace(one, shown=partial(_known, one.shown)) for one in settings]
    variation = [methods.VARIATION] * (layout.decodings == (SAMPLED,))
    counts = (MAL, _DRAFTED, _SUCCESS, _CROSSED, *variation, methods.LOSSLESS)
    columns = (layout.speedup, layout.rate, *(Column(metric, of=layout.decodings[:1]) for metric in counts))
    marks = [methods.MEANS_TIED] * mean
    return [
        _wide(name, title, layout, groups, set(paper["dataset"]), notes),
        grid.in_detail(name, title, kept, columns, notes, ranked=columns[:3], marks=marks),
    ]


def _wide(
    name: str, title: str, layout: Layout, groups: Sequence[Group], printed: set[str], notes: tuple[str, ...]
) -> Table:
    """A row per pair and method; beside a dataset of the paper's its numbers."""
    rows = [
        dict(zip(group, cells, strict=True))
        for group in groups
        for cells in zip(*(one.cells for one in group.values()), strict=True)
        if any(cell.arm.paper or not layout.acceptance or cell.run_ids for cell in cells)
    ]
    frame = pd.DataFrame([_line(layout, row, printed) for row in rows], dtype=str)
    runs = tuple(" ".join(cell.run_ids for cell in row.values()).strip() for row in rows)
    words = "acceptance rate (speedup)" if layout.acceptance else "speedup"
    rate = definitions.ACCEPTANCE_RATE.partition("; in brackets")[0]
    means = f"Acceptance Rate (speedup); Acceptance Rate: {rate}; speedup: " if layout.acceptance else "speedup: "
    legend, headers = {next(iter(rows[0])): means + layout.means}, {name: f"{name}: {words}" for name in rows[0]}
    return Table(name, title, frame, notes, legend, runs, headers)


def _line(layout: Layout, row: Mapping[str, Cell], printed: set[str]) -> Cells:
    words = next(iter(row.values())).words
    line = {name: words[name] for name in ("Target", "Draft", "Method")}
    for dataset, cell in row.items():
        line[dataset], theirs = in_one(cell, *layout.printed)
        if dataset in printed:
            line[beside(dataset)] = theirs
    return line


def _known(shown: Callable[[Cell], object], cell: Cell) -> object:
    """Whether a cell that is shown has anything in it."""
    return shown(cell) and (cell.run_ids or cell.published)


def _apart(groups: Sequence[Group]) -> list[Group]:
    """Every pair without the methods that were run with another one alone."""
    ran = [{cell.arm.header for one in group.values() for cell in one.cells if cell.run_ids} for group in groups]
    every = set().union(*ran)

    def without(one: Setting, others: set[str]) -> Setting:
        return replace(one, shown=lambda cell: cell.arm.header not in others)

    return [
        {name: without(one, every - own) for name, one in group.items()} for group, own in zip(groups, ran, strict=True)
    ]


def _groups(layout: Layout, paper: pd.DataFrame, found: Sequence[Block]) -> Iterator[Group]:
    """Blocks that differ in their prompts alone; where nothing was run, the paper's models."""
    datasets = list(dict.fromkeys([*paper["dataset"], *map(methods.published_dataset, found)]))
    groups = side_by_side(found, lambda block: block.pair, methods.published_dataset)
    firsts = [next(iter(group.values())) for group in groups]
    every = [(who(one), one.published_as or ("", ""), group) for one, group in zip(firsts, groups, strict=True)]
    if not found:
        models = dict.fromkeys(zip(*(drafted(paper)[name] for name in ("target", "draft")), strict=True))
        every = [({"Target": target, "Draft": draft}, (target, draft), {}) for target, draft in models]
    for names, (target, draft), blocks in every:
        rows = paper[(paper["target"] == target) & paper["draft"].isin([draft, NO_DRAFT])]
        yield {
            name: Setting(
                {**names, "Dataset": name},
                layout.arms,
                rows[rows["dataset"] == name],
                methods.by_decoding(blocks.get(name)),
            )
            for name in datasets
        }
