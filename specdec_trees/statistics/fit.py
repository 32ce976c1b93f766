"""Do counts fit a law? A chi-square test by the likelihood ratio."""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from math import log
from typing import Generic, TypeVar

from scipy import special

Outcome = TypeVar("Outcome", bound=Hashable)

FEWEST = 5.0
"""What a bin expects at least; rarer outcomes join others."""


@dataclass(frozen=True, slots=True)
class Fit(Generic[Outcome]):
    """How counts stand to a law."""

    p: float
    """Probability that counts of this law differ from it so much; 1 where there is one bin, 0 for the impossible."""
    bins: int
    worst: Outcome
    """The outcome whose bin is farthest off, and what was expected and observed there."""
    expected: float
    observed: float


def fit(law: Mapping[Outcome, float], counts: Mapping[Outcome, float]) -> Fit[Outcome]:
    """The likelihood ratio of counts against a law, 2 sum O log(O / E), which is distributed as chi-square.

    Unlike Pearson's sum it keeps this distribution far out in the tail: of 100 draws from (.6, .35, .05) it calls
    9e-7 different at p < 1e-6, Pearson's 1.5e-5 (summed over all counts).
    """
    strange = next((outcome for outcome, count in counts.items() if count and not law.get(outcome)), None)
    if strange is not None:
        return Fit(0.0, len(law), strange, 0.0, counts[strange])
    total = sum(counts.values())
    possible = sorted((one for one in law.items() if one[1]), key=lambda one: one[1])
    bins = [(outcome, prob * total, counts.get(outcome, 0)) for outcome, prob in possible]
    while len(bins) > 1 and bins[0][1] < FEWEST:  # the rarest joins the next
        (_, of, seen), (outcome, more, also) = bins[:2]
        bins[:2] = [(outcome, of + more, seen + also)]
        bins.sort(key=lambda one: one[1])
    ratio = 2 * sum(seen * log(seen / of) for _, of, seen in bins if seen)
    worst = max(bins, key=lambda one: (one[2] - one[1]) ** 2 / one[1] if one[1] else 0)
    p = float(special.chdtrc(len(bins) - 1, max(ratio, 0.0))) if len(bins) > 1 else 1.0
    return Fit(p, len(bins), *worst)
