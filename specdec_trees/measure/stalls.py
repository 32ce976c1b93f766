"""Turns that a CPU held up: what `gpu_state` says of a throttled or shared GPU, from the load and from times.

A turn is one of both arms, which are decoded again together. The same seconds are too many in either arm, whichever it
is that lost them: else the faster arm, of whose shorter decoding a stall is the larger part, would be freed of more.
"""

from __future__ import annotations

import math
import os
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from specdec_trees.measure import threads

REPEATS = 2
"""How often a turn is decoded again, at most: what is held up three times in a row is the machine, not an accident."""
LOST = 0.5
"""Seconds that were lost are too many from this share of the turn's shorter arm on: more than contexts, trees and
clocks take (of the committed CPU rows 99% lie within 1.5 times their median), less than moves a speedup."""
FOREIGN = 0.5
"""Cores that others took beyond what they mostly do: of two cores it is what makes a thread wait for the other."""
TICKS_S = 0.05
"""Fewer seconds of others are no evidence, since the system counts in hundredths of a second for each core."""
FEWEST = 2
"""Decodings of an arm that say what it takes; the warm-up gives so many."""


@dataclass(frozen=True, slots=True)
class Moment:
    """Seconds of work on this process's cores so far: by all processes, by this one; None where nobody tells."""

    busy_s: float | None
    own_s: float

    @classmethod
    def now(cls) -> Moment:
        """The present one."""
        return cls(threads.busy_s(threads.own_cores()), sum(os.times()[:4]))


def foreign_s(before: Moment, after: Moment) -> float | None:
    """Seconds that other processes worked on this one's cores in between; None where nobody tells."""
    if before.busy_s is None or after.busy_s is None:
        return None
    return max(after.busy_s - before.busy_s - (after.own_s - before.own_s), 0.0)


@dataclass(frozen=True, slots=True)
class Timed:
    """One decoding: seconds of each step, the wall clock's of the whole, and those that others worked meanwhile."""

    steps: Sequence[float]
    wall_s: float
    foreign_s: float | None = None
    tokens: int = 0

    @property
    def per_token(self) -> float:
        """Seconds a token; without any it is no measure."""
        return sum(self.steps) / self.tokens if self.tokens else math.inf

    @property
    def pace(self) -> float:
        """Seconds a step."""
        return sum(self.steps) / len(self.steps)

    @property
    def load(self) -> float | None:
        """Cores that others took."""
        return None if self.foreign_s is None or not self.wall_s else self.foreign_s / self.wall_s


class Stalls:
    """What each arm of a cell takes for a step, and the turns that took too much more."""

    def __init__(self) -> None:
        self._paces: dict[str, list[float]] = defaultdict(list)
        self._loads: dict[str, list[float]] = defaultdict(list)

    def learn(self, arm: str, pace: float, load: float | None) -> None:
        """Take a decoding as the like of those to come: also a slow one, so that a machine may change for good."""
        self._paces[arm].append(pace)
        self._loads[arm] += [] if load is None else [load]

    def stalled(self, arms: Mapping[str, Timed], fastest_s: float = math.inf) -> bool:
        """Whether an arm of a turn lost too many seconds, by those of its like and by what tells a stall from work.

        `fastest_s` is what the fastest arm of other cells takes for the turn, whose seconds these are set against.
        """
        expected = {arm: self._expected(arm, one) for arm, one in arms.items() if one.steps}
        known = {arm: seconds for arm, seconds in expected.items() if seconds is not None}
        if not known:
            return False
        most = LOST * min(fastest_s, *known.values())
        return any(self._lost(arm, arms[arm], seconds) > most for arm, seconds in known.items())

    def _expected(self, arm: str, one: Timed) -> float | None:
        paces = self._paces[arm]
        return statistics.median(paces) * len(one.steps) if len(paces) >= FEWEST else None

    def _lost(self, arm: str, one: Timed, expected: float) -> float:
        """Seconds beyond its like's; of a turn all of whose steps are slow none, unless others took the cores.

        A long context slows all steps down, a stall few.
        """
        lost = sum(one.steps) - expected
        return (
            lost
            if self._foreign(arm, one)
            else min(lost, sum(one.steps) - statistics.median(one.steps) * len(one.steps))
        )

    def _foreign(self, arm: str, one: Timed) -> bool:
        """Whether others took cores that they mostly do not: where they always do, all turns are alike."""
        if one.load is None or (one.foreign_s or 0.0) < TICKS_S or not self._loads[arm]:
            return False
        return one.load - statistics.median(self._loads[arm]) >= FOREIGN
