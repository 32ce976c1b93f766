"""Block verification: the paper's algorithm in fractions, its output distribution, and that it is for chains."""

from fractions import Fraction

import post_order
import pytest
import torch
from post_order import EXACT, FIXED, Given, Models, drafted, law_of, mean_accepted, off, same

from specdec_core.errors import PairError
from specdec_core.verifiers import Block

LENGTHS = range(1, 5)
THIRDS = Models(lambda text: (Fraction(1, 3), Fraction(2, 3)), lambda text: (Fraction(2, 3), Fraction(1, 3)), 2)
DRAWN = {(0, 0): ("4/9", "1/2"), (0, 1): ("2/9", "2"), (1, 0): ("2/9", "3/2"), (1, 1): ("1/9", "2")}
"""Of two drafted tokens: how likely they are, and how many are accepted in the mean."""


def chains(models: Models, length: int) -> list[post_order.Drafted]:
    return drafted(models, range(-1, length), "iid")


def mean(trees: list) -> float:
    return sum(one.chance * mean_accepted(one, law) for one, law in trees)


def test_the_example_of_two_tokens():
    found = {one.texts[-1]: one for one in chains(THIRDS, 2)}
    assert {*found} == {*DRAWN}
    for text, (chance, accepted) in DRAWN.items():
        assert found[text].chance == Fraction(chance)
        assert mean_accepted(found[text], post_order.block(THIRDS, found[text])) == Fraction(accepted)
        ours = mean_accepted(found[text], law_of(Block(), *found[text].tree(THIRDS)))
        assert ours == pytest.approx(float(Fraction(accepted)), abs=EXACT)
    by_token = sum(one.chance * post_order.multi_round(THIRDS, one) for one in found.values())
    assert (by_token, mean([(one, post_order.block(THIRDS, one)) for one in found.values()])) == (
        Fraction(10, 9),
        Fraction(11, 9),
    )


@pytest.mark.parametrize(("length", "by_token", "expected"), [(1, "7/10", "7/10"), (2, "119/100", "5/4")])
def test_known_means(length, by_token, expected):
    trees = chains(FIXED, length)
    assert sum(one.chance * post_order.multi_round(FIXED, one) for one in trees) == Fraction(by_token)
    assert mean([(one, post_order.block(FIXED, one)) for one in trees]) == Fraction(expected)
    ours = mean([(one, law_of(Block(), *one.tree(FIXED))) for one in trees])
    assert ours == pytest.approx(float(Fraction(expected)), abs=EXACT)


@pytest.mark.few(10)
@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("seed", range(10))
def test_it_is_the_papers_and_traversal_and_the_targets_law(length, seed):
    models = Models.random(seed, 3 if length < 4 else 2)
    trees = chains(models, length)
    exact = [(one, post_order.block(models, one)) for one in trees]
    assert off(models, exact, length + 1) == 0
    for one, law in exact:
        same(law, law_of(Block(), *one.tree(models)))
        same(law, post_order.traversal(models, one))


def test_equal_distributions_accept_all():
    models = Models(FIXED.q, FIXED.q)
    for one in chains(models, 3):
        tree, target = one.tree(models)
        for seed in range(5):
            rng = torch.Generator().manual_seed(seed)
            assert Block().judge(tree, target, Given(), rng).path.tolist() == [0, 1, 2, 3]


def test_trees_that_branch_are_refused(rng):
    tree, target = drafted(FIXED, [-1, 0, 1, 1], "iid")[0].tree(FIXED)
    with pytest.raises(PairError, match="not 2; draft a chain"):
        Block().judge(tree, target, Given(), rng)
