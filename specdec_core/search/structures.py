"""The structures that Sequoia's Figure 1 sets its trees against, each at its best for an acceptance vector."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from specdec_core.search.acceptance import check_acceptance, expected_tokens, isotonic
from specdec_core.search.greedy import greedy_order
from specdec_core.shapes import TreeShape, kary_bfs, sequences


@dataclass(frozen=True, slots=True)
class Growth:
    """Expected tokens per step of one structure at one size."""

    structure: str
    """sequoia | k_sequences | k_ary | binary | sequence"""
    n: int
    """Drafted nodes, root excluded."""
    num_branches: int | None
    """K or k, the best for this n."""
    depth: int
    expected_tokens: float
    """F(T), root counted."""


def best_sequences(*, acceptance: Sequence[float], n: int, num_sequences: int | None = None) -> TreeShape:
    """K sequences of n nodes in all, as even as n allows; K is given, or that with the most expected tokens."""
    vector = check_acceptance(acceptance)
    choices = range(1, min(n, vector.size) + 1) if num_sequences is None else [min(num_sequences, n)]
    return sequences(max(choices, key=lambda k: _of_sequences(vector, k, n)), n)


def growth(acceptance: Sequence[float], sizes: Iterable[int]) -> list[Growth]:
    """Expected tokens of every structure at every size (Sequoia, Figure 1)."""
    vector, rows, wanted = isotonic(acceptance), [], sorted(set(sizes))
    order = list(greedy_order(vector.tolist(), wanted[-1]))
    for n in wanted:
        depth = max((len(path) for path, _ in order[:n]), default=0)
        rows.append(Growth("sequoia", n, None, depth, 1 + sum(value for _, value in order[:n])))
        rows.append(Growth("sequence", n, 1, n, _of_sequences(vector, 1, n)))
        rows.append(Growth("binary", n, 2, kary_bfs(2, n).depth, expected_tokens(kary_bfs(2, n), vector.tolist())))
        count = max(range(1, min(n, vector.size) + 1), key=lambda k: _of_sequences(vector, k, n))
        rows.append(Growth("k_sequences", n, count, -(-n // count), _of_sequences(vector, count, n)))
        trees = {k: kary_bfs(k, n) for k in range(2, min(n, vector.size) + 1)} or {1: kary_bfs(1, n)}
        values = {k: expected_tokens(tree, vector.tolist()) for k, tree in trees.items()}
        best = max(values, key=values.__getitem__)
        rows.append(Growth("k_ary", n, best, trees[best].depth, values[best]))
    return rows


def _of_sequences(vector: np.ndarray, count: int, n: int) -> float:
    """1 + sum over k of p_k (1 + p_1 + ... + p_1^(length - 1))."""
    lengths = np.full(count, n // count) + (np.arange(count) < n % count)
    first = vector[0]
    geometric = lengths if first == 1 else (1 - first**lengths) / (1 - first)
    return 1 + float((vector[:count] * geometric[: vector.size]).sum())
