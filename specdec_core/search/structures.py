"""The structures that Sequoia's Figure 1 sets its trees against, each at its best for an acceptance vector."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from specdec_core.search.acceptance import check_acceptance, expected_tokens
from specdec_core.search.programme import Programme
from specdec_core.shapes import TreeShape, chain, kary_bfs, sequences


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
    parents: list[int]
    """Of every node, the root (-1) among them."""


def best_sequences(*, acceptance: Sequence[float], n: int, num_sequences: int | None = None) -> TreeShape:
    """K sequences of n nodes in all, as even as n allows; K is given, or that with the most expected tokens."""
    vector = check_acceptance(acceptance)
    choices = range(1, min(n, vector.size) + 1) if num_sequences is None else [min(num_sequences, n)]
    return sequences(max(choices, key=lambda k: _of_sequences(vector, k, n)), n)


def best_kary(*, acceptance: Sequence[float], n: int) -> TreeShape:
    """The k-ary tree of n nodes in breadth-first order with the most expected tokens, k from 2 on."""
    vector = check_acceptance(acceptance)
    return _best_kary(vector.tolist(), n)[1]


def growth(acceptance: Sequence[float], sizes: Iterable[int]) -> list[Growth]:
    """Expected tokens of every structure at every size (Sequoia, Figure 1)."""
    vector, wanted = check_acceptance(acceptance), sorted(set(sizes))
    programme = Programme(acceptance, wanted[-1])
    return [row for n in wanted for row in _structures(vector, programme.tree(n), n)]


def _structures(vector: np.ndarray, best_tree: TreeShape, n: int) -> Iterator[Growth]:
    """Every structure of n nodes."""
    most, values = min(n, vector.size), vector.tolist()
    trees: dict[str, tuple[int | None, TreeShape]] = {
        "sequoia": (None, best_tree),
        "sequence": (1, chain(n)),
        "binary": (2, kary_bfs(2, n)),
    }
    count = max(range(1, most + 1), key=lambda k: _of_sequences(vector, k, n))
    trees["k_sequences"] = (count, sequences(count, n))
    trees["k_ary"] = _best_kary(values, n)
    for name, (branches, tree) in trees.items():
        yield Growth(name, n, branches, tree.depth, expected_tokens(tree, values), list(tree.parents))


def _best_kary(values: Sequence[float], n: int) -> tuple[int, TreeShape]:
    most = min(n, len(values))
    bushy = {k: kary_bfs(k, n) for k in range(min(2, most), most + 1)}
    best = max(bushy, key=lambda k: expected_tokens(bushy[k], values))
    return best, bushy[best]


def _of_sequences(vector: np.ndarray, count: int, n: int) -> float:
    """1 + sum over k of p_k (1 + p_1 + ... + p_1^(length - 1))."""
    lengths = np.full(count, n // count) + (np.arange(count) < n % count)
    first = vector[0]
    geometric = lengths if first == 1 else (1 - first**lengths) / (1 - first)
    return 1 + float((vector[:count] * geometric[: vector.size]).sum())
