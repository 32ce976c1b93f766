"""Improved MCSD, Tables 2 to 4: the acceptance rate alpha by dataset and method, and what was measured beside it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from bench import published
from bench.artifacts import control, definitions, tables, ties, verdict
from bench.artifacts.metric import lossless_words
from bench.artifacts.outputs import Output
from bench.artifacts.speedups.settings import drafted
from bench.artifacts.tables import Table
from bench.artifacts.verdict import Pairing
from bench.artifacts.wording import setting
from bench.papers.improving_mcsd import remarks
from bench.papers.improving_mcsd.cells import Cell, blocks_of
from bench.papers.improving_mcsd.grid import Column, Setting, columns_of, settings_of
from bench.papers.improving_mcsd.methods import DYNAMIC, STATIC, Method
from bench.papers.improving_mcsd.rates import alpha_drafted
from bench.papers.improving_mcsd.settings import PAPER, first_tokens, virtual
from bench.results.store import Results
from bench.statistics import metrics

LEGEND = {
    "alpha": definitions.ALPHA,
    "alpha drafted": definitions.ALPHA_DRAFTED,
    "accepted / depth": definitions.ACCEPTED_DEPTH,
    "accepted / node": definitions.ACCEPTED_NODE,
    "MAL": definitions.MAL,
    "draft nodes": definitions.DRAFT_NODES,
    "verified": definitions.VERIFIED_ROWS,
    "draft forwards": "forwards of the draft, mean over steps",
    "speedup": f"{definitions.SPEEDUP}; in brackets the 95% interval",
    "lossless": f"{definitions.LOSSLESS}; of greedy decoding also the share of outputs identical to the target's own",
    "verdict": f"on alpha, {definitions.VERDICT}",
}
_DETAILS = (
    *("Target", "Draft", "Dataset", "Temp", "Method", "Configuration", "alpha", "alpha published", "alpha drafted"),
    *("accepted / depth", "accepted / node", "MAL", "draft nodes", "verified", "draft forwards", "speedup"),
    *("lossless", "verdict"),
)
_RANKED = {"alpha": "alpha", "mal": "MAL", "speedup": "speedup"}
"""Columns in which the best are marked, by metric."""


@dataclass(frozen=True, slots=True)
class Layout:
    """One of the tables."""

    title: str
    methods: tuple[Method, ...]
    temperatures: tuple[float, ...]
    notes: tuple[str, ...]


LAYOUTS: Mapping[str, Layout] = {
    "table2": Layout(
        "Improved MCSD Table 2: acceptance rate alpha of static trees",
        STATIC,
        (0.7,),
        (remarks.BUDGETS, remarks.CONTROL, remarks.LOSSY),
    ),
    "table3": Layout(
        "Improved MCSD Table 3: acceptance rate alpha beside dynamic trees",
        DYNAMIC,
        (1.0,),
        (remarks.DYNAMIC_BUDGETS, *remarks.OF_DYNAMIC),
    ),
    "table4": Layout(
        "Improved MCSD Table 4: acceptance rate alpha of dynamic trees", DYNAMIC[-1:], (0.0, 1.0), remarks.OF_DYNAMIC
    ),
}


def acceptance_table(name: str, layout: Layout, results: Results) -> list[Output]:
    """One of the tables, twice: as printed, and a row per run with intervals, costs and verdicts."""
    paper = published.find(PAPER, name)
    found = [block.standing_in(drafted(paper)) for block in blocks_of(results, layout.methods, layout.temperatures)]
    columns = columns_of(paper, found)
    grid = [(one, _cells(layout, one, columns)) for one in settings_of(paper, found)]
    swept = ("dataset", "temperature") if len(layout.temperatures) > 1 else ("dataset",)
    title = f"{layout.title} ({setting(found, but=swept) if found else 'not run'})"
    shown = [cell.run_id for _, rows in grid for cells in rows for cell in cells.values()]
    notes = (*remarks.said(paper, found), *layout.notes, *remarks.left_out(results, shown))
    wide = [line for one, rows in grid for line in _wide(one, rows)]
    details = list(_details(grid, columns))
    headers = ["Dataset", "Draft", *(["Temp"] if len(layout.temperatures) > 1 else []), "Method", "Configuration"]
    headers += [header for column in columns for header in (column.words, _beside(column))]
    legend = {columns[0].words: f"alpha: {definitions.ALPHA.partition('; in brackets')[0]}"}
    full, runs = tables.frame([row for row, _ in details], _DETAILS), tuple(run for _, run in details)
    more = (*notes, *control.notes(found), *ties.note(full))
    shown_as = {column.words: f"{column.words}: alpha" for column in columns}
    printed, ids = tables.frame([row for row, _ in wide], headers), tuple(run for _, run in wide)
    return [
        Table(name, title, printed, notes, legend, ids, shown_as),
        Table(f"{name}_details", f"{title}, details", full, more, LEGEND, runs),
    ]


def _cells(layout: Layout, one: Setting, columns: Sequence[Column]) -> list[dict[str, Cell]]:
    """A row per method, of those that the paper has or that were run: its cells by the words for the target."""
    rows = [
        {column.words: Cell(method, one.blocks.get(column.words), one.of(column)) for column in columns}
        for method in layout.methods
    ]
    return [row for row in rows if any(cell.run_id or cell.pairing.published is not None for cell in row.values())]


def _wide(one: Setting, rows: Iterable[Mapping[str, Cell]]) -> Iterator[tuple[dict[str, str], str]]:
    """A row per method as the paper prints it, its numbers beside ours; and its runs."""
    for cells in rows:
        method = next(iter(cells.values())).method
        line = {"Dataset": one.dataset, "Draft": one.draft, "Temp": f"{one.temperature:g}"}
        line |= {"Method": method.header, "Configuration": method.configuration}
        for words, cell in cells.items():
            line |= {words: cell.alpha, f"{words} published": tables.number(cell.pairing.published)}
        yield line, " ".join(cell.run_id for cell in cells.values() if cell.run_id)


def _details(
    grid: Sequence[tuple[Setting, Sequence[Mapping[str, Cell]]]], columns: Sequence[Column]
) -> Iterator[tuple[dict[str, str], str]]:
    """A row per target and method with all that was measured, and its run; what was not run once, as the paper's."""
    places = [(one, column, rows) for one, rows in grid for column in columns]
    told = {
        _place(one, column, row[column.words])
        for one, column, rows in places
        for row in rows
        if column.words in one.blocks
    }
    for one, column, rows in places:
        cells = [row[column.words] for row in rows]
        pairings = {cell.method.header: cell.pairing for cell in cells}
        shown = []
        for cell in cells:
            place = _place(one, column, cell)
            if cell.run_id or (cell.pairing.published is not None and place not in told):
                told.add(place)
                shown.append(cell)
        lines = [_line(one, column, cell, pairings) for cell in shown]
        ties.mark(lines, {header: [cell.entry(metric) for cell in shown] for metric, header in _RANKED.items()})
        yield from zip(lines, (cell.run_id for cell in shown), strict=True)


def _place(one: Setting, column: Column, cell: Cell) -> tuple[str, float, str, str, str]:
    """What the paper prints one number for."""
    draft = str(one.paper["draft"].iloc[0]) if len(one.paper) else one.draft
    return one.dataset, one.temperature, draft, column.target, cell.method.header


def _line(one: Setting, column: Column, cell: Cell, pairings: Mapping[str, Pairing]) -> dict[str, str]:
    """Names are the paper's where nothing was run."""
    _, _, draft, target, method = _place(one, column, cell)
    names = {"Target": target, "Draft": draft} if cell.block is None else {"Target": column.words, "Draft": one.draft}
    line = names | {"Dataset": one.dataset, "Temp": f"{one.temperature:g}"}
    line |= {"Method": method, "Configuration": cell.method.configuration}
    line |= {"alpha": cell.failure or tables.interval(cell.pairing.ours)}
    line |= {"alpha published": tables.number(cell.pairing.published)}
    stand_in = cell.block is not None and cell.block.stand_in
    return line | {"verdict": verdict.judge(method, pairings, stand_in=stand_in)} | _measured(cell)


def _measured(cell: Cell) -> dict[str, str]:
    """What was measured beside alpha; nothing of a run that did not end well."""
    if cell.block is None or cell.run is None or cell.failure:
        return dict.fromkeys(_DETAILS[8:-1], tables.ABSENT)
    run, steps, found = cell.run, cell.block.steps(cell.run_id), cell.measured
    assert found is not None  # it ended well
    nodes = float(steps["num_drafted"].mean())
    return {
        "alpha drafted": tables.interval(alpha_drafted(cell.block, run)),
        "accepted / depth": tables.number(metrics.acceptance_rate_depth(steps), 3),
        "accepted / node": tables.number(metrics.acceptance_rate_node(steps), 3),
        "MAL": tables.interval(run.mal),
        "draft nodes": tables.number(nodes - first_tokens(run), 1),
        "verified": tables.number(nodes + (not virtual(run)), 1),
        "draft forwards": tables.number(float(steps["draft_forwards"].mean()), 1),
        "speedup": tables.interval(found.speedup),
        "lossless": lossless_words(found),
    }


def _beside(column: Column) -> str:
    return f"{column.words} published"
