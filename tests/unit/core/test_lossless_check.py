"""What counts as lossless at temperature 0."""

import pytest
import torch
from doubles import BigramLM

from specdec_core import Sampling, generate, shapes
from specdec_core.checks import check_lossless
from specdec_core.drafters import Autoregressive, PromptLookup, StaticTree
from specdec_core.errors import PairError
from specdec_core.verifiers import GsdNondeterministic, SpecInfer, TargetSample


class Eager(SpecInfer):
    """Accepts nearly every child."""

    lossless_for = frozenset()

    def begin(self, p, q, num_children):
        return super().begin(torch.ones_like(p), q, num_children)


def test_a_rule_that_is_lossless_for_no_draws_is_greedy_verification_at_temperature_0():
    """If it judges child by child; `GsdNondeterministic` does not, and nothing vouches for it."""
    target, draft = (BigramLM(torch.randn(9, 9, generator=torch.Generator().manual_seed(seed))) for seed in (0, 1))
    drafter = StaticTree(draft=draft, shape=shapes.kary(2, 3), draws="iid")
    text = [0]
    while len(text) < 21:
        text.append(int(target.table[text[-1]].argmax()))
    assert check_lossless(drafter, Eager(), Sampling(0.0)) is True
    assert generate(target, drafter, Eager(), [0], max_new_tokens=20).tokens == text[1:]
    assert check_lossless(drafter, Eager(), Sampling(1.0), allow_lossy=True) is False
    assert check_lossless(drafter, GsdNondeterministic(), Sampling(0.0), allow_lossy=True) is False


@pytest.mark.parametrize("rule", [GsdNondeterministic, SpecInfer])
def test_a_drafter_without_a_draft_model_is_no_bare_root(rule):
    """What it declares decides; only who declares to draw nothing is lossless under every rule."""
    drafter, sampling = PromptLookup(), Sampling(0.6)
    with pytest.raises(PairError, match="does not keep the target's distribution for topk children of PromptLookup"):
        check_lossless(drafter, rule(), sampling)
    assert check_lossless(drafter, rule(), sampling, allow_lossy=True) is False
    assert check_lossless(drafter, TargetSample(), sampling) is True
    assert check_lossless(Autoregressive(), rule(), sampling) is True


@pytest.mark.parametrize("rule", [GsdNondeterministic, SpecInfer])
def test_rules_that_compare_with_q_refuse_a_drafter_without_it(rule):
    """At the first step, whether something is found in the text or not."""
    target = BigramLM(torch.randn(9, 9, generator=torch.Generator().manual_seed(0)))
    options = {"max_new_tokens": 5, "sampling": Sampling(0.6), "allow_lossy": True}
    for prompt in ([0], [1, 2, 3, 1, 2]):
        with pytest.raises(PairError, match="compares p with"):
            generate(target, PromptLookup(), rule(), prompt, **options)
