"""Greedy multi-path block verification: q* by counting all draws, in fractions; its output distribution; a control."""

from collections import Counter, defaultdict
from dataclasses import replace
from fractions import Fraction
from itertools import product
from math import prod

import pytest
import torch
from post_order import EXACT, FIXED, ONE, Drafted, Given, Law, Models, Text, block, drafted, law_of, off, same

from specdec_core import Sampling, TokenTree, shapes
from specdec_core.drafters.static_tree import levels_above, trie
from specdec_core.errors import PairError
from specdec_core.models import ModelOutput
from specdec_core.verifiers import Block, GreedyMultiPath
from specdec_core.verifiers.expectation import expected_accepted

SEQUENCES = {
    (1, 1): [-1, 0],
    (1, 3): [-1, 0, 1, 2],
    (2, 1): [-1, 0, 0],
    (3, 1): [-1, 0, 0, 0],
    (4, 1): [-1, 0, 0, 0, 0],
}
SEQUENCES |= {(2, 2): [-1, 0, 0, 1, 2], (3, 2): [-1, 0, 0, 0, 1, 2, 3]}
"""Parents, by the number of sequences and their length."""


def goodness(models: Models, text: Text) -> tuple:
    """Larger for the better of two texts; q is not 0 where a token was drawn."""
    places = range(len(text))
    return tuple((models.p(text[:i])[text[i]] / models.q(text[:i])[text[i]], -text[i]) for i in places)


def best_of(models: Models, count: int, length: int) -> dict[Text, Fraction]:
    """How likely each beginning is in the best of so many draws: all tuples of draws are counted."""
    texts = {
        text: chance
        for text in product(range(models.vocab), repeat=length)
        if (chance := prod((models.q(text[:i])[text[i]] for i in range(length)), start=ONE))
    }
    found: dict[Text, Fraction] = defaultdict(Fraction)
    for drawn in product(texts, repeat=count):
        best = max(drawn, key=lambda text: goodness(models, text))
        for end in range(length + 1):
            found[best[:end]] += prod((texts[text] for text in drawn), start=ONE)
    return found


def judged(models: Models, one: Drafted, count: int, length: int) -> Law:
    """The law by the chain's Block with q*, of the chain's nodes."""
    known = best_of(models, count, length)
    ends = [text for text in one.texts if len(text) == length]
    best = max(ends, key=lambda text: goodness(models, text))
    star = Models(
        models.p, lambda text: tuple(known[*text, x] / known[text] for x in range(models.vocab)), models.vocab
    )
    chain = Drafted([best[:end] for end in range(length + 1)], [*range(-1, length)], [], one.chance)
    return chain, block(star, chain)


def whole(models: Models, count: int, length: int) -> list[tuple[Drafted, Drafted, Law]]:
    return [(one, *judged(models, one, count, length)) for one in drafted(models, SEQUENCES[count, length], "iid")]


@pytest.mark.few(3)
@pytest.mark.parametrize(("count", "length"), SEQUENCES)
@pytest.mark.parametrize("seed", range(8))
def test_it_is_block_on_the_best_draw_and_the_targets_law(count, length, seed):
    models = Models.random(seed, 2 if count * length > 5 else 3)
    rule, trees = GreedyMultiPath(), whole(models, count, length)
    assert off(models, [(chain, law) for _, chain, law in trees], length + 1) == 0
    for one, chain, law in trees:
        tree, target = one.tree(models)
        best = rule.best(tree, target, Given())
        assert [*best.chain.tokens[1:]] == [*chain.texts[-1]]
        same(law, law_of(Block(), best.chain, best.output(target)))


@pytest.mark.parametrize("seed", range(5))
def test_one_sequence_is_block(seed):
    models = Models.random(seed)
    for one in drafted(models, SEQUENCES[1, 3], "iid"):
        tree, target = one.tree(models)
        rule = GreedyMultiPath()
        seeds = [torch.Generator().manual_seed(seed) for _ in range(2)]
        ours, blocks = (
            each.judge(tree, target, Given(), rng) for each, rng in zip((rule, Block()), seeds, strict=True)
        )
        assert (ours.path.tolist(), ours.new_tokens) == (blocks.path.tolist(), blocks.new_tokens)
        assert expected_accepted(rule, tree, target, Given()) == pytest.approx(
            expected_accepted(Block(), tree, target, Given()), abs=EXACT
        )


def test_the_draws_own_q_in_place_of_the_best_ones_is_seen():
    wrong = [(chain, block(FIXED, chain)) for _, chain, _ in whole(FIXED, 2, 2)]
    assert off(FIXED, wrong, 3) > 0.01


def accepted(models: Models, count: int) -> float:
    """Of one level, in the mean."""
    rule, trees = GreedyMultiPath(), drafted(models, SEQUENCES[count, 1], "iid")
    return sum(float(one.chance) * expected_accepted(rule, *one.tree(models), Given()) for one in trees)


def test_draws_of_one_token():
    """Of p / q = 5/2, 1, 2/5 the best of K draws is the first unless none is: q* = 1 - .8^K, .8^K - .5^K, .5^K."""
    for count in (1, 2, 3, 4):
        tree, target = drafted(FIXED, SEQUENCES[count, 1], "iid")[0].tree(FIXED)
        law = GreedyMultiPath().best(tree, target, Given()).chain.draft_probs
        assert law is not None
        assert law[0].tolist() == pytest.approx([1 - 0.8**count, 0.8**count - 0.5**count, 0.5**count], abs=EXACT)


@pytest.mark.parametrize(("count", "mean"), [(1, 0.7), (2, 0.86), (3, 0.913), (4, 0.8625)])
def test_the_best_of_many_draws_may_be_too_good(count, mean):
    """The sum of min(p, q*): it falls again, as the best token comes more often than p has it."""
    assert accepted(FIXED, count) == pytest.approx(mean, abs=EXACT)


def random_sequences(count: int, length: int, vocab: int, seed: int) -> tuple[TokenTree, ModelOutput]:
    """Sequences of a large vocabulary, level by level."""
    rng = torch.Generator().manual_seed(seed)
    nodes = 1 + count * length
    parents = [-1, *(max(0, node - count) for node in range(1, nodes))]
    q = torch.rand(nodes, vocab, generator=rng, dtype=torch.float64).pow(8)
    q /= q.sum(-1, keepdim=True)
    tokens = torch.tensor([0, *torch.randint(vocab, (nodes - 1,), generator=rng).tolist()])
    rows = torch.where(torch.arange(nodes) < nodes - count, torch.arange(nodes), -1)
    edges = torch.ones(nodes, dtype=torch.float64)
    p = torch.rand(nodes, vocab, generator=rng, dtype=torch.float64).pow(8)
    return TokenTree(tokens, torch.tensor(parents), edges, q, rows), ModelOutput(p / p.sum(-1, keepdim=True))


@pytest.mark.parametrize("count", [1, 2, 16, 64])
def test_many_draws_of_a_large_vocabulary_leave_a_distribution(count):
    """Powers of differences near 1 and near 0: probabilities stay so, and sum to 1."""
    for seed in range(5):
        tree, target = random_sequences(count, 6, 500, seed)
        chain = GreedyMultiPath().best(tree, target, Given()).chain
        assert chain.draft_probs is not None
        assert chain.draft_probs.min() >= 0
        assert chain.draft_probs.sum(-1).tolist() == pytest.approx([1.0] * 6, abs=EXACT)
        assert chain.num_drafted == 6


def test_what_are_no_such_sequences_is_refused(rng):
    """They branch below the root (merged sequences do), or end at several depths."""
    for parents in ([-1, 0, 0, 1], [-1, 0, 1, 1], [-1, 0, 0, 1, 1, 2, 2], [-1, 0, 0, 0, 1, 2], [-1, 0, 0, 1, 1, 2]):
        tree, target = drafted(FIXED, parents, "iid")[0].tree(FIXED)
        with pytest.raises(PairError, match="gbv judges"):
            GreedyMultiPath().judge(tree, target, Given(), rng)
    tree, target = drafted(FIXED, [-1, 0, 0], "iid")[0].tree(FIXED)
    with pytest.raises(PairError, match="no draft_probs"):
        GreedyMultiPath().judge(replace(tree, edge_probs=None, draft_probs=None, draft_rows=None), target, Given(), rng)


def test_merged_sequences_are_refused_or_were_all_apart():
    """What `StaticTree` merges is never judged as fewer sequences than were drawn."""
    above, counts = levels_above(shapes.k_sequences(3, 2)), Counter()
    for one in drafted(FIXED, SEQUENCES[3, 2], "iid"):
        tree, target = one.tree(FIXED)
        parents = trie(tree.tokens.split([1, 3, 3]), [torch.tensor(places) for places in above])
        merged = replace(tree, parents=parents)
        try:
            GreedyMultiPath().best(merged, target, Given())
        except PairError:
            counts["refused"] += 1
        else:
            assert torch.equal(parents, tree.parents)
            counts["apart"] += 1
    assert counts == {"refused": 729 - 162, "apart": 162}  # 3! of 27 beginnings are all different


def test_the_accepted_nodes_stand_one_below_another():
    for seed in range(40):
        models = Models.random(seed)
        for one in drafted(models, SEQUENCES[3, 2], "iid")[:: 1 + seed]:
            tree, target = one.tree(models)
            path = GreedyMultiPath().judge(tree, target, Given(), torch.Generator().manual_seed(seed)).path.tolist()
            assert [tree.parents[node] for node in path] == [-1, *path[:-1]]


def test_greedy_decoding_follows_the_target(rng):
    tree, target = drafted(FIXED, SEQUENCES[2, 2], "iid")[-1].tree(FIXED)
    verdict = GreedyMultiPath().judge(tree, target, Sampling(0.0), rng)
    assert verdict.next_token == 0
