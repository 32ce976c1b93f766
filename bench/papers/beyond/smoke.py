"""The smoke run: every tree method on the embedded pair and prompts, in one table and two figures."""

from __future__ import annotations

import pandas as pd

from bench.artifacts import control, definitions, tables, ties
from bench.artifacts.blocks import Block, blocks
from bench.artifacts.expected_actual import expected_actual
from bench.artifacts.metric import SPEEDS, cells, headers, legend
from bench.artifacts.outputs import Output
from bench.artifacts.runs import Run
from bench.artifacts.tables import Table
from bench.artifacts.wording import draft_temperatures, scale, setting
from bench.papers.beyond.methods import mal_by_method
from bench.results.store import Results
from bench.statistics import metrics

DEPTHS = range(1, 5)
TIMES = {"tokens_per_s": "tokens/s", "speedup": "speedup"}
"""Columns in which the best of all rows are marked, by metric."""
EVEN = (
    "MAL is marked among trees of the same n alone, where there are several: larger trees accept more, and what they "
    "cost is in tokens/s and speedup, which are marked among all rows."
)
EXPECTED_ACTUAL = expected_actual("Expected against actual acceptance length, number of decoding steps")
LEGEND = {
    "n": f"the most {definitions.SIZE}",
    "nodes": f"{definitions.SIZE}, mean over steps",
    "MAL": definitions.MAL,
    "E(A)": definitions.EXPECTED,
    "d=1": "share of steps that accepted 1 drafted token or more, of those whose tree is so deep (d=2: 2 or more, ...)",
    "forwards": "draft forwards per decoding step",
    **legend(SPEEDS),
    "speedup": definitions.CONTROLLED_SPEEDUP,
    "identical": definitions.IDENTICAL,
    "lossless": definitions.LOSSLESS,
}
COLUMNS = (
    *("Drafter", "n", "nodes", "MAL", "E(A)", *(f"d={depth}" for depth in DEPTHS)),
    *("forwards", *headers(SPEEDS), "speedup", "identical", "lossless"),
)


def smoke(results: Results) -> list[Output]:
    """The table of all methods, MAL by method, and E(A) against A."""
    figures = [*mal_by_method("smoke_mal", results), *EXPECTED_ACTUAL("smoke_expected_actual", results)]
    return [smoke_table(results), *figures]


def smoke_table(results: Results) -> Table:
    """One row per drafter, autoregressive decoding first, then by method and size."""
    found = blocks(results)
    pairs = [pair for block in found for pair in _rows(block)]
    frame = tables.frame([row for row, _ in pairs], COLUMNS)
    title = f"All tree methods ({setting(found)})"
    temperatures = draft_temperatures(run for block in found for run in block.ok)
    notes = (*map(scale, found), *temperatures, *control.notes(found), *_marks(frame))
    return Table("smoke", title, frame, notes, LEGEND, tuple(run for _, run in pairs))


def _rows(block: Block) -> list[tuple[dict[str, str], str]]:
    runs = list(block.every)
    runs.sort(key=lambda run: (run.method != "autoregressive", run.method, run.size or 0, run.drafter))
    rows = [_row(block, run) for run in runs]
    ties.mark(rows, {header: [ties.of(run, metric) for run in runs] for metric, header in TIMES.items()})
    for size in {run.size for run in runs}:
        even = [(row, ties.of(run, "mal")) for row, run in zip(rows, runs, strict=True) if run.size == size]
        ties.mark([row for row, _ in even], {"MAL": [entry for _, entry in even]})
    return [(row, run.run_id) for row, run in zip(rows, runs, strict=True)]


def _marks(frame: pd.DataFrame) -> tuple[str, ...]:
    """What the marks mean, if there are any."""
    found = ties.note(frame)
    return (*found, EVEN) if found else ()


def _row(block: Block, run: Run) -> dict[str, str]:
    drafter = f"{run.drafter} [{block.mark}]" if block.mark else run.drafter
    row = {"Drafter": drafter, "n": str(run.size or 0), "MAL": tables.interval(run.mal)}
    row |= cells(SPEEDS, run) | {"speedup": tables.interval(run.speedup), "identical": tables.percent(run.identical)}
    row |= {"lossless": "yes" if run.lossless else "no"} | _step_cells(run)
    return row if run.status == "ok" else row | {"MAL": run.status, "lossless": tables.ABSENT}


def _step_cells(run: Run) -> dict[str, str]:
    steps = run.steps
    by_depth = metrics.acceptance_by_depth(steps)
    row = {f"d={depth}": tables.number(by_depth.get(depth)) for depth in DEPTHS}
    row["nodes"] = tables.number(steps["num_drafted"].mean() if len(steps) else None, 1)
    row["E(A)"] = tables.number(metrics.expected_acceptance(steps))
    row["forwards"] = tables.number(run.draft_forwards, 1)
    return row
