"""Metrics as sums over conversations, and the paired ratio of two runs', against plain numpy."""

import math

import numpy as np
import pandas as pd
import pytest

from bench import samples, stats


def steps_of(lengths: dict[str, list[int]]) -> pd.DataFrame:
    rows = [(prompt, length) for prompt, every in lengths.items() for length in every]
    return pd.DataFrame(rows, columns=["prompt_id", "acceptance_length"])


def prompts_of(seconds: dict[str, tuple[float, float]], tokens: int = 10) -> pd.DataFrame:
    """A turn of so many tokens in both arms: seconds of the method, of the baseline."""
    rows = [
        {"run_id": "r", "prompt_id": prompt, "turn": 0, "arm": arm, "status": "ok", "decode_s": second}
        | {"num_decoded_tokens": tokens}
        for prompt, both in seconds.items()
        for arm, second in zip(("method", "autoregressive"), both, strict=True)
    ]
    return pd.DataFrame(rows)


def counts_of(conversations: int) -> np.ndarray:
    share = np.full(conversations, 1 / conversations)
    return np.random.default_rng(0).multinomial(conversations, share, size=1000)


def test_a_samples_interval_is_that_of_the_frames():
    steps = steps_of({"a": [1, 2, 5], "b": [3], "c": [2, 2]})
    assert samples.interval(samples.mal(steps)) == stats.mal_interval(steps)
    prompts = prompts_of({"a": (1.0, 2.0), "b": (1.5, 1.4), "c": (0.7, 2.2)})
    mine, theirs = samples.interval(samples.speedup(prompts)), stats.paired_speedup(prompts)
    assert (mine.value, mine.low, mine.high) == pytest.approx((theirs.value, theirs.low, theirs.high), rel=1e-12)


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


def test_a_speedup_needs_both_arms_of_a_turn():
    prompts = prompts_of({"a": (1.0, 2.0), "b": (1.0, 3.0)})
    prompts.loc[(prompts["prompt_id"] == "b") & (prompts["arm"] == "autoregressive"), "status"] = "failed"
    assert samples.interval(samples.speedup(prompts)).value == 2.0
    assert samples.interval(samples.tokens_per_s(prompts)).value == 10.0


def test_a_mean_over_conversations_leaves_out_what_is_missing():
    found = samples.interval(samples.mean(pd.Series({"a": 1.0, "b": 3.0, "c": math.nan})))
    assert (found.value, found.n) == (2.0, 2)


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


def test_a_sample_of_some_conversations():
    steps = steps_of({"a": [2, 4], "b": [3, 1], "c": [5, 5]})
    found = samples.interval(samples.mal(steps).of(pd.Index(["a", "c"])))
    assert (found.value, found.n) == (4.0, 2)


def test_resolution_reaches_as_far_either_way_round():
    assert samples.resolution(stats.Interval(1.0, 0.5, 1.1, 5)) == 1.0
    assert samples.resolution(stats.Interval(1.0, 0.98, 1.04, 5)) == pytest.approx(0.04)
    assert samples.resolution(stats.Interval(1.0, 0.0, 1.1, 5)) == math.inf
