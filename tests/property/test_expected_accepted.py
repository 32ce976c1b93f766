"""Expected accepted tokens of a tree, of every rule: as in fractions, and as its own coins accept in the mean."""

from math import prod

import post_order
import pytest
import torch
from distributions import declared_pairs, name_of
from post_order import EXACT, KINDS, SHAPES, Given, Models, drafted, mean_accepted

from specdec_core.errors import PairError
from specdec_core.tree import TokenTree
from specdec_core.verifiers import (
    Block,
    Chain,
    Greedy,
    GreedyOne,
    SpecInfer,
    TargetSample,
    Traversal,
    WithoutReplacement,
)
from specdec_core.verifiers.expectation import expected_accepted

ROUNDS = {"iid": SpecInfer(), "without_replacement": WithoutReplacement(), "greedy_one": GreedyOne()}
BY_PATHS = [(Block(), "iid"), *((Traversal(draws=kind), kind) for kind in KINDS)]
OF_DRAWS = [*((rule, draws) for rule, draws in declared_pairs() if draws in KINDS), *BY_PATHS]
MODEL = Models.random(5)
COINS = 3000


@pytest.mark.few(12)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", SHAPES)
def test_of_traversal_and_of_rounds_it_is_that_in_fractions(shape, kind):
    for one in drafted(MODEL, SHAPES[shape], kind):
        tree, target = one.tree(MODEL)
        paths = mean_accepted(one, post_order.traversal(MODEL, one))
        assert expected_accepted(Traversal(draws=kind), tree, target, Given()) == pytest.approx(float(paths), abs=EXACT)
        rounds = post_order.multi_round(MODEL, one)
        assert expected_accepted(ROUNDS[kind], tree, target, Given()) == pytest.approx(float(rounds), abs=EXACT)


@pytest.mark.parametrize("kind", ["without_replacement", "greedy_one"])  # no path is drawn twice
def test_of_target_sampling_it_is_the_targets_probability_of_all_paths(kind):
    for one in drafted(MODEL, SHAPES["binary"], kind):
        paths = {text for text in one.texts if text}
        probs = [prod(MODEL.p(text[:end])[token] for end, token in enumerate(text)) for text in paths]
        assert expected_accepted(TargetSample(), *one.tree(MODEL), Given()) == pytest.approx(
            float(sum(probs)), abs=EXACT
        )


@pytest.mark.few(6)
@pytest.mark.parametrize(("rule", "draws"), OF_DRAWS, ids=["-".join(map(name_of, cell)) for cell in OF_DRAWS])
def test_coins_accept_as_many_in_the_mean(rule, draws):
    shape = SHAPES["chain_of_3" if isinstance(rule, Block | Chain) else "fork"]
    trees = drafted(MODEL, shape, draws)
    one = max(trees, key=lambda tree: tree.chance)
    tree, target = one.tree(MODEL)
    lengths = torch.tensor(
        [len(rule.judge(tree, target, Given(), torch.Generator().manual_seed(seed)).tokens) for seed in range(COINS)],
        dtype=torch.float64,
    )
    error = float(lengths.std()) / COINS**0.5
    assert abs(float(lengths.mean()) - expected_accepted(rule, tree, target, Given())) <= 5 * error + EXACT


def test_what_is_not_known_is_refused():
    one = drafted(MODEL, SHAPES["one"], "iid")[0]
    tree, target = one.tree(MODEL)
    with pytest.raises(TypeError, match="Greedy"):
        expected_accepted(Greedy(), tree, target, Given())
    bare = TokenTree(tree.tokens, tree.parents, None)
    for rule, draws in OF_DRAWS:
        if getattr(rule, "reads_q", True) and draws == "iid":
            with pytest.raises(PairError):
                expected_accepted(rule, bare, target, Given())
