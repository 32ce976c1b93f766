"""Tokens per step of static trees as functions of the acceptance vector (Sequoia, Tables 1 and 2).

`accepted[k-1]` is the papers' P_k, the probability that one of the k children of an accepted node is accepted. All
results count the bonus token; where the rule never rejects, a limit is infinite.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise


def sequence(accepted: Sequence[float]) -> float:
    """Limit of a sequence: 1 / (1 - P_1) (Table 1)."""
    return k_ary(accepted, 1)


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
    """Limit of the k-ary tree, k = 2 the binary one: 1 / (1 - P_k) (Table 1)."""
    return _divide(1.0, 1 - accepted[k - 1])


def limits(accepted: Sequence[float]) -> dict[str, tuple[float, int]]:
    """The limit of each structure at its best k, and that k; `accepted` is first made `concave`."""
    smooth = concave(accepted)
    every = range(1, len(smooth) + 1)
    return {
        "sequence": (sequence(smooth), 1),
        "k_sequences": max((k_sequences(smooth, k), k) for k in every),
        "binary": (k_ary(smooth, min(2, len(smooth))), 2),
        "k_ary": max((k_ary(smooth, k), k) for k in every),
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
