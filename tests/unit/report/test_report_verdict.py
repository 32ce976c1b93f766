"""The verdict rule, case by case; numbers in the docstring of `bench.report.verdict`."""

import itertools
import math

import numpy as np
import pandas as pd
import pytest

from bench.report import verdict
from bench.report.verdict import DIFFERS, MATCHES, NOT_RUN, ORDER_HOLDS, Pairing, judge, not_comparable, same_device
from bench.samples import Sample
from bench.stats import Interval


def measured(value: float, reach: float = 0.0) -> Interval:
    return Interval(value, value - reach, value + reach, 10)


def alone(ours: Interval | None, published: float | None, **options: bool) -> str:
    return judge("it", {"it": Pairing(ours, published)}, **({"stand_in": False} | options))


@pytest.mark.parametrize("stand_in", [False, True])
def test_rule_1_nothing_to_judge(stand_in: bool) -> None:
    assert alone(None, 2.0, stand_in=stand_in) == NOT_RUN
    assert alone(None, None, stand_in=stand_in) == NOT_RUN
    assert alone(measured(2.0), None, stand_in=stand_in) == not_comparable("no published value")
    one = Interval(2.0, math.nan, math.nan, 1)
    assert alone(one, 2.0, stand_in=stand_in) == not_comparable("no interval")


@pytest.mark.parametrize(
    ("low", "high", "published", "expected"),
    [
        (1.9, 2.1, 2.0, MATCHES),
        (2.1, 2.3, 2.0, MATCHES),  # 2.1 - 0.1 = 2.0
        (2.11, 2.3, 2.0, DIFFERS),
        (1.7, 1.9, 2.0, MATCHES),
        (1.7, 1.89, 2.0, DIFFERS),
    ],
)
def test_rule_3_interval_widened_by_five_percent(low: float, high: float, published: float, expected: str) -> None:
    assert alone(Interval((low + high) / 2, low, high, 9), published) == expected


def test_rule_2_a_stand_in_alone_is_not_comparable_even_if_equal() -> None:
    assert alone(measured(2.0, 0.1), 2.0, stand_in=True) == not_comparable("other models")


def test_rule_3_another_device_alone_is_not_comparable() -> None:
    assert alone(measured(2.0, 0.1), 2.0, same_device=False) == not_comparable("other device")


def order(ours: tuple[Interval | None, Interval | None], published: tuple[float | None, float | None]) -> str:
    block = {name: Pairing(*pair) for name, pair in zip("ab", zip(ours, published, strict=True), strict=True)}
    return judge("a", block, stand_in=True)


def test_rule_4_signs() -> None:
    low, high = measured(2.0, 0.1), measured(3.0, 0.1)
    assert order((high, low), (2.5, 2.0)) == ORDER_HOLDS
    assert order((low, high), (2.0, 2.5)) == ORDER_HOLDS
    assert order((low, high), (2.5, 2.0)) == DIFFERS
    assert order((high, low), (2.0, 2.0)) == DIFFERS  # the paper sees no difference


def test_rule_4_overlapping_intervals_are_ties() -> None:
    near, far = (2.0, 2.09), (2.0, 2.2)
    assert order((measured(2.0, 0.3), measured(2.2, 0.3)), near) == ORDER_HOLDS
    assert order((measured(2.2, 0.3), measured(2.0, 0.3)), near) == ORDER_HOLDS  # the sign of a tie does not count
    assert order((measured(2.0, 0.3), measured(2.2, 0.3)), far) == DIFFERS
    assert order((measured(2.0, 0.25), measured(2.5, 0.25)), far) == DIFFERS  # a shared end overlaps
    assert order((measured(2.0, 0.24), measured(2.5, 0.24)), far) == ORDER_HOLDS


def test_rule_4_five_percent_is_of_the_larger_and_exclusive() -> None:
    tie = measured(2.0, 1.0), measured(2.0, 1.0)
    assert order(tie, (1.9, 2.0)) == DIFFERS
    assert order(tie, (1.901, 2.0)) == ORDER_HOLDS


def test_rule_4_leaves_out_rows_without_interval_or_published_value() -> None:
    low, high = measured(2.0, 0.1), measured(3.0, 0.1)
    unsure = Interval(3.0, math.nan, math.nan, 1)
    for other in (Pairing(None, 9.0), Pairing(high, None), Pairing(unsure, 9.0)):
        block = {"a": Pairing(high, 2.5), "b": Pairing(low, 2.0), "c": other}
        assert judge("a", block, stand_in=True) == ORDER_HOLDS
    assert order((high, None), (2.5, 2.0)) == not_comparable("other models")


def test_rule_4_one_contradiction_is_enough() -> None:
    values = {"a": (3.0, 3.0), "b": (2.0, 2.0), "c": (1.0, 2.5)}
    block = {name: Pairing(measured(ours, 0.1), published) for name, (ours, published) in values.items()}
    assert [judge(name, block, stand_in=True) for name in "abc"] == [ORDER_HOLDS, DIFFERS, DIFFERS]


def sample(over: list[float], under: list[float]) -> Sample:
    """A ratio of two sums over conversations a, b, ..."""
    prompts = [chr(ord("a") + place) for place in range(len(over))]
    return Sample(pd.DataFrame({"above": over, "below": under}, index=prompts), ("above",), ("below",))


def in_pairs(first: Pairing, other: Pairing) -> str:
    return judge("it", {"it": first, "other": other}, stand_in=True)


def test_rule_4_compares_the_same_conversations_where_the_intervals_overlap() -> None:
    tokens, steps = np.array([10.0, 20, 30, 40, 50]), np.full(5, 10.0)
    wide = Interval(3.0, 1.5, 4.5, 5), Interval(2.7, 1.4, 4.1, 5)
    more, less = sample(list(tokens), list(steps)), sample(list(tokens * 0.9), list(steps))  # in every one 10% less
    assert in_pairs(Pairing(wide[0], 2.5, more), Pairing(wide[1], 2.0, less)) == ORDER_HOLDS
    assert in_pairs(Pairing(wide[0], 2.0, more), Pairing(wide[1], 2.5, less)) == DIFFERS
    assert in_pairs(Pairing(wide[0], 2.0, more), Pairing(wide[1], 2.0, less)) == DIFFERS  # the paper sees none
    assert in_pairs(Pairing(wide[0], 2.5), Pairing(wide[1], 2.0, less)) == DIFFERS  # without the sums it is a tie


def test_rule_4_a_ratio_that_holds_1_is_a_tie_even_if_the_intervals_are_apart() -> None:
    apart = Interval(3.0, 2.9, 3.1, 2), Interval(2.0, 1.9, 2.1, 2)
    mixed = sample([2.0, 1.0], [1.0, 1.0]), sample([1.0, 2.0], [1.0, 1.0])  # resamples: 2, 1 and 1/2
    assert in_pairs(Pairing(apart[0], 2.5, mixed[0]), Pairing(apart[1], 2.0, mixed[1])) == DIFFERS
    assert in_pairs(Pairing(apart[0], 2.05, mixed[0]), Pairing(apart[1], 2.0, mixed[1])) == ORDER_HOLDS


def test_rule_4_an_end_at_1_is_a_tie() -> None:
    ours = Interval(1.5, 1.4, 1.6, 2), Interval(1.0, 0.9, 1.1, 2)
    pair = sample([1.0, 2.0], [1.0, 1.0]), sample([1.0, 1.0], [1.0, 1.0])  # a quarter of the resamples has 1
    assert in_pairs(Pairing(ours[0], 2.5, pair[0]), Pairing(ours[1], 2.0, pair[1])) == DIFFERS


def test_rule_4_fewer_than_two_common_conversations_fall_back_on_the_intervals() -> None:
    apart = Interval(3.0, 2.9, 3.1, 2), Interval(2.0, 1.9, 2.1, 2)
    one, other = sample([1.0, 1.0], [1.0, 1.0]), sample([3.0], [1.0])  # one in common, in which the order is reversed
    assert in_pairs(Pairing(apart[0], 2.5, one), Pairing(apart[1], 2.0, other)) == ORDER_HOLDS


def test_rule_4_by_all_resamples_of_four_conversations() -> None:
    """All 256 resamples are counted by hand; the rule is asked where the share on one side of 1 is not in doubt."""
    rng, clear = np.random.default_rng(0), {0: 0, 1: 0, -1: 0}
    for _ in range(150):
        first, other = rng.integers(1, 20, (4, 2)).astype(float), rng.integers(1, 20, (4, 2)).astype(float)
        first[:, 0] *= rng.choice([1, 2, 4])
        ratios = []
        for drawn in itertools.product(range(4), repeat=4):
            mine, theirs = first[list(drawn)].sum(axis=0), other[list(drawn)].sum(axis=0)
            ratios.append((mine[0] / mine[1]) / (theirs[0] / theirs[1]))
        below, above = np.mean(np.array(ratios) < 1), np.mean(np.array(ratios) > 1)
        sign = 1 if below < 0.01 else -1 if above < 0.01 else 0 if min(below, above) > 0.05 else None
        if sign is None:
            continue
        clear[sign] += 1
        ours = Interval(1.0, 0.0, 2.0, 4)  # overlaps: the sums alone decide
        rows = Pairing(ours, 2.5, sample(*first.T.tolist())), Pairing(ours, 2.0, sample(*other.T.tolist()))
        assert in_pairs(*rows) == (ORDER_HOLDS if sign == 1 else DIFFERS)
    assert min(clear.values()) >= 5


def test_real_pair_on_another_device_is_judged_by_order() -> None:
    block = {"a": Pairing(measured(300, 1), 87.0), "b": Pairing(measured(100, 1), 50.0)}
    assert judge("a", block, stand_in=False, same_device=False) == ORDER_HOLDS
    assert judge("a", block, stand_in=False, same_device=True) == DIFFERS


@pytest.mark.parametrize(
    ("device", "hardware", "same"),
    [
        ("NVIDIA GeForce RTX 4090", "1x RTX 4090", True),
        ("NVIDIA L20", "1x L20", True),
        ("NVIDIA A100-PCIE-40GB", "4x A100-PCIE-40GB", False),
        ("4x NVIDIA A100-PCIE-40GB", "4x A100-PCIE-40GB", True),
        ("NVIDIA L2", "1x L20", False),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", "1x RTX 4090", False),
        ("AMD EPYC", "", False),
    ],
)
def test_same_device(device: str, hardware: str, same: bool) -> None:
    assert same_device(device, hardware) is same


def test_verdicts_are_the_fixed_words() -> None:
    assert (MATCHES, ORDER_HOLDS, DIFFERS, NOT_RUN) == ("matches", "order holds", "differs", "not run")
    assert verdict.not_comparable("other models") == "not comparable: other models"
