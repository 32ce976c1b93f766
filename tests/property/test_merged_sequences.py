"""Independent sequences that share a prefix, as a trie: the target's distribution, more accepted tokens."""

from collections import defaultdict
from dataclasses import replace
from itertools import product

import pytest
import torch
from distributions import name_of, random_pq, tensor
from doubles import random_llama
from torch import Tensor

from specdec_core import shapes
from specdec_core.drafters import StaticTree
from specdec_core.drafters.static_tree import levels_above, trie
from specdec_core.shapes import TreeShape
from specdec_core.tree import TokenTree
from specdec_core.verifiers import ChildByChild, KSeq, MultiCandidate, SpecInfer, TargetSample

VOCAB = 3
SHAPES = {"two of two": shapes.k_sequences(2, 2), "three of two": shapes.k_sequences(3, 2), "binary": shapes.kary(2, 2)}
Model = dict[tuple[int, ...], tuple[Tensor, Tensor]]


def model_of(seed: int) -> Model:
    """P and q after every text of at most two tokens."""
    texts = [text for length in range(3) for text in product(range(VOCAB), repeat=length)]
    pairs = {text: random_pq(VOCAB, 100 * seed + number) for number, text in enumerate(texts)}
    return {text: (tensor(p), tensor(q)) for text, (p, q) in pairs.items()}


def drawn(shape, model: Model):
    """Every tree of independent draws, sequences apart, and its probability."""
    for tokens in product(range(VOCAB), repeat=shape.num_drafted):
        texts, chance = [()], 1.0
        for token, parent in zip(tokens, shape.parents[1:], strict=True):
            chance *= float(model[texts[parent]][1][token])
            texts.append((*texts[parent], token))
        if chance:
            yield TokenTree(torch.tensor([0, *tokens]), torch.tensor(shape.parents), None), chance


def merged(shape, tree: TokenTree) -> TokenTree:
    levels = [tree.tokens[level.start : level.stop] for level in shape.levels]
    return replace(tree, parents=trie(levels, [torch.tensor(one) for one in levels_above(shape)]))


def outcomes(rule: ChildByChild, tree: TokenTree, model: Model) -> dict[tuple[tuple[int, ...], int], float]:
    """Probability of each accepted path with the token behind it, from the rule's rounds at every node."""
    found: dict[tuple[tuple[int, ...], int], float] = defaultdict(float)

    def visit(node: int, text: tuple[int, ...], reach: float) -> None:
        p, q = model[text]
        children = tree.children(node)
        left = p
        if len(children):
            rounds = rule.rounds(p, q, tree.tokens[children])
            for child, accept in zip(children.tolist(), rounds.accept.tolist(), strict=True):
                if reach * accept:
                    visit(child, (*text, int(tree.tokens[child])), reach * accept)
                reach *= 1 - accept
            left = rounds.residual
        for token in range(VOCAB):
            found[text, token] += reach * float(left[token])

    visit(0, (), 1.0)
    return found


def law_and_length(rule: ChildByChild, shape, model: Model, *, as_trie: bool) -> tuple[dict, float]:
    """Of the first three tokens, the target going on behind the step; and how many drafted tokens are accepted."""
    law, length = defaultdict(float), 0.0
    for tree, chance in drawn(shape, model):
        for (path, token), prob in outcomes(rule, merged(shape, tree) if as_trie else tree, model).items():
            length += chance * prob * len(path)
            rest = {(*path, token): chance * prob}
            while len(next(iter(rest))) < 3:
                rest = {
                    (*text, t): mass * float(model[text][0][t]) for text, mass in rest.items() for t in range(VOCAB)
                }
            for text, mass in rest.items():
                law[text] += mass
    return law, length


def target(model: Model) -> dict:
    """The target's own probability of every three tokens."""
    return {
        text: float(model[()][0][text[0]] * model[text[:1]][0][text[1]] * model[text[:2]][0][text[2]])
        for text in product(range(VOCAB), repeat=3)
    }


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("rule", [SpecInfer(), MultiCandidate(replacement=True), KSeq(), TargetSample()], ids=name_of)
def test_merged_sequences_keep_the_targets_distribution(rule, shape):
    model = model_of(3)
    law, _ = law_and_length(rule, shape, model, as_trie=True)
    for text, prob in target(model).items():
        assert law[text] == pytest.approx(prob, abs=1e-12), text


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_more_tokens_are_accepted_than_apart(shape):
    """In expectation, of every model: a repeated path's second subtree is dead where sequences are kept apart."""
    gains = []
    for seed in range(4):
        apart, whole = (law_and_length(SpecInfer(), shape, model_of(seed), as_trie=one)[1] for one in (False, True))
        gains.append(whole / apart - 1)
    assert min(gains) > -1e-12
    assert max(gains) > 0.005


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_nodes_keep_their_paths_and_repeats_become_leaves(shape):
    for tree, _ in drawn(shape, model_of(0)):
        made = merged(shape, tree)
        assert (made.parents[1:] < torch.arange(1, made.num_nodes)).all()
        paths = [
            [tuple(one.tokens[one.ancestor_mask[node]].tolist()) for node in range(one.num_nodes)]
            for one in (tree, made)
        ]
        assert paths[0] == paths[1]
        parents = [paths[0].index(paths[0][parent]) for parent in tree.parents[1:].tolist()]
        assert made.parents.tolist() == [-1, *parents]


def test_a_path_whose_first_node_would_be_a_leaf_is_refused():
    tiny = random_llama(0)
    uneven = TreeShape.from_paths([(0,), (1,), (1, 0)])
    with pytest.raises(ValueError, match="come first"):
        StaticTree(draft=tiny, shape=uneven, draws="iid", merged=True)
    assert StaticTree(draft=tiny, shape=uneven, draws="without_replacement", merged=True).merged is False
    assert StaticTree(draft=tiny, shape=shapes.k_sequences(2, 2), draws="iid", merged=True).merged
