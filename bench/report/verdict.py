"""The verdict on a published number, by a rule that was fixed before anything was measured.

A verdict is `matches`, `order holds`, `differs`, `not comparable: <reason>` or `not run`. For one metric of one row:

1. We have no number: `not run`. The paper has none for this row: `not comparable: no published value`. Ours has no
   interval (fewer than two conversations): `not comparable: no interval`.
2. The pair is a stand-in (other models than the paper's): absolute values are `not comparable: other models`; the row
   is judged by its order (4).
3. The pair is the paper's. MAL, and tokens/s and speedup on the paper's device, are judged by value: `matches` if the
   published value lies within our 95% interval widened on both sides by 5% of the published value, else `differs`.
   tokens/s and speedup on another device are `not comparable: other device` as values and judged by order (4).
4. Order. The row is set against every other method of its block (same pair, prompts, decoding, device) that has an
   interval and a published value. For each of them
   - if our two intervals do not overlap, the sign of (ours - the other's) must equal that of the published difference;
   - if they overlap (a shared end counts), it is a tie, which contradicts nothing when the two published values differ
     by less than 5% of the larger one, and contradicts the paper otherwise.
   `order holds` if no other method contradicts, else `differs`. Without any other method there is no order to judge and
   the reason of (2) or (3) stands.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from bench.stats import Interval

MATCHES, ORDER_HOLDS, DIFFERS, NOT_RUN = "matches", "order holds", "differs", "not run"
TOLERANCE = 0.05


@dataclass(frozen=True, slots=True)
class Pairing:
    """Our value of one metric of one row and the paper's; None where there is none."""

    ours: Interval | None
    published: float | None


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
    assert row.ours is not None and other.ours is not None  # noqa: PT018 - both are complete
    assert row.published is not None and other.published is not None  # noqa: PT018
    difference = row.published - other.published
    if row.ours.low <= other.ours.high and other.ours.low <= row.ours.high:
        return abs(difference) < TOLERANCE * max(abs(row.published), abs(other.published))
    return _sign(row.ours.value - other.ours.value) == _sign(difference)


def _sign(difference: float) -> int:
    return (difference > 0) - (difference < 0)


def _plain(device: str) -> str:
    words = device.lower().removeprefix("1x ").split()
    return " ".join(word for word in words if word not in {"nvidia", "geforce"})
