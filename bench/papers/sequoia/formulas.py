"""Sequoia, Tables 1 and 2: the paper's formulas, evaluated at every measured acceptance vector."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import pandas as pd

from bench.artifacts import definitions, tables
from bench.artifacts.outputs import Output
from bench.artifacts.tables import Table
from bench.papers.sequoia import bounds
from bench.papers.sequoia.vectors import Vector, growth, rule_label, scale, vectors, words
from bench.results.store import Results
from bench.statistics.intervals import Interval

WIDTHS = (2, 4, 8, 16, 32)
TITLES = {
    "table1": "Sequoia Table 1: upper bounds on tokens per step",
    "table2": "Sequoia Table 2: components of the speedup G(n, d) / (t(n) + d(n) c)",
}
_WHO = ("Pair", "Dataset", "temperature", "top-p", "Rule", "Structure")
_LARGEST = "Sequoia's largest tree"
COLUMNS = {
    "table1": (*_WHO, "Upper bound", "value", *(f"k={k}" for k in WIDTHS), _LARGEST),
    "table2": (*_WHO, "G(n, d)", "t(n)", "d(n)", "limit", *(f"n or k={k}" for k in WIDTHS), _LARGEST),
}
_BRACKETS = "in brackets the 95% interval (bootstrap over prompts), given where a formula has a single P_k"
LEGEND = {
    "Upper bound": f"{definitions.ACCEPTED_CHILD}; tokens per step, {definitions.BONUS}",
    "value": f"the bound, where it has no k, {_BRACKETS}",
    "k=2": f"the bound for k sequences or k children a node, {_BRACKETS}",
    "limit": f"the limit n -> infinity, {_BRACKETS}",
    "G(n, d)": f"expected tokens per step, {definitions.BONUS}, as the paper prints it; {definitions.ACCEPTED_CHILD}",
    "t(n)": "time of a target forward over n tokens / over one, as the paper prints it",
    "d(n)": "number of draft steps, as the paper prints it",
    "n or k=2": "the formula for a sequence of n drafted tokens, or for k sequences",
    _LARGEST: f"Sequoia has no bound: {definitions.EXPECTED_TREE} of the largest tree evaluated, {definitions.NODES}",
}
_LOOSE = (
    "For k sequences Table 2 prints 1 + 1/(1-P_k), which holds but is looser than Table 1's 1 + P_k/(1-P_1): "
    "P_k (1-P_k) <= 1-P_1, since P_1 <= P_k."
)


def formula_table(artifact: str, results: Results) -> list[Output]:
    """One of the two tables: five or three structures for each vector."""
    found, rows_of = vectors(results), {"table1": _table1, "table2": _table2}[artifact]
    rows = [_who(vector) | row for vector in found for row in rows_of(vector, _largest(results, vector))]
    ids = tuple(str(vector.first["run_id"]) for vector in found for _ in range(len(rows) // len(found)))
    title = f"{TITLES[artifact]} ({words(pd.concat([vector.rows for vector in found]))})"
    notes = [scale(vector) for vector in found]
    if artifact == "table2":
        notes += [_LOOSE, *_forward_times(results)]
    frame = tables.frame(rows, COLUMNS[artifact]).fillna(tables.ABSENT)
    return [Table(artifact, title, frame, tuple(notes), LEGEND, ids)]


def _table1(vector: Vector, largest: str) -> Iterator[dict[str, str]]:
    accepted = vector.accepted
    yield {"Structure": "Sequence", "Upper bound": "1/(1-P_1)", "value": _inverse(vector, 1)}
    by_k = _by_k(vector, "k={}", lambda k: _text(bounds.k_sequences(accepted, k)))
    yield {"Structure": "k independent sequences", "Upper bound": "1+P_k/(1-P_1)"} | by_k
    value = _inverse(vector, 2) if len(accepted) > 1 else tables.ABSENT
    yield {"Structure": "Binary tree", "Upper bound": "1/(1-P_2)", "value": value}
    yield {"Structure": "k-ary tree", "Upper bound": "1/(1-P_k)"} | _by_k(vector, "k={}", lambda k: _inverse(vector, k))
    yield {"Structure": "Sequoia", "Upper bound": "none (grows without bound)", _LARGEST: largest}


def _table2(vector: Vector, largest: str) -> Iterator[dict[str, str]]:
    accepted = vector.accepted
    yield {
        "Structure": "Sequoia",
        "G(n, d)": "Omega(b log(n) / log(log(n)))",
        "t(n)": "Omega(n)",
        "d(n)": "d",
        _LARGEST: largest,
    }
    row = {"Structure": "1 sequence", "G(n, d)": "(1-P_1^(n+1))/(1-P_1)", "t(n)": "1", "d(n)": "n"}
    at_n = {f"n or k={n}": _text(bounds.sequence_of(accepted, n)) for n in WIDTHS}
    yield row | {"limit": _inverse(vector, 1)} | at_n
    row = {"Structure": "k independent sequences", "G(n, d)": "<= 1+1/(1-P_k)", "t(n)": "1", "d(n)": "floor(n/k)"}
    yield row | _by_k(vector, "n or k={}", lambda k: _text(bounds.k_sequences_loose(accepted, k)))


def _who(vector: Vector) -> dict[str, str]:
    row = vector.first
    return {
        "Pair": str(row["pair"]),
        "Dataset": str(row["dataset"]),
        "temperature": f"{row['temperature']:g}",
        "top-p": f"{row['top_p']:g}",
        "Rule": rule_label(row["verifier"]),
    }


def _by_k(vector: Vector, header: str, cell: Callable[[int], str]) -> dict[str, str]:
    return {header.format(k): cell(k) for k in WIDTHS if k <= len(vector.accepted)}


def _inverse(vector: Vector, k: int) -> str:
    """1 / r_k with its interval: the ends change places."""
    value, rejection = bounds.k_ary(vector.accepted, k), vector.rejection(k)
    if math.isinf(value):
        return "infinite"
    low, high = (math.inf if end <= 0 else 1 / end for end in (rejection.high, rejection.low))
    return tables.interval(Interval(value, low, high, rejection.n))


def _text(value: float) -> str:
    return "infinite" if math.isinf(value) else tables.number(value)


def _largest(results: Results, vector: Vector) -> str:
    rows = growth(results)
    if not rows.empty:
        rows = rows[(rows["run_id"] == vector.first["run_id"]) & (rows["structure"] == "sequoia")]
    if rows.empty:
        return tables.ABSENT
    row = rows.sort_values("n").iloc[-1]
    return f"{tables.number(row['expected_tokens'])} at N={row['n'] + 1}"


def _forward_times(results: Results) -> Iterator[str]:
    """Run t(N) and c, a sentence per measurement."""
    columns = ["run_id", "pair", "device_name", "dtype", "num_prefix"]
    for (_, pair, device, dtype, prefix), rows in results.latency.groupby(columns, sort=False):
        times = rows.groupby(["role", "num_tokens"])["forward_s"].median()
        if ("target", 1) not in times:
            continue
        one = times["target", 1]
        t = ", ".join(f"t({size}) = {seconds / one:.2f}" for size, seconds in times["target"].items())
        c = f"; c = {times['draft', 1] / one:.3f}" if ("draft", 1) in times else ""
        yield (
            f"{pair} on {device}, {dtype}, {prefix} cached tokens, measured (median forward, N tokens / one token): "
            f"{t}{c}."
        )
