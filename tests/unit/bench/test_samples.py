"""Metrics as sums over conversations, and their intervals."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from sampled import jackknife, numbers, prompts_of, steps_of

from specdec_trees.results.rows import AUTOREGRESSIVE, METHOD
from specdec_trees.statistics import intervals, samples


def turns(*rows):
    columns = ["prompt_id", "turn", "arm", "status", "num_new_tokens", "decode_s"]
    frame = pd.DataFrame(rows, columns=columns).assign(run_id="r")
    return frame.assign(num_decoded_tokens=(frame["num_new_tokens"] - 1).clip(lower=0))


def speedup(prompts):
    return samples.interval(samples.speedup(prompts))


def test_intervals_leave_out_each_conversation_in_turn():
    lengths = {"b": [3], "a": [1, 2, 5], "c": [2, 2], "d": [4, 1], "e": [6], "f": [2]}
    without = [np.mean([x for name, own in lengths.items() if name != out for x in own]) for out in sorted(lengths)]
    assert numbers(samples.interval(samples.mal(steps_of(lengths)))) == pytest.approx(jackknife(28 / 10, without))
    seconds = {"c": (0.7, 2.2), "a": (1.0, 2.0), "b": (1.5, 1.4), "d": (1.0, 1.1), "e": (0.4, 2.0), "f": (1.0, 3.0)}

    def ratio(of):
        own, base = np.sum([seconds[name] for name in of], axis=0)
        return base / own

    without = [ratio(seconds.keys() - {out}) for out in sorted(seconds)]
    assert numbers(speedup(prompts_of(seconds))) == pytest.approx(jackknife(ratio(seconds), without))


def test_mal_over_all_draws_is_of_the_turns_that_know_it():
    """A ratio of sums over conversations, of their turns together; decoded ones know nothing of it."""
    rows = [("a", 1.5, 6.0), ("a", 2.5, 4.0), ("b", 2.0, 5.0), ("c", math.nan, math.nan)]
    prompts = pd.DataFrame(rows, columns=["prompt_id", "expected_steps", "expected_length"])
    sample = samples.expected_mal(prompts, steps_of({"a": [2, 1], "b": [3]}, depth=7))
    assert (sample.least, sample.most) == (1, 8), "as MAL's"
    assert sample.sums.to_dict("index") == {"a": {"tokens": 10, "steps": 4}, "b": {"tokens": 5, "steps": 2}}
    assert samples.interval(sample).value == 15 / 6
    assert samples.expected_mal(prompts[prompts["prompt_id"] == "c"], steps_of({"c": [1]})) is None


@pytest.mark.parametrize("least", [1, 2])
def test_an_interval_ends_where_the_metric_does(least):
    """MAL is at least 1 and at most a whole path, a share at most 1, however far a wide interval would reach."""
    lengths = {f"p{place}": [least] * 9 + [least + 8 * (place == 0)] for place in range(6)}
    own = samples.mal(steps_of(lengths))
    free = samples.interval(replace(own, least=-math.inf))
    assert free.low < 1 or least == 2
    assert samples.interval(own).low == max(free.low, 1.0)
    assert samples.interval(own).high == free.high
    assert samples.mal(steps_of(lengths, depth=7)).most == 8
    assert samples.mal(steps_of(lengths, depth=7, own=0)).most == 7  # below a virtual root
    assert samples.interval(replace(own, most=free.high - 0.1)).high == free.high - 0.1
    share = samples.Sample(pd.DataFrame({"above": [9, 9, 9, 9, 9, 1], "below": 10}), ("above",), ("below",))
    free = samples.interval(share)
    assert free.high > 1
    assert samples.interval(replace(share, most=1.0)) == replace(free, high=1.0)


def test_conversations_in_which_nothing_was_counted_are_no_conversations():
    frame = pd.DataFrame(
        {"prompt_id": range(9), "s": [0.0] * 4 + [1.0, 2, 3, 4, 5], "t": [0.0] * 4 + [2.0, 2, 2, 2, 2]}
    )
    few = intervals.ratio_of_sums(frame, "s", "t")
    assert (few.n, few.known) == (5, False)
    sums = frame.set_index("prompt_id")
    assert samples.interval(samples.Sample(sums, ("s",), ("t",))) == few
    assert samples.compare(*[samples.Sample(sums, ("s",), ("t",))] * 2).ratio.n == 5


def test_opt_trees_script_counts_a_step_less_of_every_turn():
    """MAL is 14 / 7; of two turns of "a" and one each of "b" and "c" a step is left out: 14 / 3."""
    steps = pd.DataFrame(
        [(prompt, turn, length, length - 1) for prompt, turn, *lengths in STEPS for length in lengths],
        columns=["prompt_id", "turn", "acceptance_length", "num_accepted"],
    ).assign(depth=99)
    found = samples.mal_as_published(steps)
    assert found.sums.to_dict("index") == {
        "a": {"tokens": 9, "steps": 2},
        "b": {"tokens": 3, "steps": 0},
        "c": {"tokens": 2, "steps": 1},
    }
    assert samples.interval(found).value == pytest.approx(14 / 3)
    assert samples.interval(samples.mal(steps)).value == pytest.approx(14 / 7)
    assert math.isnan(samples.interval(samples.mal_as_published(steps[:0])).value)


STEPS = (("a", 0, 1, 2), ("a", 1, 5, 1), ("b", 0, 3), ("c", 0, 1, 1))


def test_with_prefill_both_arms_count_its_time_and_not_its_token():
    prompts = turns(
        ("a", 0, METHOD, "ok", 11, 1.0), ("a", 0, AUTOREGRESSIVE, "ok", 21, 8.0),
        ("b", 0, METHOD, "ok", 31, 1.0), ("b", 0, AUTOREGRESSIVE, "ok", 21, 4.0),
    ).assign(prefill_s=0.5)  # fmt: skip
    own, plain = (samples.tokens_per_s(prompts, arm, prefill=True) for arm in (METHOD, AUTOREGRESSIVE))
    assert samples.interval(own).value == pytest.approx((10 + 30) / 3)
    assert samples.interval(samples.speedup(prompts, prefill=True)).value == pytest.approx((13 / 40) / (3 / 40))
    assert samples.interval(samples.speedup(prompts)).value == pytest.approx((12 / 40) / (2 / 40))
    (control,) = own.controls
    assert numbers(samples.interval(control)) == numbers(samples.interval(plain))


def test_half_the_time_is_exactly_twice_as_fast():
    rows = []
    for index, seconds in enumerate([1.0, 8.0, 100.0, 0.25]):
        for turn in (0, 1):
            rows.append((f"c{index}", turn, AUTOREGRESSIVE, "ok", 65, seconds * (turn + 1)))
            rows.append((f"c{index}", turn, METHOD, "ok", 65, seconds * (turn + 1) / 2))
    assert speedup(turns(*rows)) == intervals.Interval(2.0, 2.0, 2.0, 4)


def test_speedup_is_per_decoded_token_of_each_arm():
    found = speedup(
        turns(
            ("a", 0, METHOD, "ok", 11, 1.0), ("a", 0, AUTOREGRESSIVE, "ok", 21, 8.0),
            ("b", 0, METHOD, "ok", 31, 1.0), ("b", 0, AUTOREGRESSIVE, "ok", 21, 4.0),
        )
    )  # fmt: skip
    assert found.value == pytest.approx((12 / 40) / (2 / 40))
    assert (found.low, found.high) == pytest.approx(((8 / 20) / (1 / 10), (4 / 20) / (1 / 30)))


def test_turns_that_failed_in_one_arm_leave_both():
    good = [("a", 0, METHOD, "ok", 11, 1.0), ("a", 0, AUTOREGRESSIVE, "ok", 11, 3.0)]
    good += [("b", 0, METHOD, "ok", 11, 1.0), ("b", 0, AUTOREGRESSIVE, "ok", 11, 3.0)]
    bad = [("a", 1, METHOD, "failed", 11, 1.0), ("a", 1, AUTOREGRESSIVE, "ok", 11, 500.0)]
    bad += [
        ("c", 0, METHOD, "ok", 11, 1.0),
        ("c", 0, AUTOREGRESSIVE, "failed", 11, 500.0),
        ("d", 0, METHOD, "ok", 9, 9.0),
    ]
    assert speedup(turns(*bad, *good)) == speedup(turns(*good))
    assert speedup(turns(*good)).n == 2
    assert speedup(turns(*bad)).n == 0


def test_cells_of_other_seeds_are_paired_each_with_its_own():
    def rows(scale):
        return [("a", 0, METHOD, "ok", 11, scale), ("a", 0, AUTOREGRESSIVE, "ok", 11, 2 * scale)]

    both = pd.concat([turns(*rows(1.0)), turns(*rows(5.0)).assign(run_id="s")])
    assert speedup(both).value == 2


def test_a_turn_that_is_there_twice_is_refused():
    pair = [("a", 0, METHOD, "ok", 11, 1.0), ("a", 0, AUTOREGRESSIVE, "ok", 11, 2.0)]
    for again in pair:
        with pytest.raises(ValueError, match="duplicate"):
            samples.speedup(turns(*pair, again))


def test_one_conversation_has_a_value_and_no_interval():
    pair = turns(("a", 0, METHOD, "ok", 11, 1.0), ("a", 0, AUTOREGRESSIVE, "ok", 11, 3.0))
    for sample, value in ((samples.mal(steps_of({"a": [1, 4]})), 2.5), (samples.speedup(pair), 3.0)):
        assert numbers(samples.interval(sample)) == pytest.approx((value, math.nan, math.nan, 1), nan_ok=True)


@pytest.mark.parametrize("nothing", [pd.DataFrame(), turns(), steps_of({})], ids=["no columns", "turns", "steps"])
def test_of_no_rows_nothing_is_known(nothing):
    for metric in (samples.mal, samples.speedup, samples.tokens_per_s):
        found = samples.interval(metric(nothing))
        assert numbers(found) == pytest.approx((math.nan, math.nan, math.nan, 0), nan_ok=True)


def test_a_speedup_needs_both_arms_of_a_turn():
    prompts = prompts_of({"a": (1.0, 2.0), "b": (1.0, 3.0)})
    prompts.loc[(prompts["prompt_id"] == "b") & (prompts["arm"] == "autoregressive"), "status"] = "failed"
    assert samples.interval(samples.speedup(prompts)).value == 2.0
    assert samples.interval(samples.tokens_per_s(prompts)).value == 10.0


def test_a_mean_over_conversations_leaves_out_what_is_missing():
    found = samples.interval(samples.mean(pd.Series({"a": 1.0, "b": 3.0, "c": math.nan})))
    assert (found.value, found.n) == (2.0, 2)


def test_a_sample_of_some_conversations():
    steps = steps_of({"a": [2, 4], "b": [3, 1], "c": [5, 5]})
    found = samples.interval(samples.mal(steps).of(pd.Index(["a", "c"])))
    assert (found.value, found.n) == (4.0, 2)


def test_the_typical_resolution_of_several_metrics_is_the_median_over_their_pairs():
    rng = np.random.default_rng(0)
    times = [dict(zip("abcdefg", map(tuple, rng.uniform(0.6, 2.4, (7, 2))), strict=True)) for _ in range(2)]
    every = [samples.tokens_per_s(prompts_of(one), arm) for one in times for arm in (METHOD, AUTOREGRESSIVE)]
    pairs = [samples.resolution(samples.paired_ratio(*pair)) for pair in itertools.combinations(every, 2)]
    assert samples.typical_resolution(every) == pytest.approx(np.median(pairs), rel=1e-12)
    assert max(pairs) > 0.5
    nothing = samples.tokens_per_s(pd.DataFrame(), AUTOREGRESSIVE)
    assert samples.typical_resolution([nothing, *every, nothing]) == samples.typical_resolution(every)
    fewer, few = every[0].of(pd.Index([*"abcdef"])), every[1].of(pd.Index([*"abcde"]))
    pairs += [samples.resolution(samples.paired_ratio(fewer, one)) for one in every]
    assert samples.typical_resolution([fewer, *every, few]) == pytest.approx(np.median(pairs), rel=1e-12)


def test_conversations_that_some_methods_lost_make_a_noisy_block_no_quieter():
    """Each of three lost others, so that five are of all, and six or more of each two."""
    rng = np.random.default_rng(1)
    seconds = [dict(zip("abcdefgh", map(tuple, rng.uniform(0.3, 3.0, (8, 2))), strict=True)) for _ in range(3)]
    lost = [
        {name: one for name, one in every.items() if name != out} for every, out in zip(seconds, "abc", strict=True)
    ]
    noisy, torn = ([samples.speedup(prompts_of(one)) for one in some] for some in (seconds, lost))
    assert len(set.intersection(*(set(one.sums.index) for one in torn))) == 5
    assert samples.too_busy(noisy)
    assert samples.too_busy(torn)
    still = [dict.fromkeys(one, (1.0, 1.0)) | {"d": (1.01, 1.0)} for one in lost]
    assert not samples.too_busy([samples.speedup(prompts_of(one)) for one in still])


def test_without_pairs_of_enough_conversations_there_is_no_typical_resolution():
    rng = np.random.default_rng(0)
    times = dict(zip("abcdefg", map(tuple, rng.uniform(0.6, 2.4, (7, 2))), strict=True))
    every = [samples.tokens_per_s(prompts_of(times), arm) for arm in (METHOD, AUTOREGRESSIVE)]
    nothing = samples.tokens_per_s(pd.DataFrame(), AUTOREGRESSIVE)
    for none in ([], every[:1], [nothing, every[0]], [one.of(pd.Index([*"abcde"])) for one in every]):
        assert samples.typical_resolution(none) == 0
