"""A long frame as a table: a row per run, a column per metric, the paper's number and a verdict where there is one."""

from __future__ import annotations

from collections import ChainMap, Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import pandas as pd

from specdec_trees.artifacts import definitions, frame, tables, ties, verdict
from specdec_trees.artifacts.metrics import Metric
from specdec_trees.artifacts.tables import ABSENT, Table, named_rows


def table(
    name: str,
    title: str,
    long: pd.DataFrame,
    rows: Sequence[str],
    metrics: Sequence[Metric],
    *,
    aside: Collection[str] = (),
    notes: Iterable[str] = (),
    headers: Mapping[str, str] | None = None,
    means: Mapping[str, str] | None = None,
) -> Table:
    """The lines of the frame in their order; `rows` has the columns that say what a line is of.

    Verdicts are corrected for their number; pages show them behind the paper's numbers. `aside` has the keys of columns
    that stand below, where there is something to show, `headers` what stands above `rows` if not as in all tables,
    `means` what they mean.
    """
    long = frame.corrected(long) if "verdict" in long else long
    keys = ["block", "run_id", *rows]
    keyed = long["metric"].map(lambda metric: metric.key)
    number = long[keys].astype(str).groupby(keys, sort=False).ngroup()
    first = long[~number.duplicated()]
    cells: dict[str, list[str]] = {key: [_word(value) for value in first[key]] for key in rows}
    verdicts: dict[str, list[str]] = {}
    for metric in metrics:
        own = long[keyed == metric.key]
        lines = [
            line for _, line in sorted(zip(number[own.index], named_rows(own), strict=True), key=lambda pair: pair[0])
        ]
        ours = [_ours(line, says_how=metric.ranked or metric is metrics[0]) for line in lines]
        if metric.key in aside and {*ours} <= {ABSENT, ""}:
            continue
        cells[metric.key] = ours
        if "published" in long and any(line.published is not None for line in lines):
            cells[metric.published] = [metric.printed(line.published) for line in lines]
        if "verdict" in long and any(words := [_said(line.verdict) for line in lines]):
            verdicts[metric.verdict] = words
    elsewhere = _elsewhere(first)
    cells |= {header: [_of_machine(known, machine) for known in first["predictions"]] for header, machine in elsewhere}
    grid = tables.frame(
        [dict(zip(cells | verdicts, row, strict=True)) for row in zip(*(cells | verdicts).values(), strict=True)],
        cells | verdicts,
    )
    legend = {
        **(means or {}),
        **{metric.key: metric.means for metric in metrics if metric.means and metric.key in cells},
    }
    legend |= dict.fromkeys([*verdicts][:1], definitions.VERDICT)
    legend |= {header: definitions.PREDICTED_ELSEWHERE for header, _ in elsewhere[:1]}
    notes = (*notes, *_without_verdict(long), *ties.note(grid))
    return Table(
        name,
        title,
        grid,
        notes,
        legend,
        tuple(first.get("run_ids", first["run_id"]).fillna(first["run_id"])),
        headers=dict(ChainMap(*(one.headers for one in metrics), dict(headers or {}), definitions.ROWS)),
        aside=tuple(column for column in grid if column in {*aside, *dict(elsewhere)}),
        lead=len(rows),
        long=long,
    )


def _elsewhere(first: pd.DataFrame) -> list[tuple[str, str]]:
    """The machines on which speeds of the runs were predicted, with the headers of their columns."""
    known = first.get("predictions", pd.Series()).dropna()  # lines without a run have none
    machines = dict.fromkeys(machine for of_run in known for machine in of_run)
    return [(f"speedup predicted on {machine}", machine) for machine in machines]


def _of_machine(known: Any, machine: str) -> str:
    """A run's speedup there, where there is a run and its speedup is known."""
    return tables.number(known.get(machine) if isinstance(known, dict) else None)


def _word(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _ours(line: Any, *, says_how: bool) -> str:
    """Ours with its interval and mark; of a run that did not end well how it ended, in some of its cells."""
    if line.run_id and not line.ok:
        return str(line.status) if says_how else ABSENT
    return line.metric.cell(line.value, line.interval) + str(getattr(line, "mark", ""))


def _without_verdict(long: pd.DataFrame) -> Iterator[str]:
    """A sentence on why published numbers have none."""
    words = long.loc[long["published"].notna(), "verdict"] if "verdict" in long else ()
    reasons = Counter(text.partition(": ")[2] for text in words if text.startswith(verdict.NOT_COMPARABLE))
    if reasons:
        counts = ", ".join(f"{reason} ({count})" for reason, count in reasons.items())
        yield f"Published numbers without a verdict are not comparable: {counts}."


def _said(words: str) -> str:
    """A verdict, where there is one."""
    return "" if words.startswith(verdict.NOT_COMPARABLE) or words == verdict.NOT_RUN else words
