"""The exit threshold of Draft & Verify: its formula in exact fractions, and what it does to drafts."""

import random
from fractions import Fraction
from itertools import pairwise

import pytest
import torch
from doubles import TableDraft, context_for, random_llama, random_q

from specdec_core import Sampling, Verdict, generate
from specdec_core.drafters import AdaptiveExit, Autoregressive, TokenGraph
from specdec_core.models import LayerSkip, ModelOutput
from specdec_core.verifiers import Chain, Greedy

NOTHING = ModelOutput(torch.zeros(1, 4))
PUBLISHED = ("0.6", "0.9", "0.5", "0.9", "0.01")
"""gamma, alpha, beta_1, beta_2, epsilon."""


def thresholds(steps, gamma, alpha, beta_1, beta_2, epsilon):
    """The threshold before each of the steps (accepted, drafted), and behind the last one."""
    gamma, alpha, beta_1, beta_2, epsilon = map(Fraction, (gamma, alpha, beta_1, beta_2, epsilon))
    rate, found = Fraction(0), [gamma]
    for accepted, drafted in steps:
        rate = beta_1 * rate + (1 - beta_1) * Fraction(accepted, drafted)
        moved = gamma + epsilon if rate <= alpha else gamma - epsilon
        gamma = beta_2 * gamma + (1 - beta_2) * moved
        found.append(gamma)
    return found


def of_best(prob, vocab=4):
    """A distribution whose best token has this probability, everywhere."""
    return lambda path: torch.tensor([(1 - prob) / (vocab - 1)] * (vocab - 1) + [prob], dtype=torch.float64)


def accepting(drafter, accepted):
    """One step of which so many tokens are accepted, or all; how many were drafted."""
    tree = drafter.grow(context_for(0))
    path = torch.arange(min(accepted, tree.num_drafted) + 1)
    drafter.observe(Verdict(path, tuple(tree.tokens[path[1:]].tolist()), 1), NOTHING)
    return tree.num_drafted


def begun(**options):
    drafter = AdaptiveExit(draft=TableDraft(4, of_best(options.pop("best", 0.999))), **options)
    drafter.reset(torch.zeros(1, dtype=torch.long), NOTHING)
    return drafter


def test_thresholds_are_those_of_the_formula():
    """Of a script with rises and falls, with the published numbers and with others."""
    script = [0, 12, 12, 12, 12, 12, 11, 3, 12, 12, 12, 12, 12, 0, 5, 12, 12, 12, 12]
    options = {"theta_prob": 0.5, "target_rate": 0.7, "rate_decay": 0.25, "theta_decay": 0.75, "theta_step": 0.125}
    for numbers, given in ((PUBLISHED, {}), (("0.5", "0.7", "0.25", "0.75", "0.125"), options)):
        drafter, steps, found = begun(**given), [], []
        for accepted in script:
            found.append(drafter.threshold)
            steps.append((accepted, accepting(drafter, accepted)))
        wanted = thresholds(steps, *numbers)
        assert [*found, drafter.threshold] == pytest.approx([float(value) for value in wanted], abs=1e-12)
        moves = {b > a for a, b in pairwise(wanted)}
        assert moves == {True, False}
        assert [drafted for _, drafted in steps] == [12] * len(script)


def test_a_rate_of_exactly_the_target_moves_the_threshold_up():
    drafter = begun(target_rate=0.5, rate_decay=0.5)
    accepting(drafter, 12)
    assert drafter.rate == 0.5
    assert drafter.threshold == pytest.approx(0.601)


def test_drafts_end_at_the_threshold_of_their_step():
    """q is 0.6025 at every node: three rejections later a token is below, is kept, and ends the draft.

    Then single tokens are accepted: the rate is 1/2, 3/4, 7/8, and above 0.9 from the fourth on. So the threshold goes
    from 0.605 to 0.608 and down again.
    """
    drafter = begun(best=0.6025)
    assert [accepting(drafter, 0) for _ in range(5)] == [12, 12, 12, 1, 1]
    assert [accepting(drafter, 12) for _ in range(10)] == [1] * 9 + [12]


def test_every_prompt_begins_anew():
    drafter = begun()
    for _ in range(4):
        accepting(drafter, 12)
    assert (drafter.rate, drafter.threshold) != (0.0, 0.6)
    drafter.reset(torch.zeros(1, dtype=torch.long), NOTHING)
    assert (drafter.rate, drafter.threshold) == (0.0, 0.6)
    assert accepting(drafter, 0) == 12


def test_a_threshold_below_zero_ends_no_draft():
    drafter = begun(theta_prob=0.0, best=0.3, target_rate=0.0)
    for _ in range(3):
        assert accepting(drafter, 12) == 12
    assert drafter.threshold == pytest.approx(-0.003)


def test_without_steps_of_the_threshold_it_is_the_plain_sequence():
    for seed in range(20):
        probs = random_q(5, seed)
        still = begun(theta_step=0.0, theta_prob=0.4)
        still.draft = TableDraft(5, probs)
        plain = TokenGraph(
            draft=TableDraft(5, probs), k=1, tau=None, theta_prob=0.4, theta_sib=0, max_steps=12, unmerge_depth=None
        )
        for accepted in (0, 3, 12):
            accepting(still, accepted)
            one, other = (drafter.grow(context_for(0)) for drafter in (still, plain))
            assert torch.equal(one.tokens, other.tokens)


@pytest.mark.parametrize("skips", [{"skipped": []}, {"skipped": [1]}, {"attention": [0, 2], "mlp": [3]}], ids=str)
def test_greedy_outputs_are_the_targets(skips):
    target, rng = random_llama(0, layers=4), random.Random(0)
    for _ in range(3):
        prompt = [rng.randrange(61) for _ in range(6)]
        own = generate(target, Autoregressive(), Greedy(), prompt, max_new_tokens=30).tokens
        drafter = AdaptiveExit(draft=LayerSkip(target, **skips))
        assert generate(target, drafter, Greedy(), prompt, max_new_tokens=30).tokens == own


def test_drawn_sequences_are_accepted_whole_where_the_draft_is_the_target():
    """Speculative sampling accepts with min(1, p/q), 1 here; other q are tested in tests/property."""
    target = random_llama(0, layers=4)
    drafter = AdaptiveExit(draft=LayerSkip(target, []), draws="iid", theta_prob=0.05)
    found = generate(target, drafter, Chain(), [5, 9], max_new_tokens=40, sampling=Sampling(1.0))
    assert all(step.num_accepted == step.num_drafted for step in found.steps[:-1])
    assert {step.num_drafted for step in found.steps} - {12}, "no draft ended early"


@pytest.mark.parametrize("name", ["target_rate", "rate_decay", "theta_decay"])
def test_shares_are_from_zero_to_one(name):
    for value in (-0.1, 1.1):
        with pytest.raises(ValueError, match=f"{name} is from 0 to 1, not {value}"):
            begun(**{name: value})
