"""Decoding under sliced masks: the same tokens and draws as with masks built anew."""

import pytest
import torch
from sliced import DRAFTERS, PAIRS, PROMPT, T07, as_before, rule_for, tiny_pair

from specdec_core import Sampling, generate, sliced_mask


def run(pair, name, order, sampling, *, sliced):
    """All that a decoding says."""
    target, draft = PAIRS[pair]()
    draws = "topk" if sampling.greedy else "without_replacement"
    drafter = DRAFTERS[name](draft, draws)
    if not sliced:
        as_before(drafter)
    trees, slots = [], []

    def watch(tree, scored, verdict):
        assert (tree.sliced is not None) == sliced
        trees.append((tree, scored, verdict))
        slots.append(drafter._slots)

    found = generate(
        target, drafter, rule_for(drafter, draws), PROMPT, max_new_tokens=26, sampling=sampling, allow_lossy=True,
        node_order=order, watch=watch,
    )  # fmt: skip
    return found, trees, slots, target


CELLS = [
    ("causal_lm", "fork_target", "creation"),
    ("causal_lm", "fork_target", "dfs"),
    ("causal_lm", "fork_target", "heavy_path"),
    ("causal_lm", "fork_draft", "creation"),
    ("causal_lm", "fork_draft", "heavy_path"),
    ("causal_lm", "expanding_target", "creation"),
    ("causal_lm", "expanding", "dfs"),
    ("causal_lm", "uneven", "creation"),
    ("causal_lm", "chain", "creation"),
    ("eagle", "fork_target", "creation"),
    ("eagle", "fork_draft", "dfs"),
    ("eagle", "uneven", "creation"),
    ("layer_skip", "fork_draft", "creation"),
    ("layer_skip", "fork_draft", "dfs"),
    ("layer_skip", "uneven", "heavy_path"),
]


@pytest.mark.long
@pytest.mark.parametrize("sampling", [T07, Sampling()], ids=["t07", "greedy"])
@pytest.mark.parametrize(("pair", "name", "order"), CELLS)
def test_decoding_is_the_same_as_with_masks_built_anew(pair, name, order, sampling, monkeypatch):
    monkeypatch.setattr(sliced_mask, "ROOM", 16)  # so that masks are made anew on the way
    (ours, trees, slots, target), (theirs, others, their_slots, plain) = (
        run(pair, name, order, sampling, sliced=sliced) for sliced in (True, False)
    )
    assert (ours.tokens, ours.finish) == (theirs.tokens, theirs.finish)
    names = "num_drafted", "depth", "draft_forwards", "draft_tokens", "acceptance_length"
    facts = [
        [(*(getattr(step, name) for name in names), step.facts.get("decision_calls")) for step in run.steps]
        for run in (ours, theirs)
    ]
    assert facts[0] == facts[1]
    assert target.cache.length == plain.cache.length
    for (tree, scored, verdict), (other, rows, judged) in zip(trees, others, strict=True):
        assert torch.equal(tree.tokens, other.tokens)
        assert torch.equal(tree.parents, other.parents)
        assert torch.equal(tree.ancestor_mask, other.ancestor_mask)
        assert torch.equal(tree.depths, other.depths)
        assert torch.allclose(tree.edge_probs, other.edge_probs, atol=1e-5)
        assert torch.allclose(scored.logits, rows.logits, atol=1e-3)
        assert verdict.path.tolist() == judged.path.tolist()
        assert (tree.draft_probs is None) == sampling.greedy
        if tree.draft_probs is not None:
            assert torch.allclose(tree.draft_probs, other.draft_probs, atol=1e-5)
            assert torch.equal(tree.draft_rows, other.draft_rows)
    assert all(torch.equal(*pair) for pair in zip(slots, their_slots, strict=True))
    assert len({int(tree.depths.max()) for tree, _, _ in trees}) > 1 or name == "expanding", "some ended early"


def test_one_draft_serves_drafters_of_other_shapes_in_turn():
    """What one drafter made must not be sliced for the next."""
    target, draft = tiny_pair()
    drafters = [DRAFTERS[name](draft, "topk") for name in ("fork_target", "uneven", "expanding_target")]
    shared = drafters[0].draft
    for drafter in drafters[1:]:
        drafter.draft = shared
    alone = [run("causal_lm", name, "creation", Sampling(), sliced=True)[0].tokens for name in (
        "fork_target", "uneven", "expanding_target",
    )]  # fmt: skip
    for drafter, tokens in [*zip(drafters, alone, strict=True)] * 2:
        drafter.stop.asked = -1
        found = generate(target, drafter, rule_for(drafter, "topk"), PROMPT, max_new_tokens=26, allow_lossy=True)
        assert found.tokens == tokens
