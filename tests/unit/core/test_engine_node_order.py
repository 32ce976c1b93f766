"""Decoding with a tree's nodes in any order against decoding in the order in which they were drafted."""

import pytest
import torch
from doubles import BigramLM, random_llama
from test_engine import PROMPT, FirstLevelFromTarget, FromTarget, KeepProbs, own_greedy

from specdec_core import Sampling, TokenTree, generate, load_pair, shapes
from specdec_core.drafters import Eagle2, OptTree, StaticTree
from specdec_core.models import ModelSpec, Pair
from specdec_core.node_order import NODE_ORDERS
from specdec_core.verifiers import Greedy, SpecInfer, TargetSample, WithoutReplacement
from specdec_trees.prompts.embedded import TINY

DRAFTERS = {
    "opt_tree": lambda draft: OptTree(draft=draft, n=20, delta=0.1),
    "eagle2": lambda draft: Eagle2(draft=draft, total=20, depth=3, k=4),
    "static": lambda draft: StaticTree(draft=draft, shape=shapes.eagle25()),
}
SAMPLED = {
    "iid": (SpecInfer, lambda d: StaticTree(draft=d, shape=shapes.branching([3, 2, 2]), draws="iid")),
    "without_replacement": (
        WithoutReplacement,
        lambda d: StaticTree(draft=d, shape=shapes.branching([3, 2, 2]), draws="without_replacement"),
    ),
    "opt_tree": (TargetSample, DRAFTERS["opt_tree"]),
}


@pytest.mark.parametrize("order", NODE_ORDERS)
@pytest.mark.parametrize("name", DRAFTERS)
@pytest.mark.parametrize("same_draft", [False, True])
def test_greedy_output_does_not_depend_on_the_order(name, order, same_draft, toy_target, toy_draft):
    draft = random_llama(0) if same_draft else toy_draft
    result = generate(toy_target, DRAFTERS[name](draft), Greedy(), PROMPT, max_new_tokens=40, node_order=order)
    assert result.tokens == own_greedy(toy_target, PROMPT, 40)
    assert not same_draft or max(step.num_accepted for step in result.steps) > 1


@pytest.fixture(scope="module")
def tiny_eagle() -> Pair:
    """The embedded target with its EAGLE head."""
    head = ModelSpec(id=str(TINY / "eagle"), kind="eagle")
    return load_pair(str(TINY / "target"), head, device="cpu")


@pytest.mark.parametrize("order", NODE_ORDERS[1:])
def test_features_reach_the_head_as_they_were_drafted(order, tiny_eagle):
    """A wrong feature would leave the output and change the trees."""
    prompt = tiny_eagle.tokenizer("def main():\n    ")["input_ids"]

    def steps(node_order: str) -> list[tuple[float, int]]:
        drafter = StaticTree(draft=tiny_eagle.draft, shape=shapes.eagle25())
        done = generate(tiny_eagle.target, drafter, Greedy(), prompt, max_new_tokens=40, node_order=node_order)
        return [(pytest.approx(step.expected_acceptance, rel=1e-3), step.num_accepted) for step in done.steps]

    plain = steps("creation")
    assert steps(order) == plain
    assert max(accepted for _, accepted in plain) > 1


@pytest.mark.long
@pytest.mark.parametrize("order", NODE_ORDERS[1:])
@pytest.mark.parametrize("name", SAMPLED)
def test_the_same_seed_samples_the_same_in_every_order(name, order, tiny):
    rule, drafter = SAMPLED[name]
    prompt = tiny.tokenizer("def main():\n    ")["input_ids"]

    def sampled(node_order: str) -> list[tuple[object, ...]]:
        options = {"max_new_tokens": 48, "sampling": Sampling(0.8), "node_order": node_order}
        done = generate(tiny.target, drafter(tiny.draft), rule(), prompt, **options)
        return [tuple(done.tokens), *((step.num_drafted, step.num_accepted) for step in done.steps)]

    plain = sampled("creation")
    assert sampled(order) == plain
    assert max(accepted for _, accepted in plain[1:]) > 1


@pytest.mark.parametrize("order", NODE_ORDERS)
def test_rows_reach_the_rule_as_they_were_drafted(order):
    """A target whose rows name their token, so that a row in a wrong place is seen; greedy outputs may hide it."""
    table, judged = torch.randn(11, 11), []
    drafter = StaticTree(draft=BigramLM(torch.randn(11, 11)), shape=shapes.branching([3, 2, 2]))

    def watch(tree, scored, verdict):
        judged.append(torch.equal(scored.logits, table[tree.tokens]))

    generate(BigramLM(table), drafter, Greedy(), [0], max_new_tokens=9, watch=watch, node_order=order)
    assert all(judged)


class Bushy(FromTarget):
    """Below a virtual root, not depth first: two branches that share their first token's distribution."""

    def grow(self, context):
        chain = super().grow(context)
        side = torch.zeros(3, dtype=torch.long)
        tokens = torch.stack((chain.tokens[1:], side), 1).flatten()
        parents = torch.tensor([0, 0, 1, 2, 3, 4])
        return TokenTree(torch.cat((chain.tokens[:1], tokens)), torch.cat((torch.tensor([-1]), parents)), torch.ones(7))


class KeepProbsOfBranch(KeepProbs):
    """The path goes down the first branch: nodes 1, 3, 5."""

    def judge(self, tree, target, sampling, rng):
        first = torch.tensor([0, 1, 3, 5])
        chain = TokenTree(tree.tokens[first], torch.arange(4) - 1, torch.ones(4))
        rows = type(target)(target.logits[first], None, target.root_probs)
        verdict = super().judge(chain, rows, sampling, rng)
        return type(verdict)(first[verdict.path], verdict.tokens, None, verdict.next_probs)


@pytest.mark.parametrize("order", NODE_ORDERS)
def test_virtual_roots_in_every_order(order, toy_target, toy_draft):
    for drafter, rule in (
        (FirstLevelFromTarget(draft=toy_draft, shape=shapes.chain(2)), KeepProbs()),
        (Bushy(torch.randn(61, 61), depth=3), KeepProbsOfBranch()),
    ):
        result = generate(toy_target, drafter, rule, PROMPT, max_new_tokens=30, node_order=order)
        assert result.tokens == own_greedy(toy_target, PROMPT, 30)


def test_unknown_orders_are_refused(toy_target, toy_draft):
    drafter = StaticTree(draft=toy_draft, shape=shapes.chain(2))
    with pytest.raises(ValueError, match="creation, dfs, heavy_path, not 'bfs'"):
        generate(toy_target, drafter, Greedy(), PROMPT, max_new_tokens=3, node_order="bfs")
