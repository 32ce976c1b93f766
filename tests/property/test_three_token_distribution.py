"""Distribution of the next three tokens, summed exactly over all ordered draws in a tree and in those that follow."""

from functools import lru_cache
from itertools import product

import pytest
import torch
from distributions import declared_pairs, judges, name_of, ordered_draws, random_pq, refuted, rule_classes, tensor
from torch import Tensor

from specdec_core import shapes, verifiers
from specdec_core.shapes import TreeShape
from specdec_core.verifiers import (
    Block,
    ChildByChild,
    Greedy,
    GreedyMultiPath,
    LongestSubtree,
    Rounds,
    SpecInfer,
    Traversal,
)

SHAPES = {
    "chain": shapes.chain(2),
    "two_then_one": shapes.branching([2, 1]),
    "binary": shapes.branching([2, 2]),
    "k_sequences": shapes.k_sequences(3, 2),
    "uneven": TreeShape.from_paths([(0,), (1,), (2,), (0, 0), (0, 1), (1, 0), (0, 0, 0)]),
    "deep": shapes.chain(4),
}
PAIRS = declared_pairs()
CELLS = [
    (rule, draws, shape)
    for (rule, draws), shape in product(PAIRS, SHAPES)
    if judges(rule, max(SHAPES[shape].num_children))
]


@lru_cache
def tables(vocab: int, seed: int) -> tuple[Tensor, Tensor, list]:
    """P and q after every two tokens, with zeros in both, as tensors of `vocab` cubed; and all q as fractions."""
    pairs = [random_pq(vocab, 1000 * seed + context) for context in range(vocab**2)]
    p, q = (torch.stack([tensor(pair[which]) for pair in pairs]).view(vocab, vocab, vocab) for which in (0, 1))
    return p, q, [fractions for _, fractions in pairs]


@lru_cache
def all_draws(vocab: int, seed: int, k: int, draws: str) -> tuple[Tensor, Tensor, Tensor]:
    """Ordered draws of k children in every context: the context's index, the children, the probability."""
    found = [
        (context, children, float(chance))
        for context, q in enumerate(tables(vocab, seed)[2])
        for children, chance in ordered_draws(q, k, draws)
    ]
    contexts, children, chances = zip(*found, strict=True)
    return torch.tensor(contexts), torch.tensor(children), torch.tensor(chances, dtype=torch.float64)


def one_node(rule: ChildByChild, vocab: int, seed: int, k: int, draws: str) -> list[Tensor]:
    """Probability, per context and next token, that child i is accepted as that token; last, that it is recovered."""
    p, q, _ = tables(vocab, seed)
    contexts, children, reach = all_draws(vocab, seed, k, draws)
    rounds = rule.rounds(p.view(-1, vocab)[contexts], q.view(-1, vocab)[contexts], children)
    ways = [torch.zeros(vocab**2, vocab, dtype=torch.float64) for _ in range(k + 1)]
    for number in range(k):
        ways[number].index_put_((contexts, children[:, number]), reach * rounds.accept[:, number], accumulate=True)
        reach = reach * (1 - rounds.accept[:, number])
    ways[k].index_add_(0, contexts, reach[:, None] * rounds.residual)
    return [way.view(vocab, vocab, vocab) for way in ways]


def next_tokens(rule: ChildByChild, shape: TreeShape, vocab: int, seed: int, draws: str, count: int) -> Tensor:
    """Distribution of the next `count` tokens, for a walk that stands at any node, after any two tokens.

    An accepted child leads on to its node. A recovered token, and the bonus token drawn from p at a leaf, become the
    root of a new tree, whose children are drawn anew.
    """
    p = tables(vocab, seed)[0]
    shape = shape if draws == "iid" else shape.limited(vocab)
    ways = {k: one_node(rule, vocab, seed, k, draws) for k in set(shape.num_children) - {0}}
    below = [
        [node for node, parent in enumerate(shape.parents) if parent == above] for above in range(len(shape.ranks))
    ]
    rest = torch.ones(len(below), vocab, vocab, 1, dtype=torch.float64)  # after: node, last two tokens; over: outcomes
    for _ in range(count):
        probs = []
        for children in below:
            steps = ways[len(children)] if children else [p]
            terms = zip(steps, [*children, 0], strict=True)
            probs.append(sum(torch.einsum("uvx,vxr->uvxr", step, rest[node]) for step, node in terms).flatten(2))
        rest = torch.stack(probs)
    return rest


def exact(vocab: int, seed: int, count: int) -> Tensor:
    """p(a) p(b | a) p(c | a, b) after any two tokens."""
    p, probs = tables(vocab, seed)[0], torch.ones(vocab, vocab, 1, dtype=torch.float64)
    for _ in range(count):
        probs = torch.einsum("uvx,vxr->uvxr", p, probs).flatten(2)
    return probs


def error(rule: ChildByChild, shape: TreeShape, vocab: int, seed: int, draws: str, count: int) -> float:
    """Largest distance in total variation between the walk's distribution and the target's."""
    probs = next_tokens(rule, shape, vocab, seed, draws, count)
    return float((probs - exact(vocab, seed, count)).abs().sum(-1).max() / 2)


@pytest.mark.parametrize(("rule", "draws", "shape"), CELLS, ids=["-".join(map(name_of, cell)) for cell in CELLS])
@pytest.mark.parametrize("vocab", [2, 3, 4, 5])
def test_the_next_three_tokens_have_the_targets_distribution(rule, draws, shape, vocab):
    for seed in range(6 if vocab < 4 else 2):
        for count in (1, 3):
            distance = error(rule, SHAPES[shape], vocab, seed, draws, count)
            assert distance < 1e-14, refuted(rule, draws, distance)


def test_every_rule_is_tested_with_every_draw_that_it_declares():
    """A new rule is found without an edit here; one that does not judge child by child needs a test of its own."""
    keeping = {rule for rule in rule_classes() if getattr(rule, "lossless_for", True)}  # True: its settings decide
    whole = {rule for rule in keeping if not issubclass(rule, ChildByChild)}
    # at temperature 0 alone; test_target_init_distribution.py; test_traversal.py, test_block.py,
    # test_gbv.py
    assert whole == {Greedy, LongestSubtree, Traversal, Block, GreedyMultiPath}
    assert {rule for rule, _ in PAIRS} == {rule for rule, _, _ in CELLS}
    public = {getattr(verifiers, name) for name in verifiers.__all__} - {ChildByChild}
    exported = {rule for rule in public if issubclass(rule, ChildByChild)}
    assert {type(rule) for rule, _ in PAIRS} == keeping - whole >= exported & keeping
    assert set(rule_classes()) >= exported


class _ResidualIsP(SpecInfer):
    """The recovered token is drawn from p as it was."""

    def rounds(self, p: Tensor, q: Tensor, children: Tensor) -> Rounds:
        return Rounds(super().rounds(p, q, children).accept, p)


@pytest.mark.parametrize(
    ("rule", "draws"), [(SpecInfer(), "without_replacement"), (_ResidualIsP(), "iid")], ids=name_of
)
@pytest.mark.parametrize("vocab", [3, 4])
def test_wrong_rules_are_seen(rule, draws, vocab):
    for count in (1, 3):
        assert max(error(rule, SHAPES["binary"], vocab, seed, draws, count) for seed in range(6)) > 1e-3
