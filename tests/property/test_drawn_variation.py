"""The estimate of a lossy rule's total variation against the exact one, over every draw of drafter and rule."""

from itertools import permutations

import pytest
import torch
from doubles import BigramLM
from test_target_init_distribution import T1, Played, table, unequal

from specdec_core import Sampling, generate
from specdec_core.drafters import TargetInit
from specdec_core.verifiers import IndependentLongest, LongestSubtree
from specdec_trees.measure import variation
from specdec_trees.measure.variation import DrawnVariation

RULES = [IndependentLongest(), LongestSubtree()]
COOL = Sampling(0.7, top_p=0.9)


def estimated(target, draft, rule, widths, sampling=T1):
    """As the benchmark has it: many first steps of one prompt."""
    drafter, rng = TargetInit(draft=BigramLM(draft), widths=widths), torch.Generator().manual_seed(0)
    drawn, model = DrawnVariation(rule.first_token_probs, sampling), BigramLM(target)
    while not drawn.done:
        generate(model, drafter, rule, [0], max_new_tokens=1, sampling=sampling, allow_lossy=True, rng=rng, watch=drawn)
    return drawn.row("run", "prompt", 0)


def distance(probs, target, sampling):
    assert float(probs.sum()) == pytest.approx(1, abs=1e-6)
    return float((probs - sampling.probs(target[0]).double()).abs().sum() / 2)


def of_chains(target, draft, width, sampling):
    """The distribution where one token is drafted below each first token: the first whose token is accepted wins.

    Where none is, the first of all does. A token drawn from q is accepted with probability sum(min(p, q)), under both
    rules.
    """
    p, q = sampling.probs(target).double(), draft.softmax(-1).double()
    accepted, probs = torch.minimum(p, q).sum(-1), torch.zeros(len(p), dtype=torch.float64)
    for order in permutations(range(len(p)), width):
        chance, left, open_ = 1.0, 1.0, 1.0
        for token in order:
            chance *= float(p[0, token]) / left if left > 1e-12 else 0.0
            left -= float(p[0, token])
        for token in order:
            probs[token] += chance * open_ * float(accepted[token])
            open_ *= 1 - float(accepted[token])
        probs[order[0]] += chance * open_
    return probs


@pytest.mark.long
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(("width", "sampling"), [(2, T1), (3, T1), (2, COOL)])
def test_chains_below_the_first_tokens(rule, width, sampling, monkeypatch):
    monkeypatch.setattr(variation, "TREES", 400)
    target, draft = table(1, 5), table(2, 5)
    exact = distance(of_chains(target, draft, width, sampling), target, sampling)
    row = estimated(target, draft, rule, (width, 1), sampling)
    assert row.num_trees == 400
    # half the L1 norm of the mean's error has about the noise as its mean, and bounds the estimate's
    assert abs(row.total_variation - exact) < 2 * row.noise
    assert exact > 2 * row.noise > 0


def test_two_tokens_of_which_one_goes_on_better(monkeypatch):
    """Token 0 wins whenever it is among the first two of three: 2/3 in place of 1/3."""
    monkeypatch.setattr(variation, "TREES", 400)
    for rule in RULES:
        assert estimated(*unequal(), rule, (2, 1)).total_variation == pytest.approx(1 / 3, abs=0.04)


def test_a_wider_tree_against_every_draw_played(monkeypatch):
    target, draft, rule = table(1, 3), table(2, 3), LongestSubtree()
    with monkeypatch.context() as patched:
        found = Played(patched, target, draft, rule, (2, 2)).probs_of(1)
    probs = torch.tensor([found[(token,)] for token in range(3)], dtype=torch.float64)
    monkeypatch.setattr(variation, "TREES", 400)
    row = estimated(target, draft, rule, (2, 2))
    assert abs(row.total_variation - distance(probs, target, T1)) < 2 * row.noise < 0.06


@pytest.mark.parametrize("rule", RULES)
def test_one_first_token_leaves_the_distribution(rule):
    row = estimated(table(1, 5), table(2, 5), rule, (1, 2, 1))
    assert row.total_variation == pytest.approx(0, abs=1e-12)
    assert (row.num_trees, row.noise) == (1, pytest.approx(0, abs=1e-12))


@pytest.mark.parametrize("rule", RULES)
def test_a_perfect_draft_leaves_the_distribution_too(rule, monkeypatch):
    """All is accepted, and the first of the first tokens wins."""
    monkeypatch.setattr(variation, "TREES", 20)
    row = estimated(table(1, 5), table(1, 5), rule, (2, 1))
    assert row.num_trees == 20
    assert row.total_variation == pytest.approx(0, abs=1e-6)
