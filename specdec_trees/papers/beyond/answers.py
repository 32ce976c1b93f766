"""The answer to a claim that one method is ahead of another: whether its own order holds, and at what certainty."""

from __future__ import annotations

from dataclasses import dataclass

from specdec_trees.artifacts import verdict
from specdec_trees.artifacts.tables import MACHINE
from specdec_trees.artifacts.verdict import Pairing
from specdec_trees.statistics import samples
from specdec_trees.statistics.corrections import p_value
from specdec_trees.statistics.intervals import Interval

TIE_HOLDS, REVERSED, NO_LEAD = "tie holds", "order reversed", "no lead"
SLOWER, LEVEL_WITH = "slower than plain decoding", "not told from plain decoding"


@dataclass(frozen=True, slots=True)
class Answer:
    """Its words, and the p of all that they say; 1 where nothing is resolved."""

    words: str
    p: float = 1.0


def answered(first: Pairing, other: Pairing, *, timed: bool) -> Answer:
    """The answer by rule 4 of `specdec_trees.artifacts.verdict`, of these two alone; `timed` values are speedups."""
    stand = verdict.standing(first, other)
    if stand.agrees is None:
        why = f" ({MACHINE})" if stand.comparison.blurred else " (behind)" if stand.comparison.ahead else ""
        return Answer(f"{verdict.NOT_RESOLVED}{why}")
    if not stand.agrees:
        return Answer(REVERSED if stand.comparison.ahead else NO_LEAD, stand.p)
    holds = verdict.ORDER_HOLDS if stand.comparison.ahead else TIE_HOLDS
    return _against_plain(holds, stand.p, first.ours) if timed and first.ours else Answer(holds, stand.p)


def _against_plain(holds: str, p: float, speedup: Interval) -> Answer:
    """What holds, with what the first method's speedup says of plain decoding, which is 1."""
    ahead = samples.unpaired(speedup, Interval(1.0, 1.0, 1.0, speedup.n)).ahead
    words = {1: holds, -1: f"{holds}, {SLOWER}"}
    if not ahead:
        return Answer(f"{holds}, {LEVEL_WITH}", p)
    return Answer(words[ahead], max(p, p_value(speedup)))
