"""Intervals: an own loop that leaves out one conversation at a time, exact cases, few conversations, and coverage."""

import math
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from specdec_trees.results import store
from specdec_trees.results.rows import AUTOREGRESSIVE
from specdec_trees.statistics import coverage, intervals, samples
from specdec_trees.statistics.intervals import Interval

ROOT = Path(__file__).parents[3]


def conversations(rng, count=40):
    """Steps of conversations whose mean acceptance length differs; the pooled mean over many of them is 2.5."""
    steps = rng.integers(5, 40, size=count)
    means = rng.uniform(1.5, 3.5, size=count)
    names = np.repeat([f"c{index:02}" for index in range(count)], steps)
    lengths = np.repeat(means, steps) + rng.normal(0, 0.5, size=steps.sum())
    return pd.DataFrame({"prompt_id": names, "acceptance_length": lengths, "row": np.arange(steps.sum())})


def by_hand(sums, statistic, there, back, c):
    """The rule in a loop: standard error from leaving out each row, Student's t, 1 + c / n."""
    n = len(sums)
    moved = [there(statistic(*np.delete(sums, place, axis=0).sum(axis=0))) for place in range(n)]
    error = math.sqrt((n - 1) / n * sum((one - sum(moved) / n) ** 2 for one in moved))
    reach = stats.t.ppf(0.975, n - 1) * (1 + c / n) * error
    value = statistic(*sums.sum(axis=0))
    return value, back(there(value) - reach), back(there(value) + reach)


LOGIT = (lambda x: math.log(x / (1 - x)), lambda x: 1 / (1 + math.exp(-x)))
STATISTICS = {
    "ratio": lambda a, b, c, d: a / b,
    "product": lambda a, b, c, d: (a * b) / (c * d),
    "mean of quotients": lambda a, b, c, d: (a / b + c / d) / 2,
}


@pytest.mark.parametrize(("name", "n", "stretch"), [*product(STATISTICS, (6, 13), (5.0, 1.0))])
def test_the_closed_form_is_what_a_loop_over_conversations_says(name, n, stretch):
    sums = np.random.default_rng(n).uniform(0.5, 9, (n, 4))
    statistic = STATISTICS[name]
    found = intervals.of_sums(sums, lambda total: statistic(*total), stretch=stretch)
    expected = by_hand(sums, statistic, math.log, math.exp, stretch)
    assert (found.value, found.low, found.high) == pytest.approx(expected, rel=1e-9)
    plain = intervals.of_sums(sums, lambda total: statistic(*total), stretch=stretch, scale="plain")
    assert (plain.low, plain.high) == pytest.approx(by_hand(sums, statistic, float, float, stretch)[1:], rel=1e-9)


def test_a_share_stays_between_0_and_1():
    rng = np.random.default_rng(2)
    frame = pd.DataFrame({"prompt_id": range(8), "part": rng.uniform(8.5, 10, 8), "whole": 10.0})
    found = intervals.ratio_of_sums(frame, "part", "whole", scale="logit")
    expected = by_hand(frame[["part", "whole"]].to_numpy(), lambda a, b: a / b, *LOGIT, 5.0)
    assert (found.value, found.low, found.high) == pytest.approx(expected, rel=1e-9)
    assert 0 < found.low < found.high < 1
    for part in (0.0, 10.0):  # no place on the scale
        edge = intervals.ratio_of_sums(frame.assign(part=part), "part", "whole", scale="logit")
        assert (edge.low, edge.high) == (edge.value, edge.value) == (part / 10, part / 10)
    once = frame.assign(part=[1.0] + [0.0] * 7)
    for scale in ("log", "logit"):
        found = intervals.ratio_of_sums(once, "part", "whole", scale=scale)
        assert found.low == 0 < found.value < found.high < 1


def test_a_mean_of_differences_keeps_its_signs():
    frame = pd.DataFrame({"prompt_id": range(7), "gain": [0.5, -0.4, 0.3, 0.1, -0.2, 0.4, 0.1]})
    found = intervals.ratio_of_sums(frame, "gain")
    assert found.low < 0 < found.value < found.high


def test_intervals_are_the_same_in_any_order_of_rows():
    steps = conversations(np.random.default_rng(4))
    found, mixed = (
        intervals.ratio_of_sums(rows, "acceptance_length") for rows in (steps, steps.sample(frac=1, random_state=0))
    )
    assert (found.low, found.high) == pytest.approx((mixed.low, mixed.high), rel=1e-12)
    assert found == intervals.ratio_of_sums(steps, "acceptance_length")


def test_coverage_needs_whole_conversations():
    covered = {"prompt_id": 0, "row": 0}
    rng = np.random.default_rng(5)
    for _ in range(150):
        steps = conversations(rng, 25)
        for by in covered:
            found = intervals.ratio_of_sums(steps, "acceptance_length", by=by)
            covered[by] += found.low <= 2.5 <= found.high
    assert 0.9 <= covered["prompt_id"] / 150 <= 1.0
    assert covered["row"] / 150 < 0.7


@pytest.mark.parametrize("n", range(1, 8))
def test_below_six_conversations_there_is_a_range_and_no_interval(n):
    values = [3.0, 1.0, 2.0, 4.0, 2.5, 2.0, 3.5][:n]
    found = intervals.ratio_of_sums(pd.DataFrame({"prompt_id": range(n), "value": values}), "value")
    assert (found.n, found.value) == (n, pytest.approx(np.mean(values)))
    assert found.known == (n >= 6)
    if n == 1:
        assert math.isnan(found.low + found.high)
    elif n < 6:
        assert (found.low, found.high) == (min(values), max(values))
    assert all(map(math.isnan, found.ends)) == (n < 6)
    assert (intervals.needed(found, 0.0, 9.0) == 6) == (n <= 6)


def test_equal_conversations_have_no_width():
    for own in (0.1, 0.3, 7.0):
        found = intervals.of_sums(np.array([[own, 0.7]] * 9), lambda total: total[0] / total[1])
        assert found.low == found.high == found.value


def test_a_function_of_totals_is_one_of_sums():
    rng = np.random.default_rng(3)
    frame = pd.DataFrame({"prompt_id": np.arange(60) % 12, "a": rng.uniform(1, 2, 60), "b": rng.uniform(1, 2, 60)})
    found = intervals.of_totals(frame, lambda total: total["a"] / total["b"])
    ratio = intervals.ratio_of_sums(frame, "a", "b")
    assert (found.value, found.low, found.high, found.n) == (ratio.value, ratio.low, ratio.high, 12)


def test_a_median_lies_between_two_of_its_values_by_the_sign_test():
    values = np.random.default_rng(1).permutation(np.arange(20.0))
    assert intervals.of_median(values) == Interval(9.5, 5.0, 14.0, 20)
    assert stats.binomtest(5, 20).pvalue < 0.05 < stats.binomtest(6, 20).pvalue
    assert intervals.of_median(np.arange(6.0)) == Interval(2.5, 0.0, 5.0, 6)
    assert not intervals.of_median(np.arange(5.0)).known


@pytest.mark.parametrize(
    "nothing",
    [pd.DataFrame(), pd.DataFrame(columns=["prompt_id", "decode_s", "num_new_tokens"])],
    ids=["no columns", "no rows"],
)
def test_nothing_gives_nan(nothing):
    found = [
        intervals.of_totals(nothing, lambda total: total["decode_s"]),
        intervals.ratio_of_sums(nothing, "decode_s", "num_new_tokens"),
    ]
    assert all(math.isnan(number) for each in found for number in (each.value, each.low, each.high))
    assert {each.n for each in found} == {0}


def test_what_hangs_on_a_single_conversation_has_no_interval():
    frame = pd.DataFrame({"prompt_id": range(8), "top": 1.0, "below": [0.0] * 7 + [2.0]})
    found = intervals.ratio_of_sums(frame, "top", "below")
    assert (found.value, found.known) == (4.0, False)
    assert math.isnan(intervals.ratio_of_sums(frame.assign(below=0.0), "top", "below").value)
    without = intervals.ratio_of_sums(
        frame.assign(top=[0.0] * 3 + [1.0] * 5, below=[0.0] * 3 + [2.0] * 5), "top", "below"
    )
    assert (without.low, without.high) == (0.5, 0.5)


@pytest.mark.parametrize("scale", ["log", "logit", "plain"])
def test_what_is_not_a_number_has_no_interval(scale):
    sums = np.random.default_rng(5).uniform(1, 2, (8, 2)) * [0.1, 1.0]
    sums[3, 0] = math.nan
    found = intervals.of_sums(sums, lambda total: total[0] / total[1], scale=scale)
    assert math.isnan(found.value)
    assert not found.known


def test_conversations_without_a_token_count_as_they_are():
    frame = pd.DataFrame(
        {"prompt_id": range(8), "tokens": [0.0, 0.0, 5, 6, 4, 5, 6, 4], "steps": [1.0, 1, 2, 2, 2, 2, 2, 2]}
    )
    found = intervals.ratio_of_sums(frame, "tokens", "steps")
    expected = by_hand(frame[["tokens", "steps"]].to_numpy(), lambda a, b: a / b, math.log, math.exp, 5.0)
    assert (found.value, found.low, found.high) == pytest.approx(expected, rel=1e-9)
    none = intervals.ratio_of_sums(frame.assign(tokens=0.0), "tokens", "steps")
    assert (none.value, none.low, none.high) == (0.0, 0.0, 0.0)


def test_one_of_several_intervals_at_an_end_of_the_scale_leaves_the_others_as_they_are():
    without = np.array([[2.0, 2.5, 3, 2, 2, 3], [0.0, 1, 1, 1, 1, 1]])
    both = intervals.bounds(np.array([2.4, 0.9]), without, intervals.ALONE)
    alone = intervals.bounds(np.array(2.4), without[0], intervals.ALONE)
    assert [end[0] for end in both[:2]] == pytest.approx([float(end) for end in alone[:2]])
    assert both[0][1] == 0


@pytest.fixture(scope="module")
def every():
    return coverage.populations(ROOT / coverage.CELLS)


@pytest.fixture(scope="module")
def shares(every):
    """A short form of the table that the documentation has."""
    return coverage.table(every, 500, (6, 8, 24))["covered"]


@pytest.mark.parametrize("metric", ["MAL", "tokens/s", "speedup", "acceptance rate, of nodes"])
def test_the_intervals_that_are_counted_are_those_of_reports(every, metric):
    results = store.load(ROOT / "results" / "reference", "bench/mt_bench")
    run_id = results.runs.loc[results.runs["method"] != AUTOREGRESSIVE, "run_id"].iloc[0]
    steps, prompts = (frame[frame["run_id"] == run_id] for frame in (results.steps, results.prompts))
    sample, population = coverage.of_run(steps, prompts)[metric], next(one for one in every if one.metric == metric)
    drawn = np.random.default_rng(1).integers(80, size=(3, 9))
    found = [samples.interval(replace(sample, sums=sample.sums.iloc[names].reset_index(drop=True))) for names in drawn]
    low, high = population.jackknife(population.sums[drawn])
    assert [one.low for one in found] == pytest.approx(low.tolist(), rel=1e-9)
    assert [one.high for one in found] == pytest.approx(high.tolist(), rel=1e-9)


@pytest.mark.long
def test_the_documentation_has_the_table_that_the_command_prints(every):
    printed = "\n".join(coverage.to_markdown(coverage.table(every, coverage.DRAWS)))
    assert printed in (ROOT / "docs" / "how_to_read.md").read_text()


def test_intervals_hold_the_value_as_often_as_they_say(shares):
    """93 to 97%, give or take three standard errors of 500 draws of one cell; E(A) has more."""
    error = 3 * math.sqrt(0.95 * 0.05 / 500)
    found = shares.xs(coverage.JACKKNIFE, level="rule")
    assert found.to_numpy().min() > 0.93 - error
    assert found.drop("E(A)").to_numpy().max() < 0.97 + error


def test_the_bootstrap_before_did_not(shares):
    before = shares.xs(coverage.BOOTSTRAP, level="rule")
    assert before[[6, 8]].to_numpy().max() < 0.93 - 3 * math.sqrt(0.95 * 0.05 / 500)
