"""A row per run: what its columns show, the best marked, and what is said of the runs below."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence

from bench.artifacts import control, tables, ties
from bench.artifacts.metric import Metric, cells, headers, legend
from bench.artifacts.runs import Run, run_ids
from bench.artifacts.tables import Table
from bench.artifacts.wording import draft_temperatures, scale

Row = tuple[Mapping[str, str], Run]
"""What stands before the columns, and the run."""


def run_table(
    name: str,
    title: str,
    rows: Sequence[Row],
    columns: Sequence[Metric],
    *,
    ranked: Sequence[Metric] = (),
    among: Callable[[Row], Hashable] = lambda row: id(row[1].block),
    said: Iterable[str] = (),
    marks: str = "",
    means: Mapping[str, str] | None = None,
    timed: bool = True,
    draft_temperature: bool = True,
) -> Table:
    """A row per run; of `ranked` the best `among` its like are marked.

    Notes: what was run, what is said, the draft's temperatures (if not swept), the machine's noise (if times are
    shown), what marks mean (`marks` first).
    """
    runs = [run for _, run in rows]
    lines = [dict(before) | cells(columns, run) for before, run in rows]
    entries = {metric.header: [metric.entry(run) for run in runs] for metric in ranked}
    ties.mark(lines, entries, [among(row) for row in rows])
    frame = tables.frame(lines, (*(rows[0][0] if rows else ()), *headers(columns)))
    blocks = list({id(run.block): run.block for run in runs}.values())
    best = ties.note(frame)
    notes = (*dict.fromkeys(map(scale, blocks)), *said, *(draft_temperatures(runs) if draft_temperature else ()))
    notes += tuple(control.notes(blocks)) if timed else ()
    notes += (*[marks] * bool(marks and best), *best)
    return Table(name, title, frame, notes, dict(means or {}) | legend(columns), run_ids(runs))
