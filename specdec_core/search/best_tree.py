"""Sequoia's tree for an acceptance vector, a size and a depth."""

from collections.abc import Sequence

import numpy as np

from specdec_core.search.acceptance import check_acceptance
from specdec_core.search.greedy import greedy_order
from specdec_core.search.programme import Programme
from specdec_core.shapes import TreeShape


def best_tree(
    *,
    acceptance: Sequence[float],
    n: int,
    depth: int | None = None,
    max_children: int | None = None,
) -> TreeShape:
    """The tree of n drafted nodes (root excluded) and at most this depth with the most expected tokens.

    For the vector as it is; `isotonic` first keeps the noise of a measured one from shaping the tree. Where depth and
    children leave no room for n nodes, the largest tree that fits.
    """
    vector = check_acceptance(acceptance)
    if (np.diff(vector) <= 0).all():
        return TreeShape.from_paths(path for path, _ in greedy_order(vector.tolist(), n, depth, max_children))
    programme = Programme(vector.tolist(), n, depth, max_children)
    return programme.tree(min(n, programme.largest()))
