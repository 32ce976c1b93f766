"""Two runs in pairs, and means over several decodings, against plain numpy."""

import math

import numpy as np
import pandas as pd
import pytest
from sampled import jackknife, numbers, prompts_of, steps_of
from scipy import stats

from specdec_trees.statistics import intervals, samples


def test_a_paired_ratio_leaves_out_conversations_of_both_together():
    rng = np.random.default_rng(0)
    one, other = ({name: [*rng.integers(1, 7, rng.integers(1, 4))] for name in "abcdefg"} for _ in range(2))

    def ratio(names):
        mean, theirs = (np.mean([x for name in names for x in run[name]]) for run in (one, other))
        return mean / theirs

    found = samples.paired_ratio(*(samples.mal(steps_of(run)) for run in (one, other)))
    without = [ratio(set("abcdefg") - {out}) for out in "abcdefg"]
    assert numbers(found) == pytest.approx(jackknife(ratio("abcdefg"), without, 1.0))


def test_only_shared_conversations_count():
    one, other = steps_of({"a": [4], "b": [2], "z": [9]}), steps_of({"a": [2], "b": [1], "y": [7]})
    found = samples.paired_ratio(samples.mal(one), samples.mal(other))
    assert (found.value, found.low, found.high, found.n) == (2.0, 2.0, 2.0, 2)
    nothing = samples.paired_ratio(samples.mal(one), samples.mal(steps_of({"x": [1]})))
    assert math.isnan(nothing.value)
    assert nothing.n == 0


@pytest.mark.parametrize("arm", ["method", "autoregressive"])
def test_a_stall_in_a_single_turn_of_one_run_takes_the_conversation_out_of_both(arm):
    """All turns of the second run take twice the time, and turns differ: its ratio is 1/2, whatever was disturbed."""
    turns = [(name, turn, place + 3.0 * turn + 1) for place, name in enumerate("abcdefg") for turn in (0, 1)]
    runs = []
    for slower, marked in ((1, {("b", 1)}), (2, {("d", 0), ("e", 0), ("e", 1)})):
        rows = [
            {"run_id": str(slower), "prompt_id": name, "turn": turn, "arm": each, "status": "ok"}
            | {"num_decoded_tokens": 5, "contaminated": each == arm and (name, turn) in marked}
            | {"decode_s": seconds * (slower if each == "method" else 3) * (100 if (name, turn) in marked else 1)}
            for name, turn, seconds in turns
            for each in ("method", "autoregressive")
        ]
        runs.append(pd.DataFrame(rows).assign(prefill_s=0.0))
    for metric in (samples.speedup, samples.tokens_per_s):
        ratio = samples.paired_ratio(*map(metric, reversed(runs)))
        assert numbers(ratio) == pytest.approx((0.5, 0.5, 0.5, 4))


def test_a_mean_of_two_metrics_is_that_of_their_ratios_over_the_conversations_of_both():
    rng = np.random.default_rng(1)
    greedy, sampled = ({name: tuple(rng.uniform(1, 4, 2)) for name in names} for names in ("zabcdef", "fedcbay"))

    def mean(names):
        totals = (np.sum([run[name] for name in names], axis=0) for run in (greedy, sampled))
        return np.mean([base / own for own, base in totals])

    without = [mean(set("abcdef") - {out}) for out in "abcdef"]
    both = samples.mean_of(*(samples.speedup(prompts_of(run)) for run in (greedy, sampled)))
    assert numbers(samples.interval(both)) == pytest.approx(jackknife(mean("abcdef"), without))
    other = samples.mean_of(*(samples.mean(pd.Series(dict.fromkeys("abcdef", value))) for value in (1.0, 3.0)))
    halves = jackknife(mean("abcdef") / 2, [one / 2 for one in without], 1.0)
    assert numbers(samples.paired_ratio(both, other)) == pytest.approx(halves)


def test_ahead_is_antisymmetric_and_holds_with_zeros():
    above, zeros, once = (
        samples.mean(pd.Series(values, index=[*"abcdef"]))
        for values in ([3.0, 2.0, 4.0] * 2, [0.0] * 6, [3.0] + [0.0] * 5)
    )
    assert (samples.ahead(above, zeros), samples.ahead(zeros, above)) == (1, -1)
    assert (samples.ahead(once, zeros), samples.ahead(zeros, once)) == (0, 0)
    assert samples.ahead(zeros, zeros) == 0
    assert samples.ahead(above, samples.mean(pd.Series({"a": 3.0}))) is None


def test_ahead_is_the_sign_of_the_ratios_logarithm_over_pairs():
    rng = np.random.default_rng(1)
    signs = set()
    for shift in (0.0, 0.4, 0.8, 1.6, 3.2):
        first, other = rng.integers(1, 9, 7) + shift * 3, rng.integers(1, 9, 7).astype(float)
        both = [samples.mean(pd.Series(values, index=list("abcdefg"))) for values in (first, other)]
        moved = np.log((first.sum() - first) / (other.sum() - other))  # without each
        reach = stats.t.ppf(0.975, 6) * (8 / 7) * 6 * stats.sem(moved)
        low, high = np.log(first.sum() / other.sum()) + np.array([-reach, reach])
        signs.add(samples.ahead(*both))
        assert samples.ahead(*both) == int(low > 0) - int(high < 0) == -samples.ahead(*both[::-1])
    assert signs == {0, 1}


@pytest.mark.parametrize("lead", [1.02, 1.1, 3.0])
def test_a_lead_that_all_conversations_share_is_one_however_much_they_differ(lead):
    """Of sums, of a quotient, of either sign; where one may be 0, the difference decides."""
    sums = np.array([1.0, 2, 3, 8, 5, 40])
    for under in (np.ones(6), np.array([3.0, 1, 2, 5, 4, 6])):
        first, other = (
            samples.Sample(pd.DataFrame({"over": over, "under": under}, index=list("abcdef")), ("over",), ("under",))
            for over in (sums * lead, sums)
        )
        assert (samples.ahead(first, other), samples.ahead(other, first)) == (1, -1)
        assert samples.compare(first, other).apart.value == pytest.approx(math.log(lead))
    below = [samples.mean(pd.Series(-values, index=list("abcdef"))) for values in (sums * lead, sums)]
    assert samples.compare(*below).apart == samples.compare(*below).difference
    assert samples.compare(*below).apart.value < 0


def test_times_are_tied_within_what_the_autoregressive_arms_differ_by():
    """The second run is 20% slower in both arms, but for the first prompt: its speedups are 25% higher there."""
    one = prompts_of(dict.fromkeys("abcdef", (1.0, 2.0)))
    drifted = prompts_of({"a": (1.0, 2.5)} | dict.fromkeys("bcdef", (1.2, 2.4)))
    steady = prompts_of(dict.fromkeys("abcdef", (0.8, 2.0)))
    assert samples.ahead(samples.speedup(steady), samples.speedup(one)) == 1
    assert samples.ahead(samples.tokens_per_s(steady), samples.tokens_per_s(one)) == 1
    for metric in (samples.speedup, samples.tokens_per_s):
        assert samples.ahead(metric(drifted), metric(one)) == samples.ahead(metric(one), metric(drifted)) == 0


def test_means_of_times_are_tied_within_what_the_arms_of_either_part_differ_by():
    """A ninth is told apart, unless the machine was half or twice as fast in one of the two runs, or in each."""
    base, faster, slowed, sped = (
        samples.speedup(prompts_of(dict.fromkeys("abcdef", seconds)))
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


def test_a_mean_over_datasets_pairs_each_with_its_own_and_leaves_out_one_of_each():
    """The two datasets may call their prompts by the same names; each has a variance of its own."""
    rng = np.random.default_rng(2)
    one, other = ([{name: tuple(rng.uniform(1, 4, 2)) for name in names} for names in ("abcd", "abc")] for _ in (0, 1))
    every = [(place, name) for place, names in enumerate(("abcd", "abc")) for name in names]

    def mean(run, keys):
        totals = (np.sum([run[at][name] for at, name in keys if at == place], axis=0) for place in (0, 1))
        return np.mean([base / own for own, base in totals])

    def ratio(keys):
        return mean(one, keys) / mean(other, keys)

    found = samples.paired_ratio(
        *(samples.mean_over(*(samples.speedup(prompts_of(part)) for part in run)) for run in (one, other))
    )
    variances = []
    for place, count in ((0, 4), (1, 3)):
        moved = [math.log(ratio([key for key in every if key != out])) for out in every if out[0] == place]
        variances.append((count - 1) ** 2 / count * np.var(moved, ddof=1))
    freedom = sum(variances) ** 2 / (variances[0] ** 2 / 3 + variances[1] ** 2 / 2)
    reach = stats.t.ppf(0.975, freedom) * (1 + 1 / (freedom + 1)) * math.sqrt(sum(variances))
    value = ratio(every)
    assert numbers(found) == pytest.approx((value, value * math.exp(-reach), value * math.exp(reach), 7))


@pytest.mark.parametrize("count", [3, 12])
def test_a_mean_over_copies_of_one_dataset_is_as_sure_as_their_number_says(count):
    """Equal variances of k strata: the error shrinks with the root of k, the degrees of freedom are k times as many."""
    rng = np.random.default_rng(3)
    one = samples.speedup(prompts_of({name: tuple(rng.uniform(1, 1.01, 2)) for name in "abcdefgh"}))
    alone, many = (samples.interval(found) for found in (one, samples.mean_over(*[one] * count)))
    assert (many.value, many.n) == (pytest.approx(alone.value), 8 * count)
    reach = [
        math.log(found.high / found.value) / stats.t.ppf(0.975, freedom) / (1 + 5 / (freedom + 1))
        for found, freedom in ((alone, 7), (many, 7 * count))
    ]
    assert reach[0] / reach[1] == pytest.approx(math.sqrt(count), rel=1e-3)


def test_a_dataset_of_a_single_conversation_leaves_the_mean_without_an_interval():
    parts = [samples.speedup(prompts_of(dict.fromkeys(names, (1.0, 2.0)))) for names in ("abcdef", "a")]
    found = samples.interval(samples.mean_over(*parts))
    assert (found.value, found.n, found.known) == (2.0, 7, False)


@pytest.mark.parametrize("n", [2, 5, 6])
def test_fewer_than_six_conversations_tell_nothing_apart(n):
    one, other = (samples.mean(pd.Series(np.full(n, value))) for value in (3.0, 2.0))
    found = samples.compare(one, other)
    assert found.known == (n >= 6)
    assert found.ahead == (1 if n >= 6 else None)
    assert n >= 6 or found.needed == 6
    assert samples.typical_resolution([one, other]) == pytest.approx(0.5 if n >= 6 else 0.0)
