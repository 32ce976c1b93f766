"""The comparison as a table: a row per cell, the metrics of both sides, their ratio and a word for it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import pandas as pd

from specdec_trees.artifacts import definitions, tables
from specdec_trees.artifacts.tables import Table
from specdec_trees.compare.changes import JUDGED, METRICS, Couple
from specdec_trees.compare.joined import Joined
from specdec_trees.compare.notes import flat, notes, short
from specdec_trees.results.store import CELL
from specdec_trees.statistics import intervals

_ALWAYS = ("pair", "dataset", "drafter", "verifier", "temperature")
_SIDES = {"first": "{} A", "second": "{} B", "ratio": "{} B/A", "verdict": "verdict {}"}
"""By what the key of a metric's column ends with, what stands above it."""
HEADERS = {
    "pair": "Pair",
    "dataset": "Dataset",
    "drafter": "Method",
    "verifier": "Verifier",
    "temperature": "T",
    "experiment": "Experiment",
    **{f"{key}_{side}": words.format(name) for key, name in METRICS.items() for side, words in _SIDES.items()},
}
_RATIO = (
    "B's {} over A's, of the turns that both decoded; in brackets the 95% interval ("
    + intervals.METHOD
    + " over conversations)"
)
_WORD = "{} where the 95% interval of B - A does not hold 0, tied where it does, no interval below six conversations"
_TIMED = _WORD.format("faster or slower") + "; tied too where B/A is no farther from 1 than the interval of the {}"
EXPERIMENT, ARGUMENTS, CONTROL = "experiment", "arguments", "control"
LEGEND = {
    "n": "conversations that both decoded, of which all else is; timed: those whose times count in both, where another "
    "process or a stall spoilt some",
    "identical": "share of turns for which the methods of A and B gave the same tokens",
    "mal_first": definitions.MAL.partition("; in brackets")[0],
    "mal_ratio": _RATIO.format("MAL"),
    "mal_verdict": _WORD.format("longer or shorter"),
    "tokens_per_s_first": definitions.TOKENS_PER_S,
    "tokens_per_s_ratio": _RATIO.format("tokens/s"),
    "tokens_per_s_verdict": _TIMED.format(CONTROL),
    "speedup_first": definitions.SPEEDUP,
    "speedup_ratio": _RATIO.format("speedup"),
    "speedup_verdict": _TIMED.format(CONTROL),
    ARGUMENTS: "arguments of the drafter that tell it from others of its name",
    CONTROL: "B/A of tokens/s of autoregressive decoding, the same work on both sides: what differs is the machine, "
    "and differences of tokens/s and speedups that are smaller say nothing",
}


def table(joined: Joined, judged: Sequence[str] = JUDGED) -> Table:
    """All couples; `judged` are the metrics that the outcome is about."""
    several, apart = joined.sides[0].kind == "root", _told_apart(joined.couples)
    who = [_who(couple, apart) for couple in joined.couples]
    arguments = _arguments(who, joined.couples)
    if any(arguments):
        who = [row | {ARGUMENTS: text or tables.ABSENT} for row, text in zip(who, arguments, strict=True)]
    rows = [row | _measured(couple) for row, couple in zip(who, joined.couples, strict=True)]
    runs = tuple(" ".join(dict.fromkeys((one.first.run_id, one.second.run_id))) for one in joined.couples)
    columns = [name for name in who[0] if several or name != EXPERIMENT]
    title = f"{joined.sides[1].name} (B) against {joined.sides[0].name} (A)"
    frame = tables.frame(rows, [*columns, *_columns()])
    return Table("compare", title, frame, tuple(notes(joined, judged)), LEGEND, runs, HEADERS)


def _columns() -> Iterator[str]:
    yield from ("n", "identical")
    yield from (f"{metric}_{side}" for metric in METRICS for side in _SIDES)
    yield CONTROL


def _who(couple: Couple, columns: Sequence[str]) -> dict[str, str]:
    """Which cell a row is about, or which two."""
    rows = couple.first.row, couple.second.row
    cells = {name: _arrow(*(row[name] for row in rows)) for name in columns}
    return {EXPERIMENT: couple.first.experiment} | cells


def _measured(couple: Couple) -> dict[str, str]:
    if not couple.ok:
        states = (str(run.row["status"]) for run in (couple.first, couple.second))
        return dict.fromkeys(_columns(), tables.ABSENT) | dict(zip(("mal_first", "mal_second"), states, strict=True))
    timed = f" ({couple.num_timed} timed)" if couple.num_timed < couple.num_conversations else ""
    row = {"n": f"{couple.num_conversations}{timed}", "identical": tables.percent(couple.identical)}
    for metric, change in couple.changes.items():
        digits = 1 if metric == "tokens_per_s" else 2
        values = (tables.number(change.first, digits), tables.number(change.second, digits))
        cells = (*values, tables.ratio(change.ratio), change.word)
        row |= {f"{metric}_{side}": cell for side, cell in zip(_SIDES, cells, strict=True)}
    return row | {CONTROL: tables.interval(couple.control, 3)}


def _told_apart(couples: Sequence[Couple]) -> list[str]:
    """The columns of a cell that are shown: the usual ones, and what else tells cells of these apart."""
    shown = list(_ALWAYS)
    cells = pd.DataFrame([couple.first.row[list(CELL)] for couple in couples]).reset_index(drop=True)
    cells["experiment"] = [couple.first.experiment for couple in couples]
    for column in CELL:
        apart = cells.groupby(["experiment", *shown], dropna=False)[column].nunique(dropna=False)
        if column not in (*shown, "drafter_params") and (apart > 1).any():
            shown.append(column)
    return shown


def _arguments(who: Sequence[dict[str, str]], couples: Sequence[Couple]) -> list[str]:
    """`n 768`: the arguments of a drafter in which it differs from others whose row would be the same."""
    given = [flat(json.loads(couple.first.row["drafter_params"])) for couple in couples]
    texts = []
    for row, own in zip(who, given, strict=True):
        alike = [other for other_row, other in zip(who, given, strict=True) if other_row == row]
        keys = [key for key in own if any(other.get(key) != own[key] for other in alike)]
        texts.append(", ".join(f"{key} {short(own[key])}" for key in keys))
    return texts


def _arrow(first: Any, second: Any) -> str:
    """`opt_tree`, or `opt_tree -> sequoia` of two runs that are not of the same cell."""
    texts = [
        tables.ABSENT if pd.isna(value) else f"{value:g}" if isinstance(value, float) else str(value)
        for value in (first, second)
    ]
    return " -> ".join(dict.fromkeys(texts))
