"""The verdict on a published number, by one rule for all tables.

A verdict is `matches`, `order holds`, `differs (vs ...)`, `not resolved (vs ...: n = ...; about ... needed)`,
`not comparable: <reason>` or `not run`. n counts conversations; by order, `vs` names the row that decides. For one
metric of one row:

1. We have no number: `not run`. The paper has none for this row: `not comparable: no published value`. Ours has no
   interval (fewer than two conversations): `not comparable: no interval`. It is of another tree than the paper's, since
   a machine or a sweep chose it: `not comparable: other tree`. Fewer than six conversations decide nothing, since
   there is no interval over so few, only a range: `not resolved`.
2. The pair is a stand-in (other models than the paper's): absolute values are `not comparable: other models`; the row
   is judged by its order (4).
3. The pair is the paper's. MAL, and tokens/s and speedup on the paper's device, are judged by value. The tolerance is
   5% of the published value, on both sides. Our 95% interval lies wholly within it: `matches`. It lies wholly outside:
   `differs`. It does neither: `not resolved`. tokens/s and speedup on another device are
   `not comparable: other device` as values and judged by order (4). Where conversations failed, which then count in no
   row, a value is `not comparable: conversations failed`; an order is judged over the others.
4. Order. The row is set against every other method of its block (same pair, prompts, decoding, device) that has an
   interval and a published value, over the conversations that both decoded (`statistics.samples.compare`). The
   interval of our ratio to the other's lies on the published side of 1: the two agree. It lies on the other side: they
   contradict the paper. It holds 1, or the ratio is no further from 1 than the machine alone may move it (by the runs'
   autoregressive arms): it is not resolved. But if this interval, widened by what the machine alone may do, excludes
   even half of the published lead, it contradicts the paper. Where a value may be 0, the difference takes the place of
   the ratio, and 0 that of 1.
   Two published values that differ by less than 5% of the larger one are a tie of the paper. The same sign agrees with
   it, and so does an interval of our ratio wholly within [0.95, 1 / 0.95]. The opposite sign contradicts it where that
   interval lies wholly outside; all else is not resolved.
   Where the autoregressive arms of most pairs of a block's runs, which do the same work, may lie more than 20% apart,
   its times rank nothing, as in the marks: `not comparable: times too noisy`.
   For speedups autoregressive decoding, which is 1 by definition, is always one of the other methods.
   Without common conversations, or for a metric that is no ratio of sums over conversations, two separate intervals
   that do not overlap take the place of one that excludes 1. Rows that keep the target's distribution and rows that do
   not are set against each other where the paper does so; marks in the tables rank them apart.
   One contradiction: `differs`. Else one pair that is not resolved: `not resolved`. Else: `order holds`. Without any
   other method there is no order to judge and the reason of (2) or (3) stands.
5. `about ... needed` is the number of conversations after which the interval would be decided, if its value stayed and
   its reach shrank with the root of their number; of several pairs the most. Where two values are equal, or the
   machine itself was as much faster in one of the runs, no number would, and the verdict says so; also where the
   interval is decided, and the machine alone may have moved the two runs so far apart.
6. Each verdict of a table is given at 95%, and a table has many. A verdict that does not survive Holm's correction for
   the number of its table's verdicts (`specdec_trees.statistics.corrections`), those that are not resolved among them,
   is marked `(uncorrected)`. Of a verdict by value p is that of the nearer bound; of an order that holds the largest of
   its pairs'; of one that differs the smallest of those that contradict, times the number of pairs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass

from specdec_trees.artifacts.tables import MACHINE, needed_words
from specdec_trees.results.rows import AUTOREGRESSIVE
from specdec_trees.statistics import intervals, samples
from specdec_trees.statistics.corrections import LEVEL, holm, p_value
from specdec_trees.statistics.intervals import FEWEST, Interval
from specdec_trees.statistics.samples import Comparison, Sample

MATCHES, ORDER_HOLDS, DIFFERS, NOT_RESOLVED, NOT_RUN = "matches", "order holds", "differs", "not resolved", "not run"
NOT_COMPARABLE = "not comparable"
TOLERANCE = 0.05
_EVEN = (1 - TOLERANCE, 1 / (1 - TOLERANCE))
"""Ratios that are a tie."""
UNCORRECTED = "(uncorrected)"
"""Stands behind a verdict that does not survive the correction for the number of its table's."""


class Verdict(str):
    """The words of a verdict by value or by order, with the p of what it decides: 1 where nothing is resolved."""

    p: float

    def __new__(cls, words: str, p: float = 1.0) -> Verdict:
        """The words, and p."""
        made = super().__new__(cls, words)
        made.p = p
        return made


@dataclass(frozen=True, slots=True)
class Pairing:
    """Our value of one metric of one row and the paper's; None where there is none.

    `sample` has the sums over conversations that `ours` is a ratio of; None where it is none, or is not known.
    """

    ours: Interval | None
    published: float | None
    sample: Sample | None = None
    name: str = ""
    """What verdicts on other rows call it."""


def not_comparable(reason: str) -> str:
    """The verdict that says why there is none."""
    return f"{NOT_COMPARABLE}: {reason}"


def not_resolved(n: int, words: str, against: str = "") -> str:
    """The verdict of too wide an interval over `n` conversations, with the words for what would decide it."""
    return f"{NOT_RESOLVED} ({against}{': ' * bool(against)}n = {n}; {words})"


def correct(lines: Sequence[MutableMapping[str, str]]) -> None:
    """Mark the verdicts of a table's rows that do not survive Holm's correction for their number (rule 6)."""
    places = [(line, header, cell) for line in lines for header, cell in line.items() if isinstance(cell, Verdict)]
    for (line, header, cell), p in zip(places, holm([cell.p for _, _, cell in places]), strict=True):
        if p > LEVEL and word(cell) != NOT_RESOLVED:
            line[header] = f"{cell} {UNCORRECTED}"


def word(verdict: str) -> str:
    """A verdict without its numbers: `not resolved`."""
    return verdict.partition(" (")[0]


def judge(
    method: str,
    block: Mapping[str, Pairing],
    *,
    stand_in: bool,
    same_device: bool = True,
    speedup: bool = False,
    whole: bool = True,
    busy: bool | None = None,
) -> str:
    """The verdict on `method`, one of the rows of `block`; `same_device` is True for metrics that know no time.

    `speedup` says that the metric is one: autoregressive decoding, by definition 1, joins the block unless it has both.
    `whole` says that no conversation failed: the paper's value is of all prompts, an order may be of some. `busy` says
    that times are too noisy to rank any; without it these rows decide.
    """
    row = block[method]
    own = block.get(AUTOREGRESSIVE)
    if speedup and row.ours and not (own and _complete(own)):
        block = {**block, AUTOREGRESSIVE: Pairing(Interval(1.0, 1.0, 1.0, row.ours.n), 1.0, name=AUTOREGRESSIVE)}
    if row.ours is None:
        return NOT_RUN
    if row.published is None:
        return not_comparable("no published value")
    if not _complete(row):
        return not_comparable("no interval")
    if stand_in:
        return by_order(method, block, otherwise="other models", busy=busy)
    if not same_device:
        return by_order(method, block, otherwise="other device", busy=busy)
    return by_value(row.ours, row.published) if whole else not_comparable("conversations failed")


def by_value(ours: Interval, published: float) -> str:
    """Rule 3: our interval against 5% on both sides of the published value."""
    slack = TOLERANCE * abs(published)
    inside = _within(ours, published - slack, published + slack)
    if inside is None or ours.n < FEWEST:
        needed = intervals.needed(ours, published - slack, published + slack)
        return Verdict(not_resolved(ours.n, needed_words(ours.n, max(FEWEST, needed))))
    return Verdict(MATCHES if inside else DIFFERS, _beyond(ours, published - slack, published + slack))


def by_order(method: str, block: Mapping[str, Pairing], *, otherwise: str, busy: bool | None = None) -> str:
    """Rule 4: the signs of the differences against every other row with both values."""
    row, others = block[method], [other for name, other in block.items() if name != method and _complete(other)]
    if not others:
        return not_comparable(otherwise)
    if samples.too_busy([one.sample for one in block.values() if one.ours and one.sample]) if busy is None else busy:
        return not_comparable("times too noisy")
    against = [standing(row, other) for other in others]
    if contradicting := [one for one in against if one.agrees is False]:
        first = min(contradicting, key=lambda one: one.p)
        named = _vs(first, contradicting)
        return Verdict(f"{DIFFERS} ({named})" if named else DIFFERS, min(1.0, first.p * len(against)))
    if left := [one for one in against if one.agrees is None]:
        last, fewest = max(left, key=lambda one: one.needed), min(one.n for one in left)
        return Verdict(not_resolved(fewest, last.needed_words, _vs(last, left)))
    return Verdict(ORDER_HOLDS, max(one.p for one in against))


@dataclass(frozen=True, slots=True)
class Standing:
    """How two rows stand to each other, held against how the paper has them."""

    comparison: Comparison
    agrees: bool | None
    """Whether as in the paper; None: not resolved."""
    p: float
    """Of what was decided; 1 where nothing was."""
    needed: float
    """Conversations that would decide it."""
    name: str = ""
    """Of the other."""

    @property
    def n(self) -> int:
        """Conversations that both decoded."""
        return self.comparison.difference.n

    @property
    def needed_words(self) -> str:
        """What would decide it: more conversations, or a machine that runs as fast in both runs."""
        blurred = self.comparison.blurred and self.n >= FEWEST
        return MACHINE if blurred else needed_words(self.n, self.needed)


def standing(row: Pairing, other: Pairing) -> Standing:
    """Rule 4 for two rows that both have a value and a published one."""
    assert row.published is not None and other.published is not None  # noqa: PT018 - both are complete
    comparison, published = _compared(row, other), row.published - other.published
    ahead, sign = comparison.ahead or 0, (published > 0) - (published < 0)
    agrees, p = _agrees(comparison, ahead * sign, row.published, other.published)
    if agrees is None or comparison.difference.n < FEWEST:
        agrees, p = None, 1.0
    needed = max(FEWEST, _needed(comparison, sign, row.published, other.published))
    return Standing(comparison, agrees, p, needed, other.name)


def _vs(first: Standing, several: Sequence[Standing]) -> str:
    """`vs SpecInfer and 1 more`: the row that decides, and how many others say the same; "" where it has no name."""
    more = f" and {len(several) - 1} more" if len(several) > 1 else ""
    return f"vs {first.name}{more}" if first.name else ""


def _agrees(comparison: Comparison, same: int, published: float, other: float) -> tuple[bool | None, float]:
    """Whether, and p; `same` is 1 where ours is ahead as published, -1 where it is behind, 0 where it is tied."""
    if same > 0:
        return True, p_value(comparison.ratio)
    if not tied(published, other):
        lead = max(published, other) / min(published, other) - 1 if min(published, other) > 0 else 0.0
        if same < 0:
            return False, p_value(comparison.ratio)
        most = (1 + lead / 2) / (1 + comparison.noise)
        return (False, _beyond(comparison.ratio, 1 / most, most)) if _level(comparison, 1 + lead / 2) else (None, 1.0)
    even = _within(comparison.ratio, *_EVEN)
    return even if even or comparison.ahead else None, _beyond(comparison.ratio, *_EVEN)


def _beyond(ours: Interval, low: float, high: float) -> float:
    """The p of lying within two bounds, or outside them: that of the nearer one."""
    return max(p_value(ours, low), p_value(ours, high))


def _level(comparison: Comparison, most: float) -> bool:
    """Whether a ratio is surely nearer to 1 than `most`, whatever the machine did."""
    machine = 1 + comparison.noise
    return comparison.ratio.high * machine <= most and comparison.ratio.low / machine >= 1 / most


def _needed(comparison: Comparison, sign: int, published: float, other: float) -> float:
    """Conversations that would decide a pair that is not resolved."""
    if not tied(published, other):
        return comparison.needed
    even = math.inf if comparison.noisy else intervals.needed(comparison.ratio, *_EVEN)
    return min(even, comparison.needed) if comparison.difference.value * sign > 0 else even


def tied(published: float, other: float) -> bool:
    """Whether two published values are a tie of the paper."""
    return abs(published - other) < TOLERANCE * max(abs(published), abs(other))


def _compared(row: Pairing, other: Pairing) -> Comparison:
    """The two in pairs, or as two separate intervals where they have no conversations in common."""
    if row.sample and other.sample:
        comparison = samples.compare(row.sample, other.sample)
        if comparison.known or 0 < comparison.difference.n < FEWEST:
            return comparison
    assert row.ours is not None and other.ours is not None  # noqa: PT018 - both are complete
    return samples.unpaired(row.ours, other.ours)


def _within(ours: Interval, low: float, high: float) -> bool | None:
    """Whether an interval lies wholly within two bounds; None where it lies neither wholly within nor outside."""
    if low <= ours.low and ours.high <= high:
        return True
    return False if ours.high < low or high < ours.low else None


def _complete(row: Pairing) -> bool:
    return row.published is not None and row.ours is not None and not math.isnan(row.ours.low + row.ours.high)
