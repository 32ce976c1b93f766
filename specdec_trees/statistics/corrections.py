"""Corrections for many comparisons: the p of an interval, and Holm's correction of several."""

from __future__ import annotations

import math
from collections.abc import Sequence

from scipy import special

from specdec_trees.statistics.intervals import Interval, quantile

LEVEL = 0.05
"""A p of at most this decides, as a 95% interval does."""


def p_value(found: Interval, null: float = 1.0) -> float:
    """The two-sided p of a positive value if `null` were true; 1 without an interval.

    The interval is read as Student's at 95% on the logarithm with its degrees of freedom, by the end that faces
    `null`: p is at most 0.05 exactly where the interval does not hold it.
    """
    facing = found.low if found.value > null else found.high
    if not found.known or not (found.value > 0 and facing > 0 and null > 0):
        return 1.0
    away, reach = abs(math.log(found.value / null)), abs(math.log(found.value / facing))
    if not (away and reach):
        return float(not away)
    return float(2 * special.stdtr(found.degrees, -away / reach * quantile(1 - LEVEL / 2, found.degrees)))


def holm(p_values: Sequence[float]) -> list[float]:
    """Each p after Holm's correction for their number (Holm 1979), in the given order.

    Those of at most 0.05 are together wrong with a probability of at most 0.05, however they depend on each other, as
    far as each p is right. Far behind 5% these are too small by some factor, since few conversations miss the rare.
    """
    adjusted, most = [0.0] * len(p_values), 0.0
    for rank, place in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        most = max(most, min(1.0, p_values[place] * (len(p_values) - rank)))
        adjusted[place] = most
    return adjusted
