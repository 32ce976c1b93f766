"""Acceptance vectors: p_k is the probability that child k (in draw order) of an accepted node is the accepted one."""

from collections.abc import Sequence

import numpy as np

from specdec_core.shapes import TreeShape


def check_acceptance(acceptance: Sequence[float]) -> np.ndarray:
    """The vector in float64. ValueError unless its entries are probabilities of exclusive events."""
    vector = np.asarray(acceptance, dtype=np.float64)
    if vector.ndim != 1 or not vector.size:
        raise ValueError("an acceptance vector has one probability per child position, and at least one")
    if not np.isfinite(vector).all() or (vector < 0).any() or vector.sum() > 1 + 1e-9:
        raise ValueError(f"acceptance probabilities must be non-negative and sum to at most 1, not {vector.tolist()}")
    return vector


def expected_tokens(shape: TreeShape, acceptance: Sequence[float]) -> float:
    """F(T): expected tokens of a step, the root counted (Sequoia, section 3.1).

    The sum over all nodes of the product of acceptance probabilities on the way there; positions beyond the vector have
    none.
    """
    vector = check_acceptance(acceptance)
    reach = np.zeros(shape.num_drafted + 1)
    reach[0] = 1.0
    for node, (parent, rank) in enumerate(zip(shape.parents, shape.ranks, strict=True)):
        if node and rank < vector.size:
            reach[node] = reach[parent] * vector[rank]
    return float(reach.sum())


def isotonic(acceptance: Sequence[float]) -> np.ndarray:
    """The nearest non-increasing vector in least squares, with the same sum (pool adjacent violators)."""
    pools: list[tuple[float, int]] = []
    for value in check_acceptance(acceptance):
        total, count = float(value), 1
        while pools and pools[-1][0] * count < total * pools[-1][1]:
            before = pools.pop()
            total, count = total + before[0], count + before[1]
        pools.append((total, count))
    means = np.concatenate([np.full(count, total / count) for total, count in pools])
    return np.minimum.accumulate(means)  # two pools whose products agree may differ in the last bit of their quotients
