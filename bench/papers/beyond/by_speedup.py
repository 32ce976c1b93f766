"""Runs by their speedup: a table that fits a terminal, and another with all columns. For `make smoke` and any runs."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from bench.artifacts import control, definitions, frame, tables, ties
from bench.artifacts.blocks import Block, blocks
from bench.artifacts.findings import BUSY, findings
from bench.artifacts.metric import EXPECTED, IS_LOSSLESS, MAL, SPEEDS, SPEEDUP, Metric, cells, legend
from bench.artifacts.outputs import Output
from bench.artifacts.runs import Run, run_ids
from bench.artifacts.tables import SETTING, Table
from bench.artifacts.wording import draft_temperatures, scale, setting
from bench.results.store import Results
from bench.statistics import metrics


def _by_depth(depth: int, means: str = "") -> Metric:
    return Metric(f"d={depth}", lambda run: metrics.acceptance_by_depth(run.steps).get(depth), means)


SIZES = (
    Metric("n", lambda run: str(run.size or 0), f"the most {definitions.SIZE}"),
    Metric("nodes", lambda run: run.mean_size, f"{definitions.SIZE}, mean over steps", 1),
    replace(MAL, of=lambda run: run.mal if run.ok else run.status),
    EXPECTED,
)
DEPTHS = (
    _by_depth(
        1, "share of steps that accepted 1 drafted token or more, of those whose tree is so deep (d=2: 2 or more, ...)"
    ),
    *map(_by_depth, (2, 3, 4)),
)
FORWARDS = Metric("forwards", lambda run: run.draft_forwards, "draft forwards per decoding step", 1)
CONTROLLED = replace(SPEEDUP, means=definitions.CONTROLLED_SPEEDUP)
SAME = Metric("identical", lambda run: tables.percent(run.identical), definitions.IDENTICAL)
SHORT = (*SIZES, FORWARDS, CONTROLLED, SAME)
FULL = (*SIZES, *DEPTHS, FORWARDS, *SPEEDS, CONTROLLED, SAME, IS_LOSSLESS)
EVEN = (
    "MAL is marked among trees of the same n alone, where there are several: larger trees accept more. What they cost "
    "is in the times, which are marked among all rows."
)


def by_speedup(name: str, title: str, results: Results) -> list[Output]:
    """A row per run, the fastest of each setting first: in few columns with what they show, and in all."""
    found = blocks(results)
    runs = [run for block in found for run in sorted(block.every, key=lambda run: -run.rank)]
    words = f"{title} ({setting(found)})"
    loaded = frame.load(results)
    busy = set(loaded.loc[loaded["busy"].astype(bool), "run_id"])
    details = _table(f"{name}_details", f"{words}, details", FULL, found, runs, busy)
    short = _table(name, words, SHORT, found, runs, busy)
    short = replace(short, headers={"MAL": "MAL"}, findings=findings(loaded))
    notes = [*map(scale, found), *draft_temperatures(run for block in found for run in block.ok), *control.notes(found)]
    short = replace(short, notes=(*notes, *short.notes, f"All columns are in {details.name}."))
    return [_unmarked(short), details]


def _table(
    name: str, title: str, columns: Sequence[Metric], found: Sequence[Block], runs: Sequence[Run], busy: Collection[str]
) -> Table:
    """These columns, the best marked; `busy` has the runs whose times rank nothing."""
    rows = [_who(run, found) | cells(columns, run) for run in runs]
    for metric in columns:
        among = [(id(run.block), run.size if metric.header == MAL.header else None) for run in runs]
        entries = [metric.entry(run) for run in runs]
        ties.mark(rows, {metric.header: entries}, among, [run.run_id in busy for run in runs])
    grid = tables.frame(rows, rows[0] if rows else ())
    marks = ties.note(grid)
    return Table(name, title, grid, (*marks, *[EVEN] * bool(marks)), legend(columns), run_ids(runs))


def _unmarked(table: Table) -> Table:
    """The table without the marks of times that are too noisy to rank, and with a warning in their place."""
    grid = table.frame.apply(lambda column: column.str.removesuffix(ties.UNRANKED))
    busy = not grid.equals(table.frame)
    notes = tuple(note for note in table.notes if note != ties.BUSY_NOTE)
    return replace(table, frame=grid, notes=notes, warning=BUSY * busy)


def _who(run: Run, found: Sequence[Block]) -> dict[str, str]:
    """The setting where there are several, and the drafter, with what tells it from others of its config."""
    alike = [one for one in run.block.every if one.drafter == run.drafter]
    own = {**run.params, "judged by": run["verifier"]}
    every = [{**one.params, "judged by": one["verifier"]} for one in alike]
    differ = [key for key, value in own.items() if any(one.get(key) != value for one in every)]
    told = ", ".join(f"{key} {own[key]}" for key in differ if not isinstance(own[key], dict | list))
    drafter = f"{run.name} ({told})" if told else run.name
    return ({SETTING: run.block.name} if len(found) > 1 else {}) | {"Drafter": drafter}
