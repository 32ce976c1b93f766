"""The best trees for non-increasing acceptance vectors, without a dynamic programme."""

import heapq
import math
from collections.abc import Iterator, Sequence
from itertools import pairwise

from specdec_core.search.acceptance import check_acceptance
from specdec_core.shapes import Path


def greedy_order(
    acceptance: Sequence[float], n: int, depth: int | None = None, max_children: int | None = None
) -> Iterator[tuple[Path, float]]:
    """Nodes in the order in which they enter the best tree, with the probability that each is accepted.

    A first child and a next sibling are never more probable than the node itself, so the first m nodes are the best
    tree of m nodes, for every m. Ties go to the shallower node. O(n log n). ValueError for a vector that increases.
    """
    vector = check_acceptance(acceptance)[:max_children].tolist()
    if any(after > before for before, after in pairwise(vector)):
        raise ValueError("the acceptance vector increases somewhere; use Programme, or isotonic() first")
    heap: list[tuple[float, int, int, int, float]] = []  # key, depth, parent, rank, reach of the parent
    paths: list[Path] = [()]

    def offer(parent: int, rank: int, reach: float) -> None:
        level = len(paths[parent]) + 1
        if rank < len(vector) and (depth is None or level <= depth):
            chance = reach * vector[rank]
            key = -round(math.log(chance), 10) if chance > 0 else math.inf
            heapq.heappush(heap, (key, level, parent, rank, reach))

    offer(0, 0, 1.0)
    while heap and len(paths) <= n:
        _, _, parent, rank, reach = heapq.heappop(heap)
        paths.append((*paths[parent], rank))
        yield paths[-1], reach * vector[rank]
        offer(parent, rank + 1, reach)
        offer(len(paths) - 1, 0, reach * vector[rank])
