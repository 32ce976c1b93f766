"""Trees that end early, in the engine: what is committed, what is unread, and the distribution that is left."""

from itertools import pairwise

import pytest
import torch
from forks import PROMPT, T1, Scripted, causal, decode

from specdec_core import CausalLM
from specdec_core.drafters import fork_tree
from specdec_core.verifiers import IndependentLongest, LongestSubtree


@pytest.fixture
def forwards(monkeypatch):
    """Tokens of the forwards that each model has run."""
    fed, run = {}, CausalLM._run

    def counted(self, tokens, *args, **options):
        fed.setdefault(id(self), []).append(tokens.shape[0])
        return run(self, tokens, *args, **options)

    monkeypatch.setattr(CausalLM, "_run", counted)
    return fed


@pytest.mark.parametrize("order", ["creation", "dfs", "heavy_path"])
@pytest.mark.parametrize("rule", [IndependentLongest(), LongestSubtree()])
def test_below_first_tokens_all_that_is_committed_is_in_the_targets_cache(rule, order, forwards):
    """Spec 9.7, for trees that end early: 1 + S forwards of the target, none over a token that it has read."""
    target, draft = causal()
    drafter, before, drafted = fork_tree(draft=draft, width=3, depth=3, decision=Scripted()), [], []
    grow = drafter.grow

    def checked(context):
        assert context.root.first
        assert target.cache.length == len(context.tokens)
        before.append(len(context.tokens))
        return grow(context)

    drafter.grow = checked
    found = decode(
        target, drafter, new=30, rule=rule, node_order=order, watch=lambda tree, *rest: drafted.append(tree.num_drafted)
    )
    steps = found.steps
    assert forwards[id(target)] == [len(PROMPT), *drafted], "the virtual root is not fed"
    assert len(forwards[id(draft)]) == 1 + sum(step.depth - 1 for step in steps)
    assert [after - earlier for earlier, after in pairwise(before)] == [s.acceptance_length for s in steps[:-1]]
    assert target.cache.length == len(PROMPT) + sum(step.acceptance_length for step in steps)
    assert sum(step.kept for step in steps) == len(found.tokens) == 30
    assert {1, 2, 3} == {step.depth - 1 for step in steps}
    assert all(1 <= step.acceptance_length <= step.depth for step in steps)


def test_below_a_pending_root_one_token_is_unread_before_every_step(forwards):
    target, draft = causal()
    drafter, drafted = fork_tree(draft=draft, width=3, depth=3, init="draft", decision=Scripted()), []
    grow = drafter.grow

    def checked(context):
        assert not context.root.first
        assert target.cache.length == len(context.tokens) - 1
        return grow(context)

    drafter.grow = checked
    found = decode(target, drafter, new=30, watch=lambda tree, *rest: drafted.append(tree.num_nodes))
    assert forwards[id(target)] == [len(PROMPT), *drafted]
    assert len(forwards[id(draft)]) == 1 + sum(step.depth for step in found.steps)
    assert {1, 2, 3} == {step.depth for step in found.steps}


def test_the_distribution_that_is_left_is_a_fresh_forwards_where_a_tree_ended_early():
    """P behind a whole path, also of a tree that was not drafted to its full depth, and behind a bare first token."""
    (target, draft), (fresh, _) = causal(), causal()
    drafter, whole, seen = fork_tree(draft=draft, width=2, depth=4, decision=Scripted()), [True], []
    grow = drafter.grow

    def checked(context):
        fresh.reset(256)
        probs = T1.open_probs(fresh.prefill(torch.tensor(context.tokens)).logits[-1])
        assert torch.allclose(context.root.probs, probs, atol=1e-4) == whole[-1]
        return grow(context)

    def watch(tree, scored, verdict):
        m, levels = len(verdict.path) - 2, int(tree.depths.max()) - 1
        seen.append((m, levels))
        whole.append(m in (0, levels))

    drafter.grow = checked
    decode(target, drafter, new=40, watch=watch)
    assert any(m == levels < 4 for m, levels in seen)
    assert any(0 < m < levels for m, levels in seen)
    assert any(m == 0 for m, _ in seen)
