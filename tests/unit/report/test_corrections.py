"""Corrections for many comparisons: p from an interval, Holm's rule, marks in tables, and answers to claims."""

import itertools
import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from specdec_trees.artifacts import verdict
from specdec_trees.artifacts.verdict import UNCORRECTED, Pairing, Verdict
from specdec_trees.papers.beyond.answers import LEVEL_WITH, NO_LEAD, REVERSED, SLOWER, TIE_HOLDS, answered
from specdec_trees.statistics import samples
from specdec_trees.statistics.corrections import holm, p_value
from specdec_trees.statistics.intervals import Interval
from specdec_trees.statistics.samples import Sample


def student(value: float, error: float, n: int) -> Interval:
    """Student's 95% interval on the logarithm."""
    reach = math.exp(error * stats.t.ppf(0.975, n - 1))
    return Interval(value, value / reach, value * reach, n)


@pytest.mark.parametrize(
    ("value", "error", "n", "null"),
    [(1.2, 0.1, 6, 1.0), (0.7, 0.2, 7, 1.0), (3.0, 0.3, 9, 2.5), (0.98, 0.004, 81, 1.0), (1.0, 0.1, 8, 1.0)],
)
def test_p_is_that_of_students_t_on_the_logarithm(value: float, error: float, n: int, null: float) -> None:
    expected = 2 * stats.t.sf(abs(math.log(value / null)) / error, n - 1)
    assert p_value(student(value, error, n), null) == pytest.approx(expected, rel=1e-6)


def test_p_of_a_mean_over_datasets_has_the_degrees_of_freedom_of_its_interval() -> None:
    """Satterthwaite's, which are few where one dataset has most of the variance."""
    rng = np.random.default_rng(3)
    spread = {"a": 0.5, "b": 0.02}
    lengths = {name: rng.normal(2, size, 8).clip(0.5) for name, size in spread.items()}
    parts = [Sample(pd.DataFrame({"x": own, "n": 1.0}), ("x",), ("n",)) for own in lengths.values()]
    found = samples.interval(samples.mean_over(*parts))
    means = np.array([own.mean() for own in lengths.values()])
    moved = [
        np.log((means.sum() - means[place] + (own.sum() - own) / 7) / 2) for place, own in enumerate(lengths.values())
    ]
    variances = np.array([49 / 8 * np.var(one, ddof=1) for one in moved])
    freedom = variances.sum() ** 2 / (variances**2 / 7).sum()
    error = math.sqrt(variances.sum()) * (1 + 5 / (freedom + 1))
    assert freedom < 8
    assert found.degrees == pytest.approx(freedom)
    for null in (1.5, 2.0, 3.0):
        expected = 2 * stats.t.sf(abs(math.log(found.value / null)) / error, freedom)
        assert p_value(found, null) == pytest.approx(expected, rel=1e-6)


def test_p_is_at_most_5_percent_exactly_where_the_interval_leaves_the_null_out() -> None:
    rng = np.random.default_rng(1)
    for n, null in itertools.product((6, 7, 24, 80), (0.8, 1.0, 2.1)):
        value = float(rng.uniform(0.5, 2.5))
        low, high = value * rng.uniform(0.6, 0.999), value * rng.uniform(1.001, 1.5)  # not symmetric
        assert (p_value(Interval(value, low, high, n), null) <= 0.05) == (not low <= null <= high)


def test_without_an_interval_p_decides_nothing() -> None:
    assert p_value(Interval(2.0, math.nan, math.nan, 1)) == 1
    assert p_value(Interval(2.0, 1.9, 2.1, 5)) == 1, "a range"
    assert p_value(Interval(2.0, -1.0, 5.0, 8)) == 1
    assert p_value(Interval(math.nan, math.nan, math.nan, 0)) == 1
    assert p_value(Interval(1.0, 1.0, 1.0, 8)) == 1
    assert p_value(Interval(1.1, 1.1, 1.1, 8)) == 0


def test_holm_multiplies_by_what_is_left_and_never_falls() -> None:
    assert holm([]) == []
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.5, 0.9]) == [1.0, 1.0]


def test_holm_errs_in_one_family_of_twenty_where_nothing_is_true() -> None:
    families = np.random.default_rng(2).uniform(size=(2000, 99))
    assert np.mean([min(holm(list(family))) <= 0.05 for family in families]) == pytest.approx(0.05, abs=0.015)
    assert np.mean([min(family) <= 0.05 for family in families]) > 0.98  # what 95% each comes to


def test_a_tables_verdicts_are_marked_that_do_not_survive_for_their_number() -> None:
    lines = [{"verdict MAL": Verdict("order holds", 0.03), "verdict speedup": "not run", "mal": "2.10"}]
    verdict.correct(lines)
    assert lines[0]["verdict MAL"] == "order holds"  # the only one
    lines += [
        {
            "verdict MAL": Verdict("differs", 0.001),
            "verdict speedup": Verdict(verdict.not_resolved(8, "about 20 needed")),
        },
        {"verdict MAL": Verdict("matches", 0.02), "verdict speedup": verdict.not_comparable("other tree")},
    ]
    verdict.correct(lines)
    assert [line["verdict MAL"] for line in lines] == [
        f"order holds {UNCORRECTED}",
        "differs",
        f"matches {UNCORRECTED}",
    ]
    assert lines[1]["verdict speedup"].startswith("not resolved (n = 8")
    assert lines[2]["verdict speedup"] == "not comparable: other tree"
    assert verdict.word(lines[0]["verdict MAL"]) == "order holds"


def test_a_verdict_has_the_p_of_its_weakest_pair_and_of_several_contradictions_the_strongest_for_their_number() -> None:
    rows = {name: Pairing(student(value, 0.02, 8), value) for name, value in {"a": 3.0, "b": 2.0, "c": 1.9}.items()}
    found = verdict.by_order("a", rows, otherwise="other models")
    assert isinstance(found, Verdict)
    weakest = max(verdict.standing(rows["a"], rows[other]).p for other in "bc")
    assert (found, found.p) == ("order holds", weakest)
    wrong = rows | {"a": Pairing(student(1.0, 0.02, 8), 3.0)}
    found = verdict.by_order("a", wrong, otherwise="other models")
    assert isinstance(found, Verdict)
    strongest = min(verdict.standing(wrong["a"], wrong[other]).p for other in "bc")
    assert (found, found.p) == ("differs", min(1.0, 2 * strongest))


def paired(values: list[float], published: float) -> Pairing:
    sums = pd.DataFrame({"above": values, "below": 1.0}, index=[f"q{place}" for place in range(len(values))])
    mean = float(np.mean(values))
    error = float(np.std(values, ddof=1)) / math.sqrt(len(values)) / mean
    return Pairing(student(mean, error, len(values)), published, Sample(sums, ("above",), ("below",)))


STEADY = [1.0, 1.02, 0.98, 1.01, 0.99, 1.0, 1.03, 0.97]


def times(factor: float, published: float) -> Pairing:
    """Not all conversations by the same factor, so that there is an interval."""
    return paired([factor * one * (1 + 0.004 * (-1) ** place) for place, one in enumerate(STEADY)], published)


@pytest.mark.parametrize(
    ("first", "other", "words"),
    [
        (1.5, 1.2, "order holds"),
        (0.8, 0.5, f"order holds, {SLOWER}"),
        (1.0, 0.5, f"order holds, {LEVEL_WITH}"),
        (1.5, 1.9, REVERSED),
        (0.5, 0.9, REVERSED),
        (1.5, 1.5, NO_LEAD),
    ],
)
def test_a_claim_is_answered_by_its_own_order(first: float, other: float, words: str) -> None:
    found = answered(times(first, 2.0), times(other, 1.6), timed=True)
    assert found.words == words
    assert found.p < 0.05
    untimed = answered(times(first, 2.0), times(other, 1.6), timed=False)
    assert untimed.words == words.partition(",")[0]


@pytest.mark.parametrize(
    ("other", "timed", "words"),
    [
        (1.5, False, TIE_HOLDS),
        (1.5, True, TIE_HOLDS),
        (1.2, False, "order holds"),
        (1.9, False, REVERSED),
    ],
)
def test_a_tie_of_the_paper_is_kept_by_a_tie_and_by_a_lead(other: float, timed: bool, words: str) -> None:
    assert answered(times(1.5, 1.61), times(other, 1.6), timed=timed).words == words


def test_few_or_scattered_conversations_answer_nothing() -> None:
    few = answered(paired(STEADY[:5], 2.0), paired([0.5 * one for one in STEADY[:5]], 1.6), timed=False)
    wide = answered(paired([0.5, 2.0, 0.7, 3.0, 0.4, 1.9, 0.6, 2.5], 2.0), times(1.3, 1.6), timed=False)
    assert (few.words, few.p) == (wide.words, wide.p) == ("not resolved", 1.0)


@pytest.mark.parametrize("common", [0, 1, 5, 6])
def test_rows_of_fewer_than_six_common_conversations_are_not_told_apart(common: int) -> None:
    """However many each has; without any in common, as of pages that were printed, the two intervals decide."""
    first = paired([3 * one for one in STEADY], 2.0)
    other = paired(STEADY, 1.6)
    assert other.sample is not None
    moved = other.sample.sums.rename(lambda name: name if int(name[1:]) < common else f"other {name}")
    stand = verdict.standing(first, Pairing(other.ours, other.published, Sample(moved, ("above",), ("below",))))
    assert stand.agrees == (None if 0 < common < 6 else True)
