"""The bootstrap: exact cases, agreement of the fast and the plain way, and coverage on simulated conversations."""

import math

import numpy as np
import pandas as pd
import pytest

from bench.statistics import intervals


def conversations(rng, count=40):
    """Steps of conversations whose mean acceptance length differs; the pooled mean over many of them is 2.5."""
    steps = rng.integers(5, 40, size=count)
    means = rng.uniform(1.5, 3.5, size=count)
    names = np.repeat([f"c{index}" for index in range(count)], steps)
    lengths = np.repeat(means, steps) + rng.normal(0, 0.5, size=steps.sum())
    return pd.DataFrame({"prompt_id": names, "acceptance_length": lengths, "row": np.arange(steps.sum())})


def pooled(frame):
    return frame["acceptance_length"].sum() / len(frame)


def per_prompt(frame):
    return frame.groupby("prompt_id")["acceptance_length"].mean().mean()


def test_fast_and_plain_bootstrap_agree():
    steps = conversations(np.random.default_rng(1), 12)
    plain = intervals.bootstrap(steps, pooled, resamples=200, seed=3)
    fast = intervals.ratio_of_sums(steps.assign(one=1), "acceptance_length", "one", resamples=200, seed=3)
    assert plain.n == 12
    assert (plain.value, plain.low, plain.high) == pytest.approx((fast.value, fast.low, fast.high))
    assert plain.low < plain.value < plain.high


def test_a_conversation_drawn_twice_counts_twice_in_grouped_statistics():
    steps = conversations(np.random.default_rng(2), 12)
    means = steps.groupby("prompt_id", as_index=False)["acceptance_length"].mean()
    expected = intervals.ratio_of_sums(means, "acceptance_length", resamples=200)
    found = intervals.bootstrap(steps, per_prompt, resamples=200)
    assert (found.value, found.low, found.high) == pytest.approx((expected.value, expected.low, expected.high))


def test_percentiles_of_all_resamples_of_two_conversations():
    steps = pd.DataFrame({"prompt_id": ["a", "b"], "acceptance_length": [1.0, 3.0]})  # resamples: 1, 2, 2, 3
    wide = intervals.ratio_of_sums(steps, "acceptance_length", resamples=4000)
    middle = intervals.ratio_of_sums(steps, "acceptance_length", resamples=4000, level=0.6)
    narrow = intervals.ratio_of_sums(steps, "acceptance_length", resamples=4000, level=0.4)
    assert (wide.value, wide.low, wide.high, wide.n) == (2, 1, 3, 2)
    assert (middle.low, middle.high) == (1, 3)
    assert (narrow.low, narrow.high) == (2, 2)


def test_intervals_are_the_same_every_time_and_in_any_order_of_rows():
    steps = conversations(np.random.default_rng(4))
    shuffled = steps.sample(frac=1, random_state=0)
    first, again, other = (intervals.ratio_of_sums(steps, "acceptance_length", seed=seed) for seed in (0, 0, 1))
    assert first == again != other
    assert (first.low, first.high) == pytest.approx(
        (
            intervals.ratio_of_sums(shuffled, "acceptance_length").low,
            intervals.ratio_of_sums(shuffled, "acceptance_length").high,
        )
    )
    plain, mixed = (intervals.bootstrap(frame, pooled, resamples=50) for frame in (steps, shuffled))
    assert (plain.low, plain.high) == pytest.approx((mixed.low, mixed.high))


def test_coverage_needs_whole_conversations():
    covered = {"prompt_id": 0, "row": 0}
    rng = np.random.default_rng(5)
    for _ in range(150):
        steps = conversations(rng, 25)
        for by in covered:
            found = intervals.ratio_of_sums(steps, "acceptance_length", by=by, resamples=200)
            covered[by] += found.low <= 2.5 <= found.high
    assert 0.88 <= covered["prompt_id"] / 150 <= 0.99
    assert covered["row"] / 150 < 0.7


def test_one_conversation_has_a_value_and_no_interval():
    steps = pd.DataFrame({"prompt_id": ["a", "a"], "acceptance_length": [1, 4]})
    for found in (intervals.ratio_of_sums(steps, "acceptance_length"), intervals.bootstrap(steps, pooled)):
        assert (found.value, found.n) == (pytest.approx(2.5), 1)
        assert math.isnan(found.low)
        assert math.isnan(found.high)


def test_a_function_of_totals_is_the_plain_bootstrap_of_it():
    rng = np.random.default_rng(3)
    frame = pd.DataFrame({"prompt_id": np.arange(60) % 12, "a": rng.uniform(1, 2, 60), "b": rng.uniform(1, 2, 60)})
    fast = intervals.of_totals(frame, lambda total: total["a"] / total["b"] + 1)
    plain = intervals.bootstrap(frame, lambda rows: rows["a"].sum() / rows["b"].sum() + 1)
    assert (fast.value, fast.low, fast.high) == pytest.approx((plain.value, plain.low, plain.high))
    assert fast.n == plain.n == 12


@pytest.mark.parametrize(
    "nothing",
    [pd.DataFrame(), pd.DataFrame(columns=["prompt_id", "decode_s", "num_new_tokens"])],
    ids=["no columns", "no rows"],
)
def test_nothing_gives_nan(nothing):
    found = [
        intervals.bootstrap(nothing, lambda frame: math.nan),
        intervals.of_totals(nothing, lambda total: total["decode_s"]),
        intervals.ratio_of_sums(nothing, "decode_s", "num_new_tokens"),
    ]
    assert all(math.isnan(number) for each in found for number in (each.value, each.low, each.high))
    assert {each.n for each in found} == {0}


def test_a_denominator_of_zero_is_nan_not_an_error():
    frame = pd.DataFrame({"prompt_id": ["a", "b"], "top": [1.0, 2.0], "below": [0.0, 0.0]})
    found = intervals.ratio_of_sums(frame, "top", "below")
    assert math.isnan(found.value)
    assert math.isnan(found.low)
    sometimes = intervals.ratio_of_sums(frame.assign(below=[0.0, 1.0]), "top", "below")
    assert (sometimes.value, sometimes.low, sometimes.high) == (3, 2, 3)
