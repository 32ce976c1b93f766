"""Two runs in pairs, and means over several decodings, against plain numpy."""

import math

import numpy as np
import pandas as pd
import pytest
from sampled import counts_of, numbers, prompts_of, steps_of

from bench.statistics import intervals, samples


def test_a_paired_ratio_draws_conversations_of_both_together():
    one = steps_of({"a": [4, 4], "b": [2, 3], "c": [6]})
    other = steps_of({"a": [2, 2, 2], "b": [1, 2], "c": [3, 3]})
    found = samples.paired_ratio(samples.mal(one), samples.mal(other))
    tokens, steps = np.array([[8, 5, 6], [6, 3, 6]]), np.array([[2, 2, 1], [3, 2, 2]])
    drawn = counts_of(3)
    means = [drawn @ tokens[run] / (drawn @ steps[run]) for run in (0, 1)]
    low, high = np.quantile(means[0] / means[1], [0.025, 0.975])
    assert (found.value, found.low, found.high, found.n) == pytest.approx(((19 / 5) / (15 / 7), low, high, 3))


def test_only_shared_conversations_count():
    one, other = steps_of({"a": [4], "b": [2], "z": [9]}), steps_of({"a": [2], "b": [1], "y": [7]})
    found = samples.paired_ratio(samples.mal(one), samples.mal(other))
    assert (found.value, found.low, found.high, found.n) == (2.0, 2.0, 2.0, 2)
    nothing = samples.paired_ratio(samples.mal(one), samples.mal(steps_of({"x": [1]})))
    assert math.isnan(nothing.value)
    assert nothing.n == 0


def test_a_mean_of_two_metrics_is_that_of_their_ratios_over_the_conversations_of_both():
    greedy = prompts_of({"a": (1.0, 2.0), "b": (4.0, 4.0), "c": (1.0, 3.0), "z": (1.0, 99.0)})
    sampled = prompts_of({"c": (2.0, 5.0), "b": (1.0, 2.0), "a": (3.0, 2.0), "y": (1.0, 99.0)})
    drawn = counts_of(3)
    seconds = np.array([[[1, 4, 1], [2, 4, 3]], [[3, 1, 2], [2, 2, 5]]])  # decoding, arm, conversation
    each = [(drawn @ base) / (drawn @ own) for own, base in seconds]
    low, high = np.quantile((each[0] + each[1]) / 2, [0.025, 0.975])
    mean = samples.mean_of(samples.speedup(greedy), samples.speedup(sampled))
    assert numbers(samples.interval(mean)) == pytest.approx(((9 / 6 + 9 / 6) / 2, low, high, 3))
    other = samples.mean_of(*(samples.mean(pd.Series(dict.fromkeys("abc", value))) for value in (1.0, 3.0)))
    assert numbers(samples.paired_ratio(mean, other)) == pytest.approx((1.5 / 2, low / 2, high / 2, 3))


def test_ahead_is_antisymmetric_and_holds_with_zeros():
    above = samples.mean(pd.Series({"a": 3.0, "b": 2.0, "c": 4.0}))
    zeros = samples.mean(pd.Series({"a": 0.0, "b": 0.0, "c": 0.0}))
    once = samples.mean(pd.Series({"a": 3.0, "b": 0.0, "c": 0.0}))
    assert (samples.ahead(above, zeros), samples.ahead(zeros, above)) == (1, -1)
    assert (samples.ahead(once, zeros), samples.ahead(zeros, once)) == (0, 0)
    assert samples.ahead(zeros, zeros) == 0
    assert samples.ahead(above, samples.mean(pd.Series({"a": 3.0}))) is None


def test_ahead_is_the_sign_of_a_difference_drawn_in_pairs():
    rng = np.random.default_rng(1)
    signs = set()
    for shift in (0.0, 0.4, 0.8, 1.6):
        own, theirs = rng.integers(1, 9, 7) + shift * 3, rng.integers(1, 9, 7).astype(float)
        both = [samples.mean(pd.Series(values, index=list("abcdefg"))) for values in (own, theirs)]
        low, high = np.quantile(counts_of(7) @ (own - theirs) / 7, [0.025, 0.975])
        signs.add(samples.ahead(*both))
        assert samples.ahead(*both) == int(low > 0) - int(high < 0) == -samples.ahead(*both[::-1])
    assert signs == {0, 1}


def test_times_are_tied_within_what_the_autoregressive_arms_differ_by():
    """The second run is 20% slower in both arms, but for the first prompt: its speedups are 25% higher there."""
    one = prompts_of(dict.fromkeys("abcd", (1.0, 2.0)))
    drifted = prompts_of({"a": (1.0, 2.5)} | dict.fromkeys("bcd", (1.2, 2.4)))
    steady = prompts_of(dict.fromkeys("abcd", (0.8, 2.0)))
    assert samples.ahead(samples.speedup(steady), samples.speedup(one)) == 1
    assert samples.ahead(samples.tokens_per_s(steady), samples.tokens_per_s(one)) == 1
    for metric in (samples.speedup, samples.tokens_per_s):
        assert samples.ahead(metric(drifted), metric(one)) == samples.ahead(metric(one), metric(drifted)) == 0


def test_means_of_times_are_tied_within_what_the_arms_of_either_part_differ_by():
    """A ninth is told apart, unless the machine was half or twice as fast in one of the two runs, or in each."""
    base, faster, slowed, sped = (
        samples.speedup(prompts_of(dict.fromkeys("abcd", seconds)))
        for seconds in ((1.0, 2.0), (0.9, 2.0), (1.8, 4.0), (0.45, 1.0))
    )
    level = samples.mean_of(base, base)
    for parts, sign in (((faster, faster), 1), ((faster, slowed), 0), ((slowed, faster), 0), ((slowed, sped), 0)):
        own = samples.mean_of(*parts)
        assert (samples.ahead(own, level), samples.ahead(level, own)) == (sign, -sign)
        assert samples.ahead(own.of(pd.Index(["a"])), level) is None


def test_resolution_reaches_as_far_either_way_round():
    assert samples.resolution(intervals.Interval(1.0, 0.5, 1.1, 5)) == 1.0
    assert samples.resolution(intervals.Interval(1.0, 0.98, 1.04, 5)) == pytest.approx(0.04)
    assert samples.resolution(intervals.Interval(1.0, 0.0, 1.1, 5)) == math.inf


def test_a_mean_over_datasets_pairs_each_with_its_own_and_draws_from_all():
    """The two datasets may call their prompts by the same names."""
    first = [prompts_of({"a": (1.0, 2.0), "b": (4.0, 4.0), "z": (1.0, 99.0)}), prompts_of({"a": (2.0, 5.0)})]
    other = [prompts_of({"b": (1.0, 2.0), "a": (3.0, 2.0)}), prompts_of({"a": (1.0, 1.0), "y": (1.0, 99.0)})]
    own, base = np.array([[1, 4, 0], [0, 0, 2]]), np.array([[2, 4, 0], [0, 0, 5]])  # dataset, conversation
    theirs, plain = np.array([[3, 1, 0], [0, 0, 1]]), np.array([[2, 2, 0], [0, 0, 1]])
    drawn = counts_of(3)
    with np.errstate(invalid="ignore"):
        means = [sum((drawn @ b[d]) / (drawn @ o[d]) for d in (0, 1)) for o, b in ((own, base), (theirs, plain))]
        low, high = np.nanquantile(means[0] / means[1], [0.025, 0.975])
    found = samples.paired_ratio(*(samples.mean_over(*map(samples.speedup, of)) for of in (first, other)))
    value = (6 / 5 + 5 / 2) / (4 / 4 + 1 / 1)
    assert numbers(found) == pytest.approx((value, low, high, 3))
