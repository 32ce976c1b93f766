"""Randomness that can be enumerated: a function that asks for nothing else has an exact law."""

from collections import defaultdict
from collections.abc import Sequence
from math import isclose, isnan
from typing import Any

from specdec_trees.conformance.calls import NonsenseError, Trees, listed, text_of
from specdec_trees.conformance.cases import Drafted, Text

RARE = 1e-12
"""Outcomes less probable than this are rounding, and are left out."""
MOST = 1000
"""Coins of a call; one that asks for more does not end."""


class Coins:
    """What stands in place of `rng` where the last parameter is named `coins`."""

    def __init__(self, script: Sequence[int]) -> None:
        self._script = script
        self.taken: list[tuple[int, tuple[float, ...]]] = []
        """Of every call so far: which outcome it had, and all probabilities."""

    def accept(self, prob: float) -> bool:
        """True with this probability; above 1 it is certain, below 0 impossible, as for `uniform < prob`."""
        chance = float(prob)
        if isnan(chance):
            raise NonsenseError("coins.accept was asked with NaN")
        chance = min(1.0, max(0.0, chance))
        return self._outcome((1 - chance, chance)) == 1

    def draw(self, probs: Any) -> int:
        """A token of this distribution."""
        chances = tuple(float(prob) for prob in listed(probs))
        if not isclose(sum(chances), 1, abs_tol=1e-6) or min(chances) < 0:
            raise NonsenseError(f"coins.draw was asked with {chances}, which is no distribution")
        return self._outcome(chances)

    def _outcome(self, chances: tuple[float, ...]) -> int:
        place = len(self.taken)
        if place == MOST:
            raise NonsenseError(f"it asked for more than {MOST} coins in one call: its loops must end")
        first = next(number for number, chance in enumerate(chances) if chance > RARE)
        outcome = self._script[place] if place < len(self._script) else first
        self.taken.append((outcome, chances))
        return outcome


def exact(calls: Trees, tree: Drafted) -> dict[Text, float]:
    """The probability of every text that the function writes for this tree, over all outcomes of its coins."""
    law: dict[Text, float] = defaultdict(float)
    script: list[int] | None = []
    while script is not None:
        coins = Coins(script)
        text = text_of(tree, calls.called(tree, coins), calls.returns)
        chance = 1.0
        for outcome, chances in coins.taken:
            chance *= chances[outcome]
        law[text] += chance
        script = following(coins.taken)
    return law


def following(taken: Sequence[tuple[int, tuple[float, ...]]]) -> list[int] | None:
    """The next outcomes in order of those that are possible; None behind the last."""
    for place in range(len(taken) - 1, -1, -1):
        outcome, chances = taken[place]
        later = next((number for number in range(outcome + 1, len(chances)) if chances[number] > RARE), None)
        if later is not None:
            return [*(one for one, _ in taken[:place]), later]
    return None
