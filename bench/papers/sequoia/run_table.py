"""Sequoia, Figures 5b and 5c: the table of the runs that they draw."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from bench.artifacts import control, definitions, tables
from bench.artifacts.blocks import Block
from bench.artifacts.names import method_label
from bench.artifacts.runs import Run
from bench.artifacts.tables import Table
from bench.artifacts.wording import scale
from bench.papers.sequoia.vectors import rule_label

COLUMNS = (
    *("Setting", "Method", "Rule", "temperature", "N", "levels"),
    *("speedup", "speedup predicted", "MAL", "MAL predicted", "lossless"),
)
LEGEND = {
    "N": definitions.NODES,
    "levels": definitions.LEVELS,
    "speedup": definitions.SPEEDUP,
    "speedup predicted": definitions.PREDICTED_SPEEDUP,
    "MAL": definitions.MAL,
    "MAL predicted": definitions.PREDICTED_MAL,
    "lossless": definitions.LOSSLESS,
}


def run_table(
    name: str,
    title: str,
    runs: Sequence[tuple[Block, Run]],
    notes: Iterable[str] = (),
    more: Sequence[Mapping[str, str]] = (),
    legend: Mapping[str, str] | None = None,
) -> Table:
    """A row per run; `more` gives further columns for every row, `legend` says what they mean."""
    rows = [_row(block, run) for block, run in runs]
    further = list(more[0]) if more else []
    rows = [row | dict(cells) for row, cells in zip(rows, more, strict=True)] if more else rows
    scales = dict.fromkeys(scale(block) for block, _ in runs)
    ids = tuple(run.run_id for _, run in runs)
    frame = tables.frame(rows, (*COLUMNS, *further))
    controls = control.notes({id(block): block for block, _ in runs}.values())
    return Table(name, title, frame, (*scales, *notes, *controls), LEGEND | dict(legend or {}), ids)


def _row(block: Block, run: Run) -> dict[str, str]:
    return {
        "Setting": block.name,
        "Method": method_label(run.method),
        "Rule": rule_label(str(run["verifier"])),
        "temperature": f"{run['temperature']:g}",
        "N": str(run.nodes or tables.ABSENT),
        "levels": str(run.levels or tables.ABSENT),
        "speedup": tables.interval(run.speedup) if run.ok else str(run["status"]),
        "speedup predicted": tables.number(run.predicted("speedup")),
        "MAL": tables.interval(run.mal),
        "MAL predicted": tables.number(run.predicted("mal")),
        "lossless": tables.ABSENT if run["status"] != "ok" else "yes" if run["lossless"] else "no",
    }
