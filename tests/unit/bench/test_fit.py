"""The chi-square test of counts: what it calls different, summed over all counts that may come."""

import numpy as np
import pytest
from scipy import special

from specdec_trees.statistics.fit import FEWEST, fit


def size(law, total, refused):
    """The exact probability that so many draws from a law of three are called different."""
    first, second = np.meshgrid(*2 * [np.arange(total + 1)], indexing="ij")
    counts = [first, second, total - first - second]
    possible = counts[2] >= 0
    counts = [one[possible] for one in counts]
    log = special.gammaln(total + 1) - sum(special.gammaln(one + 1) for one in counts)
    probs = np.exp(log + sum(one * np.log(p) for one, p in zip(counts, law, strict=True)))
    likely = probs > refused * 1e-12
    values = [fit(dict(enumerate(law)), dict(enumerate(map(int, one)))).p
              for one in zip(*(one[likely] for one in counts), strict=True)]  # fmt: skip
    return probs[likely][np.array(values) < refused].sum()


@pytest.mark.parametrize("law", [(0.5, 0.3, 0.2), (0.6, 0.35, 0.05), (0.9, 0.05, 0.05)])
@pytest.mark.parametrize("refused", [1e-3, 1e-6, 1e-8])
def test_a_law_is_refused_about_as_often_as_p_says(law, refused):
    assert size(law, 100, refused) < 2 * refused


def test_the_statistic_is_twice_the_log_of_the_likelihood_ratio():
    """Two bins of 100: 60 against 50 expected."""
    ratio = 2 * (60 * np.log(60 / 50) + 40 * np.log(40 / 50))
    fits = fit({"a": 0.5, "b": 0.5}, {"a": 60, "b": 40})
    assert fits.p == pytest.approx(special.chdtrc(1, ratio))
    assert (fits.bins, fits.expected) == (2, 50)


def test_rare_outcomes_share_a_bin():
    law = {0: 0.9, 1: 0.04, 2: 0.03, 3: 0.03}
    fits = fit(law, {0: 90, 1: 10})
    assert fits.bins == 2
    assert min(0.9, 0.1) * 100 >= FEWEST
    assert fits.p == pytest.approx(1)


def test_what_has_no_probability_is_impossible():
    assert fit({0: 1.0, 1: 0.0}, {0: 99, 1: 1}).p == 0
    assert fit({0: 1.0}, {2: 1}).worst == 2
    assert fit({0: 1.0, 1: 0.0}, {0: 100}).p == 1
