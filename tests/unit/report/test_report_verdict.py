"""The verdict rule, case by case; numbers in the docstring of `specdec_trees.artifacts.verdict`."""

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from specdec_trees.artifacts import ties, verdict
from specdec_trees.artifacts.tables import MACHINE
from specdec_trees.artifacts.verdict import (
    DIFFERS,
    MATCHES,
    NOT_RESOLVED,
    NOT_RUN,
    ORDER_HOLDS,
    Pairing,
    judge,
    not_comparable,
    word,
)
from specdec_trees.statistics import intervals, samples
from specdec_trees.statistics.intervals import Interval
from specdec_trees.statistics.samples import Sample


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
    ("low", "high", "expected"),
    [
        (1.95, 2.05, MATCHES),
        (1.9, 2.1, MATCHES),  # an end counts
        (1.91, 1.99, MATCHES),  # excludes 2.0, and lies within its tolerance all the same
        (1.89, 2.05, "not resolved"),
        (2.11, 2.3, DIFFERS),
        (1.7, 1.89, DIFFERS),
        (0.1, 9.0, "not resolved"),  # a wide interval matched anything until now
        (2.0, 2.3, "not resolved"),
    ],
)
def test_rule_3_the_whole_interval_within_five_percent(low: float, high: float, expected: str) -> None:
    found = alone(Interval((low + high) / 2, low, high, 9), 2.0)
    assert found.startswith(expected.partition(" (")[0])


@pytest.mark.parametrize(
    ("ours", "needed"),
    [
        (Interval(2.0, 1.8, 2.2, 9), "about 36 needed"),  # 0.2 has to become 0.1
        (Interval(2.05, 1.8, 2.3, 10), "about 250 needed"),  # 0.25 has to become 0.05
        (Interval(2.5, 2.0, 3.0, 8), "about 13 needed"),  # 2.5 - 2.1 = 0.4: 8 x (0.5 / 0.4)^2 = 12.5
        (Interval(1.5, 1.0, 2.0, 100), "about 160 needed"),  # 1.9 - 1.5 = 0.4
        (Interval(2.1, 1.8, 2.4, 10), "more conversations would not tell"),  # on the border
        (Interval(2.0999, 1.8, 2.4, 10), "over 100,000 needed"),
    ],
)
def test_rule_5_how_many_conversations_would_decide(ours: Interval, needed: str) -> None:
    assert alone(ours, 2.0) == f"not resolved (n = {ours.n}; {needed})"


def test_rule_5_holds_when_so_many_more_are_drawn() -> None:
    """Of a sample whose interval is not decided, four times and more as many conversations shrink it as foretold."""
    rng = np.random.default_rng(3)
    few = sample(list(rng.normal(2.03, 0.4, 20)), [1.0] * 20)
    ours = samples.interval(few)
    needed = intervals.needed(ours, 1.9, 2.1)
    assert alone(ours, 2.0).startswith(NOT_RESOLVED)
    assert needed > 4 * ours.n
    again = [*few.sums["above"]] * math.ceil(1.2 * needed / 20)
    assert alone(samples.interval(sample(again, [1.0] * len(again))), 2.0) == MATCHES


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


def test_rule_4_overlapping_intervals_are_not_resolved() -> None:
    far = (2.0, 2.2)
    by_logarithms = "not resolved (n = 10; about 91 needed)"  # 10 (log(2.2 / 2.0 * 2.3 / 1.9) / log(2.2 / 2.0))^2
    assert order((measured(2.0, 0.3), measured(2.2, 0.3)), far) == by_logarithms
    assert order((measured(2.2, 0.3), measured(2.0, 0.3)), far) == by_logarithms
    assert order((measured(2.0, 0.25), measured(2.5, 0.25)), far).startswith(NOT_RESOLVED)  # a shared end overlaps
    assert order((measured(2.0, 0.24), measured(2.5, 0.24)), far) == ORDER_HOLDS
    assert order((measured(2.0, 0.3), measured(2.0, 0.3)), far) == (
        "not resolved (n = 10; more conversations would not tell)"
    )


def test_rule_4_a_tie_of_the_paper() -> None:
    """Held by the same sign or by a ratio within 5% of 1, contradicted by the opposite sign beyond that alone."""
    near = (2.0, 2.09)
    assert order((measured(2.0, 0.1), measured(3.0, 0.1)), near) == ORDER_HOLDS
    assert order((measured(2.01, 0.01), measured(2.0, 0.01)), near) == ORDER_HOLDS
    assert order((measured(2.06, 0.01), measured(2.0, 0.01)), near) == ORDER_HOLDS  # 2.07 / 1.99 = 1.04
    assert order((measured(3.0, 0.1), measured(2.0, 0.1)), near) == DIFFERS
    assert order((measured(2.2, 0.3), measured(2.0, 0.3)), near).startswith(NOT_RESOLVED)
    assert order((measured(2.1, 0.01), measured(2.0, 0.01)), near).startswith(NOT_RESOLVED)  # 1.04 to 1.06


def test_rule_4_five_percent_is_of_the_larger_and_exclusive() -> None:
    level = measured(2.0, 0.01), measured(2.0, 0.01)
    assert order(level, (1.9, 2.0)) == DIFFERS  # a lead that is not there
    assert order(level, (1.901, 2.0)) == ORDER_HOLDS


def test_rule_4_a_contradiction_outweighs_what_is_not_resolved() -> None:
    values = {"a": (3.0, 0.1, 2.0), "b": (3.1, 0.5, 1.8), "c": (1.0, 0.1, 2.5), "d": (2.9, 0.5, 1.85)}
    block = {name: Pairing(measured(ours, reach), paper) for name, (ours, reach, paper) in values.items()}
    assert judge("a", block, stand_in=True) == DIFFERS  # c is above it in the paper
    del block["c"]
    assert judge("a", block, stand_in=True) == "not resolved (n = 10; about 410 needed)"  # 405 of b, 324 of d


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
    tokens, steps = np.array([10.0, 20, 30, 40, 50, 60]), np.full(6, 10.0)
    wide = Interval(3.5, 1.5, 5.5, 6), Interval(3.1, 1.4, 5.0, 6)
    more, less = sample(list(tokens), list(steps)), sample(list(tokens * 0.9), list(steps))  # in every one 10% less
    assert in_pairs(Pairing(wide[0], 2.5, more), Pairing(wide[1], 2.0, less)) == ORDER_HOLDS
    assert in_pairs(Pairing(wide[0], 2.0, more), Pairing(wide[1], 2.5, less)) == DIFFERS
    assert in_pairs(Pairing(wide[0], 2.0, more), Pairing(wide[1], 2.0, less)) == DIFFERS  # the paper sees none
    assert in_pairs(Pairing(wide[0], 2.5), Pairing(wide[1], 2.0, less)).startswith(NOT_RESOLVED)  # without the sums


def test_rule_4_a_difference_that_holds_0_is_not_resolved_even_if_the_intervals_are_apart() -> None:
    apart = Interval(3.0, 2.9, 3.1, 6), Interval(2.0, 1.9, 2.1, 6)
    mixed = sample([2.0, 1.0] * 3, [1.0] * 6), sample([1.0, 2.0] * 3, [1.0] * 6)
    for published in (2.5, 2.05):
        found = in_pairs(Pairing(apart[0], published, mixed[0]), Pairing(apart[1], 2.0, mixed[1]))
        assert found == "not resolved (n = 6; more conversations would not tell)"  # the two are equal in the mean


def test_rule_4_a_lead_that_is_not_there_contradicts_the_paper() -> None:
    """Our two are equal to a tenth of a percent in every conversation; the paper has the one a quarter ahead."""
    same = sample([2.001, 2.0, 1.999] * 3, [1.0] * 9), sample([2.0] * 9, [1.0] * 9)
    ours = [samples.interval(one) for one in same]
    for published, expected in ((2.5, DIFFERS), (2.05, ORDER_HOLDS)):
        assert in_pairs(Pairing(ours[0], published, same[0]), Pairing(ours[1], 2.0, same[1])) == expected


def test_rule_4_times_that_the_machine_moves_as_far_are_not_resolved() -> None:
    """One method is 10% faster in every conversation; plain decoding beside it was faster, too."""
    speed = {name: sample([100.0 * factor] * 6, [1.0] * 6) for name, factor in (("a", 1.1), ("b", 1.0))}
    ours = {name: samples.interval(speed[name]) for name in speed}
    rows = {name: Pairing(ours[name], paper, speed[name]) for name, paper in (("a", 1.3), ("b", 1.0))}
    assert judge("a", rows, stand_in=True) == ORDER_HOLDS
    for plain, expected in (
        ([1.12] * 6, f"not resolved (n = 6; {MACHINE})"),
        ([0.95, 1.11] * 3, "not resolved"),  # 3% in the mean, by an interval that reaches beyond 10%
        ([1.01] * 6, ORDER_HOLDS),
        ([1.3] * 6, "not comparable: times too noisy"),
    ):
        controls = {"a": sample([50.0 * factor for factor in plain], [1.0] * 6), "b": sample([50.0] * 6, [1.0] * 6)}
        timed = {
            name: Pairing(ours[name], rows[name].published, replace(speed[name], controls=(controls[name],)))
            for name in rows
        }
        assert judge("a", timed, stand_in=True).startswith(expected)
        far = judge("a", {**timed, "a": replace(timed["a"], published=3.0)}, stand_in=True)
        assert far.startswith(DIFFERS if expected.startswith(NOT_RESOLVED) else expected)  # whatever the machine did


def test_autoregressive_decoding_is_1_where_the_paper_prints_no_such_row() -> None:
    rows = {"autoregressive": Pairing(measured(1.0), None), "a": Pairing(measured(0.67, 0.05), 1.71)}
    assert word(judge("a", rows, stand_in=True, speedup=True)) == DIFFERS
    assert judge("a", rows, stand_in=True) == not_comparable("other models")  # of a MAL nothing is known


def test_rule_4_noise_is_of_the_block_as_in_the_marks() -> None:
    """A third row, which the paper does not have, stood beside a machine half as fast: as in the marks, none ranks."""
    plain = {"a": 50.0, "b": 50.0, "c": 25.0, "d": 12.0}
    timed = {
        name: replace(sample([speed] * 6, [1.0] * 6), controls=(sample([plain[name]] * 6, [1.0] * 6),))
        for name, speed in (("a", 110.0), ("b", 100.0), ("c", 50.0), ("d", 20.0))
    }
    papers = {"a": 1.3, "b": 1.0, "c": None, "d": None}
    rows = {name: Pairing(samples.interval(one), papers[name], one) for name, one in timed.items()}
    assert judge("a", {name: rows[name] for name in "ab"}, stand_in=True) == ORDER_HOLDS
    assert judge("a", rows, stand_in=True) == "not comparable: times too noisy"
    assert set(ties.marks([ties.Entry(rows[name].ours, one) for name, one in timed.items()])) == {ties.UNRANKED}


def test_rule_1_fewer_than_six_conversations_decide_nothing() -> None:
    """Two alike would match anything beside them to the last digit."""
    assert alone(Interval(2.0, 2.0, 2.0, 5), 2.0) == "not resolved (n = 5; about 6 needed)"
    assert alone(Interval(3.0, 3.0, 3.0, 5), 2.0) == "not resolved (n = 5; about 6 needed)"
    assert alone(Interval(2.0, 2.0, 2.0, 6), 2.0) == MATCHES
    ours = Interval(3.0, 2.9, 3.1, 5), Interval(2.0, 1.9, 2.1, 5)
    pair = sample([3.0] * 5, [1.0] * 5), sample([2.0] * 5, [1.0] * 5)
    assert in_pairs(Pairing(ours[0], 2.5, pair[0]), Pairing(ours[1], 2.0, pair[1])).startswith(NOT_RESOLVED)


def test_rule_4_without_common_conversations_falls_back_on_the_intervals() -> None:
    apart = Interval(3.0, 2.9, 3.1, 6), Interval(2.0, 1.9, 2.1, 6)
    one, other = sample([1.0] * 6, [1.0] * 6), sample([3.0] * 6, [1.0] * 6)
    other = replace(other, sums=other.sums.rename(index=lambda name: f"other {name}"))
    assert in_pairs(Pairing(apart[0], 2.5, one), Pairing(apart[1], 2.0, other)) == ORDER_HOLDS


def test_rule_4_by_a_t_test_of_what_each_conversation_moves() -> None:
    """The sign of the logarithm of a ratio of two ratios of sums, by a loop that leaves out each of seven."""
    rng, seen = np.random.default_rng(0), {0: 0, 1: 0, -1: 0}
    for _ in range(150):
        first, other = rng.integers(5, 20, (7, 2)).astype(float), rng.integers(5, 20, (7, 2)).astype(float)
        first[:, 0] *= rng.choice([1, 2, 0.5])

        def lead(rows: list[int], first: np.ndarray = first, other: np.ndarray = other) -> float:
            (a, b), (c, d) = first[rows].sum(axis=0), other[rows].sum(axis=0)
            return math.log(a / b) - math.log(c / d)

        without = [lead([row for row in range(7) if row != out]) for out in range(7)]
        reach = stats.t.ppf(0.975, 6) * (8 / 7) * np.sqrt(6 * np.var(without))
        sign = int(lead([*range(7)]) > reach) - int(lead([*range(7)]) < -reach)
        seen[sign] += 1
        assert samples.compare(sample(*first.T.tolist()), sample(*other.T.tolist())).ahead == sign
    assert min(seen.values()) >= 5


def test_real_pair_on_another_device_is_judged_by_order() -> None:
    block = {"a": Pairing(measured(300, 1), 87.0), "b": Pairing(measured(100, 1), 50.0)}
    assert judge("a", block, stand_in=False, same_device=False) == ORDER_HOLDS
    assert judge("a", block, stand_in=False, same_device=True) == DIFFERS


def test_verdicts_are_the_fixed_words() -> None:
    assert (MATCHES, ORDER_HOLDS, DIFFERS, NOT_RUN) == ("matches", "order holds", "differs", "not run")
    assert NOT_RESOLVED == "not resolved"
    assert verdict.not_comparable("other models") == "not comparable: other models"


@pytest.mark.parametrize(
    ("ours", "reach", "expected"),
    [
        (1.3, 0.1, ORDER_HOLDS),
        (0.7, 0.1, DIFFERS),
        (1.05, 0.1, DIFFERS),  # the lead of the paper is not there
        (1.2, 0.4, "not resolved"),
    ],
)
def test_speedups_are_set_against_autoregressive_decoding(ours: float, reach: float, expected: str) -> None:
    """Slower than it, two methods may keep the paper's order of each other."""
    block = {"first": Pairing(measured(ours, reach), 1.6), "other": Pairing(measured(ours / 3, reach / 9), 1.2)}
    assert judge("first", block, stand_in=True) == ORDER_HOLDS
    assert judge("first", block, stand_in=True, speedup=True).startswith(expected)
    assert judge("first", {"first": block["first"]}, stand_in=True, speedup=True).startswith(expected)
