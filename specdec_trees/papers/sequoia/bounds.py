"""Sequoia, Tables 1 and 2: tokens per step of static trees, by formula, at every measured acceptance vector.

`accepted[k-1]` is the paper's P_k, the probability that one of the k children of an accepted node is accepted. All
results count the bonus token; where the rule never rejects, a limit is infinite.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

from specdec_trees.artifacts import definitions, tables
from specdec_trees.artifacts.outputs import Output
from specdec_trees.papers.sequoia.vectors import BRACKETS, Vector, table_of, vectors
from specdec_trees.results.store import Results
from specdec_trees.statistics.intervals import Interval

WIDTHS = (2, 4, 8, 16, 32)
_BRACKETS = f"{BRACKETS}; given where a formula has a single P_k"
_STRUCTURE, _LARGEST = {"structure": "Structure"}, {"largest": "Sequoia's largest tree"}
BOUNDS = {**_STRUCTURE, "bound": "Upper bound", "value": "value", **{f"k_{k}": f"k={k}" for k in WIDTHS}, **_LARGEST}
COMPONENTS = {
    **_STRUCTURE,
    "tokens": "G(n, d)",
    "time": "t(n)",
    "drafts": "d(n)",
    "limit": "limit",
    **{f"size_{k}": f"n or k={k}" for k in WIDTHS},
    **_LARGEST,
}
LEGEND = {
    "bound": f"{definitions.ACCEPTED_CHILD}; tokens per step, {definitions.BONUS}",
    "value": f"the bound, where it has no k, {_BRACKETS}",
    "k_2": f"the bound for k sequences or k children a node, {_BRACKETS}",
    "limit": f"the limit n -> infinity, {_BRACKETS}",
    "tokens": f"expected tokens per step, {definitions.BONUS}, as the paper prints it; {definitions.ACCEPTED_CHILD}",
    "time": "time of a target forward over n tokens / over one, as the paper prints it",
    "drafts": "number of draft steps, as the paper prints it",
    "size_2": "the formula for a sequence of n drafted tokens, or for k sequences",
    "largest": f"Sequoia has no bound: {definitions.EXPECTED_TREE} of the largest tree evaluated; "
    f"N: {definitions.NODES}",
}
_LOOSE = (
    "For k sequences Table 2 prints 1 + 1/(1-P_k), which holds but is looser than Table 1's 1 + P_k/(1-P_1): "
    "P_k (1-P_k) <= 1-P_1, since P_1 <= P_k."
)


def sequence_of(accepted: Sequence[float], n: int) -> float:
    """A sequence of n drafted tokens: (1 - P_1^(n+1)) / (1 - P_1) (Table 2)."""
    return math.fsum(accepted[0] ** depth for depth in range(n + 1))


def k_sequences(accepted: Sequence[float], k: int) -> float:
    """Limit of k independent sequences: 1 + P_k / (1 - P_1) (Table 1)."""
    return 1 + _divide(accepted[k - 1], 1 - accepted[0])


def k_sequences_loose(accepted: Sequence[float], k: int) -> float:
    """The looser limit of k independent sequences that Table 2 prints: 1 + 1 / (1 - P_k)."""
    return 1 + _divide(1.0, 1 - accepted[k - 1])


def k_ary(accepted: Sequence[float], k: int) -> float:
    """Limit of the k-ary tree, k = 1 a sequence and 2 the binary tree: 1 / (1 - P_k) (Table 1)."""
    return _divide(1.0, 1 - accepted[k - 1])


def limits(accepted: Sequence[float]) -> dict[str, tuple[float, int]]:
    """The limit of each structure at its best k, and that k; `accepted` is first made `concave`."""
    smooth = concave(accepted)
    widths = range(1, len(smooth) + 1)
    return {
        "sequence": (k_ary(smooth, 1), 1),
        "k_sequences": max((k_sequences(smooth, k), k) for k in widths),
        "binary": (k_ary(smooth, min(2, len(smooth))), 2),
        "k_ary": max((k_ary(smooth, k), k) for k in widths),
    }


def concave(accepted: Sequence[float]) -> list[float]:
    """The least concave majorant of P_0 = 0, P_1, ...: the sums of the non-increasing p of which trees are built."""
    points = [(0, 0.0)]
    for point in enumerate(accepted, 1):
        while len(points) > 1 and _slope(points[-2], points[-1]) <= _slope(points[-1], point):
            points.pop()
        points.append(point)
    return [
        left[1] + _slope(left, right) * (k - left[0])
        for left, right in pairwise(points)
        for k in range(left[0] + 1, right[0] + 1)
    ]


def _slope(left: tuple[int, float], right: tuple[int, float]) -> float:
    return (right[1] - left[1]) / (right[0] - left[0])


def _divide(numerator: float, rejected: float) -> float:
    return numerator / rejected if rejected > 1e-12 else math.inf


def table1(name: str, results: Results) -> list[Output]:
    """Upper bounds: five structures for each vector."""

    def rows(vector: Vector) -> Iterator[dict[str, str]]:
        accepted = vector.accepted
        yield {"structure": "Sequence", "bound": "1/(1-P_1)", "value": _inverse(vector, 1)}
        by_k = _by_k(vector, "k_{}", lambda k: _text(k_sequences(accepted, k)))
        yield {"structure": "k independent sequences", "bound": "1+P_k/(1-P_1)"} | by_k
        value = _inverse(vector, 2) if len(accepted) > 1 else tables.ABSENT
        yield {"structure": "Binary tree", "bound": "1/(1-P_2)", "value": value}
        by_k = _by_k(vector, "k_{}", lambda k: _inverse(vector, k))
        yield {"structure": "k-ary tree", "bound": "1/(1-P_k)"} | by_k
        yield {"structure": "Sequoia", "bound": "none (grows without bound)"} | _largest(results, vector)

    title = "Sequoia Table 1: upper bounds on tokens per step"
    return [table_of(name, title, vectors(results), rows, BOUNDS, LEGEND)]


def table2(name: str, results: Results) -> list[Output]:
    """Components of the speedup: three structures for each vector, and the measured forward times."""

    def rows(vector: Vector) -> Iterator[dict[str, str]]:
        accepted = vector.accepted
        row = {"structure": "Sequoia", "tokens": "Omega(b log(n) / log(log(n)))", "time": "Omega(n)", "drafts": "d"}
        yield row | _largest(results, vector)
        row = {"structure": "1 sequence", "tokens": "(1-P_1^(n+1))/(1-P_1)", "time": "1", "drafts": "n"}
        at_n = {f"size_{n}": _text(sequence_of(accepted, n)) for n in WIDTHS}
        yield row | {"limit": _inverse(vector, 1)} | at_n
        row = {"structure": "k independent sequences", "tokens": "<= 1+1/(1-P_k)", "time": "1", "drafts": "floor(n/k)"}
        yield row | _by_k(vector, "size_{}", lambda k: _text(k_sequences_loose(accepted, k)))

    title = "Sequoia Table 2: components of the speedup G(n, d) / (t(n) + d(n) c)"
    return [table_of(name, title, vectors(results), rows, COMPONENTS, LEGEND, [_LOOSE, *_forward_times(results)])]


def _by_k(vector: Vector, column: str, cell: Callable[[int], str]) -> dict[str, str]:
    return {column.format(k): cell(k) for k in WIDTHS if k <= len(vector.accepted)}


def _inverse(vector: Vector, k: int) -> str:
    """1 / r_k with its interval: the ends change places."""
    value, rejection = k_ary(vector.accepted, k), vector.rejection(k)
    if math.isinf(value):
        return "infinite"
    low, high = (math.inf if end <= 0 else 1 / end for end in (rejection.high, rejection.low))
    return tables.interval(Interval(value, low, high, rejection.n))


def _text(value: float) -> str:
    return "infinite" if math.isinf(value) else tables.number(value)


def _largest(results: Results, vector: Vector) -> dict[str, str]:
    """The cell of the largest tree evaluated."""
    rows = results.growth
    rows = rows[(rows["run_id"] == vector.run_id) & (rows["structure"] == "sequoia")]
    if rows.empty:
        return {}
    row = rows.sort_values("n").iloc[-1]
    return {"largest": f"{tables.number(row['expected_tokens'])} at N={row['n'] + 1}"}


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
