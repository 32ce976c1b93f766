"""`specdec prove`: the law that it holds methods against, what it calls different, and a rule that is."""

import numpy as np
import pytest
import torch

from specdec_core import load_pair
from specdec_core.drafters import StaticTree
from specdec_core.shapes import k_sequences
from specdec_core.verifiers import SpecInfer
from specdec_trees import prove
from specdec_trees.prompts.embedded import TINY

PROMPT = [5, 9, 11, 3]


@pytest.fixture(scope="module")
def pair():
    return load_pair(str(TINY / "target"), str(TINY / "draft"))


def drawn(law, seed, count=400, shift=0.0):
    """Texts of a law, of which a share `shift` is moved from the likeliest text to the second."""
    probs = np.array([*law.values()])
    first, second = probs.argsort()[::-1][:2]
    probs[[first, second]] += np.array([-shift, shift])
    rng = np.random.default_rng(seed)
    return [[*law][place] for place in rng.choice(len(probs), count, p=probs)]


def test_the_law_is_that_of_the_target(pair):
    law = prove.target_law(pair, PROMPT, 2)
    assert len(law) == prove.BEST**2
    assert sum(law.values()) == pytest.approx(1)
    logits = pair.target.model(torch.tensor([PROMPT])).logits[0, -1].double()
    best = logits.topk(prove.BEST)
    for token, prob in zip(best.indices.tolist(), best.values.softmax(-1).tolist(), strict=True):
        assert sum(of for text, of in law.items() if text[0] == token) == pytest.approx(prob)


def test_draws_from_the_law_pass_and_moved_ones_do_not(pair):
    law = prove.target_law(pair, PROMPT, 3)
    values = [prove.judged(law, drawn(law, seed)).p for seed in range(100)]
    assert min(values) > prove.REFUSED
    assert 0.3 < np.mean(values) < 0.7, "uniform, as p is where nothing differs"
    shift = max(law.values()) / 2
    assert prove.judged(law, drawn(law, 0, 4000, shift)).p < prove.REFUSED


def test_a_text_that_the_target_never_writes_differs(pair):
    law = prove.target_law(pair, PROMPT, 2)
    assert prove.judged(law, [*drawn(law, 0), (0, 0)]).p == 0


class Always(SpecInfer):
    """Accepts every first child."""

    def choose(self, p, q, children, uniform):
        return 0


@pytest.mark.parametrize(("rule", "differs"), [(SpecInfer(), False), (Always(), True)])
def test_a_rule_that_accepts_all_is_found(rule, differs, pair):
    drafter = StaticTree(draft=pair.draft, shape=k_sequences(2, 3), draws="iid", draft_temperature=2.0)
    texts = prove.sampled(pair, drafter, rule, PROMPT, 200)
    assert (prove.judged(prove.target_law(pair, PROMPT), texts).p < prove.REFUSED) == differs


@pytest.mark.parametrize(
    ("name", "asked"),
    [
        ("opt_tree", ["target_sample"]),
        ("mcsd", ["without_replacement"]),
        ("ti_mcsd_w1", ["longest_subtree"]),
        ("k_seq", ["k_seq"]),
        ("chain", ["chain", "chain"]),
        ("target_sample", ["target_sample"] * 4),
        ("traversal", ["traversal"]),
        ("spec_hub", ["spec_hub"]),
        ("block", ["block", "block"]),
    ],
)
def test_a_method_is_asked_with_what_it_was_made_for(name, asked):
    assert [cell.verifier for _, cell in prove.cells(name)] == asked


@pytest.mark.parametrize("name", ["opt_tre", "greedy", "gsd_nondeterministic", "longest_subtree"])
def test_what_declares_nothing_is_refused(name):
    with pytest.raises(ValueError, match=name):
        [*prove.cells(name)]
