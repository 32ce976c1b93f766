"""GSD, Tables 2, 4 and 6 to 9: a row per method, a column per dataset, and all details of every run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pandas as pd

from bench import published
from bench.artifacts import control, definitions, grid, tables
from bench.artifacts.blocks import NO_DRAFT, Block
from bench.artifacts.grid import Cell, Column, setting_of
from bench.artifacts.metric import MAL, SPEEDUP
from bench.artifacts.outputs import Output
from bench.artifacts.speedups.arms import Arm
from bench.artifacts.speedups.settings import drafted, who
from bench.artifacts.tables import Table
from bench.artifacts.wording import setting
from bench.papers.gsd import methods
from bench.papers.gsd.methods import GREEDY, GSD, LARGE, MEDUSA, SAMPLED, SMALL, SSD, SSD_DRAWN, TSD, both_rules, bound
from bench.results.store import Results

_CELL = ("pair", "seed", "max_new_tokens", "ignore_eos", "attention", "node_order")
"""What the blocks of a row have in common."""
_DRAFTED = replace(methods.DRAFTED, header="drafted", means=f"Drafted Token Num: {definitions.DRAFTED_TOKENS}")
_SUCCESS = replace(methods.SUCCESS, text=lambda share, digits: tables.percent(share and share.value))
_RULES = (
    methods.LOSSY_RULE,
    "Lossless: the target's own sample decides (SSD, TSD, GSD), or min(1, p/q) and the residual law for a sequence "
    "that was drawn from q (SSD, drawn).",
)
_GREEDY = (
    "The paper states no decoding of this table: greedy here. Its caption's thresholds: k = 4, tau = 1, theta_prob = "
    "0.4, theta_sib = 0.1.",
)
_MEDUSA = ("Medusa is not run here: its row is the paper's, which does not give the settings of its heads.",)


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

    @property
    def means(self) -> str:
        """What a speedup is here."""
        return definitions.SPEEDUP if len(self.decodings) == 1 else definitions.MEAN_SPEEDUP

    @property
    def speedup(self) -> Column:
        """The column of the speedup."""
        metric = replace(SPEEDUP, means=f"{self.means}; in brackets the 95% interval")
        return Column(metric, of=self.decodings, paper="speedup", ended=True, judged=methods.TIMED)

    @property
    def rate(self) -> Column:
        """The column of the acceptance rate, with the paper's where it prints one."""
        means = f"Acceptance Rate: {definitions.ACCEPTANCE_RATE}"
        metric = replace(methods.RATE, header="acceptance", means=means)
        return Column(metric, of=self.decodings[:1], paper="acceptance_rate" if self.acceptance else "")

    def cell(self, rate: float | None, speedup: float | None) -> str:
        """`0.795 (1.85x)` or `1.85x`."""
        times = methods.times(speedup)
        if not self.acceptance or (speedup is None and rate is None):
            return times
        return f"{tables.number(rate, 3)} ({times})"


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
    ),
    **{
        f"table{number}": Layout(
            f"GSD Table {number}: acceptance rate and speedup, {models}",
            _bound(SMALL, SSD, TSD, GSD),
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

Group = dict[str, list[Cell]]
"""A pair's cells by dataset."""


def by_dataset(name: str, results: Results) -> list[Output]:
    """One of the tables, twice: in the paper's layout, and a row per run with intervals and verdicts."""
    layout, paper = LAYOUTS[name], published.find("gsd", name)
    found = methods.found_blocks(results, paper, layout.decodings)
    groups = list(_groups(layout, paper, found))
    settings = [cells for group in groups for cells in group.values()]
    mean = len(layout.decodings) > 1
    title = f"{layout.title} ({setting(found, but=('dataset', *['temperature'] * mean)) if found else 'not run'})"
    notes = (*methods.said(paper, found), methods.NO_HARDWARE, *layout.notes, *control.notes(found))
    notes += tuple(methods.not_shown(results, layout.arms, settings))
    kept = [[cell for cell in cells if cell.run_ids or cell.published] for cells in settings]
    variation = [methods.VARIATION] * (layout.decodings == (SAMPLED,))
    counts = (MAL, _DRAFTED, _SUCCESS, *variation, methods.LOSSLESS)
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
    rows = [dict(zip(group, cells, strict=True)) for group in groups for cells in zip(*group.values(), strict=True)]
    frame = pd.DataFrame([_line(layout, row, printed) for row in rows], dtype=str)
    runs = tuple(" ".join(cell.run_ids for cell in row.values()).strip() for row in rows)
    words = "acceptance rate (speedup)" if layout.acceptance else "speedup"
    rate = definitions.ACCEPTANCE_RATE.partition("; in brackets")[0]
    means = f"Acceptance Rate (speedup); Acceptance Rate: {rate}; speedup: " if layout.acceptance else "speedup: "
    legend, headers = {next(iter(rows[0])): means + layout.means}, {name: f"{name}: {words}" for name in rows[0]}
    return Table(name, title, frame, notes, legend, runs, headers)


def _line(layout: Layout, row: Mapping[str, Cell], printed: set[str]) -> dict[str, str]:
    first = next(iter(row.values())).first
    line = {name: first[name] for name in ("Target", "Draft", "Method")}
    for dataset, cell in row.items():
        rate, speedup = layout.rate.value(cell), layout.speedup.value(cell)
        ours = layout.cell(rate and rate.value, speedup and speedup.value)
        line[dataset] = layout.speedup.ending(cell) or ours
        if dataset in printed:
            theirs = cell.published
            line[f"{dataset} published"] = layout.cell(theirs.get("acceptance_rate"), theirs.get("speedup"))
    return line


def _groups(layout: Layout, paper: pd.DataFrame, found: Sequence[Block]) -> Iterator[Group]:
    """Blocks that differ in their prompts alone; where nothing was run, the paper's models."""
    datasets = list(dict.fromkeys([*paper["dataset"], *map(methods.published_dataset, found)]))
    every = [(who(members[0]), members[0].published_as or ("", ""), members) for members in _alike(found)]
    if not found:
        models = dict.fromkeys(zip(*(drafted(paper)[name] for name in ("target", "draft")), strict=True))
        every = [({"Target": target, "Draft": draft}, (target, draft), []) for target, draft in models]
    for names, (target, draft), members in every:
        rows = paper[(paper["target"] == target) & paper["draft"].isin([draft, NO_DRAFT])]
        blocks = {methods.published_dataset(block): block for block in members}
        yield {
            name: setting_of(
                {**names, "Dataset": name},
                layout.arms,
                rows[rows["dataset"] == name],
                *methods.by_decoding(blocks.get(name)),
            )
            for name in datasets
        }


def _alike(found: Sequence[Block]) -> list[list[Block]]:
    """Blocks that differ in their dataset alone; of one that was run twice the second starts anew."""
    sets: list[list[Block]] = []
    for block in found:
        home = next((members for members in sets if _fits(block, members)), [])
        if not home:
            sets.append(home)
        home.append(block)
    return sets


def _fits(block: Block, members: Sequence[Block]) -> bool:
    """Whether nothing but the dataset differs; a run that failed may know neither device nor dtype."""
    every = [block, *members]
    same = all(len({one.first[name] for one in every}) == 1 for name in _CELL)
    placed = all(len({one.first[name] for one in every if one.first[name]}) < 2 for name in ("device_name", "dtype"))
    return same and placed and len({one.first["dataset"] for one in every}) == len(every)
