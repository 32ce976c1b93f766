"""Corrections for many comparisons: the p of an interval, and Holm's correction of several."""

from __future__ import annotations

import math
from collections.abc import Sequence

from bench.statistics.intervals import Interval

LEVEL = 0.05
"""A p of at most this decides, as a 95% interval does."""


def p_value(found: Interval, null: float = 1.0) -> float:
    """The two-sided p of a positive value if `null` were true; 1 without an interval.

    The interval is read as Student's at 95% on the logarithm with n - 1 degrees of freedom, by the end that faces
    `null`: p is at most 0.05 exactly where the interval does not hold it.
    """
    facing = found.low if found.value > null else found.high
    if found.n < 2 or not (found.value > 0 and facing > 0 and null > 0) or not math.isfinite(facing):
        return 1.0
    away, reach = abs(math.log(found.value / null)), abs(math.log(found.value / facing))
    if not (away and reach):
        return float(not away)
    return _two_sided(away / reach * _critical(found.n - 1), found.n - 1)


def holm(p_values: Sequence[float]) -> list[float]:
    """Each p after Holm's correction for their number (Holm 1979), in the given order.

    Those of at most 0.05 are together wrong with a probability of at most 0.05, however they depend on each other.
    """
    adjusted, most = [0.0] * len(p_values), 0.0
    for rank, place in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        most = max(most, min(1.0, p_values[place] * (len(p_values) - rank)))
        adjusted[place] = most
    return adjusted


def _two_sided(t: float, freedom: int) -> float:
    """How likely Student's t is as far from 0, for whole degrees of freedom (Abramowitz and Stegun, 26.7.3 and 4)."""
    angle = math.atan(t / math.sqrt(freedom))
    odd = freedom % 2
    term = total = (math.cos(angle) if odd else 1.0) * (freedom > 1)
    for place in range(2 + odd, freedom - 1, 2):
        term *= math.cos(angle) ** 2 * (place - 1) / place
        total += term
    within = math.sin(angle) * total
    return max(0.0, 1 - (2 / math.pi * (angle + within) if odd else within))


def _critical(freedom: int) -> float:
    """The t of a 95% interval, by bisection."""
    low, high = 0.0, 16.0
    while high - low > 1e-12:
        middle = (low + high) / 2
        low, high = (middle, high) if _two_sided(middle, freedom) > LEVEL else (low, middle)
    return high
