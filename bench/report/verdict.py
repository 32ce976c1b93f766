"""The verdict on a published number, by one rule for all tables.

Rules 1 to 3 were fixed before anything was measured. How rule 4 compares two rows was changed afterwards, for what was
found wrong with it and not for its verdicts: overlap of two unpaired intervals knows nothing of what prompts give to
both rows (so it is paired now), and neither knows of what a machine does between two runs (so that the autoregressive
arms now say what times can tell apart).

A verdict is `matches`, `order holds`, `differs`, `not comparable: <reason>` or `not run`. For one metric of one row:

1. We have no number: `not run`. The paper has none for this row: `not comparable: no published value`. Ours has no
   interval (fewer than two conversations): `not comparable: no interval`.
2. The pair is a stand-in (other models than the paper's): absolute values are `not comparable: other models`; the row
   is judged by its order (4).
3. The pair is the paper's. MAL, and tokens/s and speedup on the paper's device, are judged by value: `matches` if the
   published value lies within our 95% interval widened on both sides by 5% of the published value, else `differs`.
   tokens/s and speedup on another device are `not comparable: other device` as values and judged by order (4).
4. Order. The row is set against every other method of its block (same pair, prompts, decoding, device) that has an
   interval and a published value. The two are compared in pairs (`bench.samples.ahead`): by the 95% interval of the
   difference of ours and the other's, resampled over the conversations that both decoded. For each other method
   - if the interval excludes 0, its sign must equal that of the published difference;
   - if it holds 0 (an end counts), or if it is of times, and the two are no further apart than the interval of the
     ratio of their runs' autoregressive arms reaches (of a mean over two decodings: in either of them), it is a tie,
     which contradicts nothing when the two published values differ by less than 5% of the larger one, and contradicts
     the paper otherwise.
   Where no such interval is known (a metric that is no ratio of sums over conversations nor a mean of such ratios, or
   fewer than two common conversations), two intervals that do not overlap take the place of one that excludes 0, and
   two that do (a shared end counts) that of one that holds it. Rows that keep the target's law and rows that do not are
   set against each other where the paper does so; marks in the tables rank them apart.
   `order holds` if no other method contradicts, else `differs`. Without any other method there is no order to judge and
   the reason of (2) or (3) stands.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from bench import samples
from bench.samples import Sample
from bench.stats import Interval

MATCHES, ORDER_HOLDS, DIFFERS, NOT_RUN = "matches", "order holds", "differs", "not run"
TOLERANCE = 0.05


@dataclass(frozen=True, slots=True)
class Pairing:
    """Our value of one metric of one row and the paper's; None where there is none.

    `sample` has the sums over conversations that `ours` is a ratio of; None where it is none, or is not known.
    """

    ours: Interval | None
    published: float | None
    sample: Sample | None = None


def not_comparable(reason: str) -> str:
    """The verdict that says why there is none."""
    return f"not comparable: {reason}"


def judge(method: str, block: Mapping[str, Pairing], *, stand_in: bool, same_device: bool = True) -> str:
    """The verdict on `method`, one of the rows of `block`; `same_device` is True for metrics that know no time."""
    row = block[method]
    if row.ours is None:
        return NOT_RUN
    if row.published is None:
        return not_comparable("no published value")
    if not _complete(row):
        return not_comparable("no interval")
    if stand_in:
        return by_order(method, block, otherwise="other models")
    if not same_device:
        return by_order(method, block, otherwise="other device")
    return by_value(row.ours, row.published)


def by_value(ours: Interval, published: float) -> str:
    """Rule 3: the published value against our interval widened by 5% of it."""
    slack = TOLERANCE * abs(published)
    return MATCHES if ours.low - slack <= published <= ours.high + slack else DIFFERS


def by_order(method: str, block: Mapping[str, Pairing], *, otherwise: str) -> str:
    """Rule 4: the signs of the differences against every other row with both values."""
    others = [row for name, row in block.items() if name != method and _complete(row)]
    if not others:
        return not_comparable(otherwise)
    return ORDER_HOLDS if all(_agrees(block[method], other) for other in others) else DIFFERS


def same_device(device_name: str, hardware: str) -> bool:
    """Whether our device is the paper's: `NVIDIA GeForce RTX 4090` is `1x RTX 4090`, and `2x RTX 4090` is neither."""
    return _plain(device_name) == _plain(hardware)


def _complete(row: Pairing) -> bool:
    return row.published is not None and row.ours is not None and not math.isnan(row.ours.low + row.ours.high)


def _agrees(row: Pairing, other: Pairing) -> bool:
    assert row.published is not None and other.published is not None  # noqa: PT018 - both are complete
    difference, ahead = row.published - other.published, _ahead(row, other)
    if ahead == 0:
        return abs(difference) < TOLERANCE * max(abs(row.published), abs(other.published))
    return ahead == _sign(difference)


def _ahead(row: Pairing, other: Pairing) -> int:
    """1 where our value of the row is the larger one, -1 where it is the smaller one, 0 for a tie."""
    known = samples.ahead(row.sample, other.sample) if row.sample and other.sample else None
    if known is not None:
        return known
    assert row.ours is not None and other.ours is not None  # noqa: PT018 - both are complete
    if row.ours.low <= other.ours.high and other.ours.low <= row.ours.high:
        return 0
    return _sign(row.ours.value - other.ours.value)


def _sign(difference: float) -> int:
    return (difference > 0) - (difference < 0)


def _plain(device: str) -> str:
    words = device.lower().removeprefix("1x ").split()
    return " ".join(word for word in words if word not in {"nvidia", "geforce"})
