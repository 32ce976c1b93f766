"""No rule accepts more than the linear programme over all accept plans, and which rules reach it.

A plan says how often each node of every tree that may be drafted is accepted. It can be completed to a rule that keeps
the target's distribution if and only if a(s y) <= a(s) p(y | s) for every text s and token y. There a(s) is the
probability that what is accepted begins with s. On one level that is the transport optimum of the draws.
"""

from fractions import Fraction
from itertools import chain, combinations

import numpy as np
import pytest
from post_order import FIXED, KINDS, SHAPES, Drafted, Models, drafted, mean_accepted, multi_round, traversal
from scipy.optimize import linprog
from scipy.sparse import lil_matrix

NEAR = 1e-7
"""As far as the solver comes."""


def optimum(models: Models, trees: list[Drafted]) -> float:
    """The most tokens that a plan accepts in the mean."""
    nodes = [(number, text) for number, one in enumerate(trees) for text in one.texts]
    texts = {text: place for place, text in enumerate(sorted({text for _, text in nodes if text}))}
    chances = np.array([float(trees[number].chance) for number, _ in nodes])
    rows = lil_matrix((len(texts), len(nodes)))
    whole = lil_matrix((len(trees), len(nodes)))
    for place, (number, text) in enumerate(nodes):
        whole[number, place] = 1
        for end in range(1, len(text) + 1):
            rows[texts[text[:end]], place] += chances[place]
    for text, row in texts.items():  # a(s y) - a(s) p(y | s) <= 0
        limit = float(models.p(text[:-1])[text[-1]])
        for place, (_, accepted) in enumerate(nodes):
            if accepted[: len(text) - 1] == text[:-1]:
                rows[row, place] -= chances[place] * limit
    lengths = np.array([len(text) for _, text in nodes])
    found = linprog(
        -chances * lengths, rows.tocsr(), np.zeros(len(texts)), whole.tocsr(), np.ones(len(trees)), method="highs"
    )
    assert found.status == 0
    return -found.fun


def mean(trees: list[Drafted], models: Models) -> float:
    return float(sum(one.chance * mean_accepted(one, traversal(models, one)) for one in trees))


@pytest.mark.parametrize(
    ("shape", "kind", "most"),
    [
        ("chain", "iid", 1.25),
        ("first", "iid", 1.392),
        ("first", "without_replacement", 1.51),
        ("first", "greedy_one", 1.45),
        ("binary", "iid", 1.6788),
        ("binary", "without_replacement", 1.9645),
        ("binary", "greedy_one", 1.76),
    ],
)
def test_known_bounds(shape, kind, most):
    trees = drafted(FIXED, SHAPES[shape], kind)
    assert optimum(FIXED, trees) == pytest.approx(most, abs=5e-4)
    assert mean(trees, FIXED) <= most + 5e-4


@pytest.mark.few(6)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", ["one", "chain", "first", "second", "two_below_one"])
@pytest.mark.parametrize("seed", range(4))
def test_traversal_stays_below_and_reaches_it_on_chains(shape, kind, seed):
    models = Models.random(seed)
    trees = drafted(models, SHAPES[shape], kind)
    most, ours = optimum(models, trees), mean(trees, models)
    rounds = float(sum(one.chance * multi_round(models, one) for one in trees))
    assert rounds <= ours + NEAR
    assert ours <= most + NEAR
    if shape == "chain" or (shape == "one" and kind == "greedy_one"):
        assert ours == pytest.approx(most, abs=NEAR)


def transport(models: Models, trees: list[Drafted]) -> Fraction:
    """One level: the least of p(H) + 1 - Q(all children in H), over all sets H of tokens."""
    p, tokens = models.p(()), range(models.vocab)
    sets = chain.from_iterable(combinations(tokens, size) for size in range(models.vocab + 1))
    return min(
        sum((p[token] for token in some), Fraction(0))
        + 1
        - sum((one.chance for one in trees if {text[0] for text in one.texts[1:]} <= {*some}), Fraction(0))
        for some in sets
    )


@pytest.mark.parametrize(("kind", "most"), [("iid", "43/50"), ("without_replacement", "69/70"), ("greedy_one", "9/10")])
def test_one_level_is_transport(kind, most):
    trees = drafted(FIXED, SHAPES["one"], kind)
    assert transport(FIXED, trees) == Fraction(most)
    for models in (FIXED, *map(Models.random, range(5))):
        trees = drafted(models, SHAPES["one"], kind)
        assert optimum(models, trees) == pytest.approx(float(transport(models, trees)), abs=NEAR)


def test_a_bound_per_node_is_none_for_whole_paths():
    """A chain of two: 7/10 a node is 119/100 in all, and Block accepts 5/4."""
    one = float(transport(FIXED, drafted(FIXED, [-1, 0], "iid")))
    assert one == pytest.approx(0.7)
    assert one + one**2 == pytest.approx(1.19)
    assert optimum(FIXED, drafted(FIXED, SHAPES["chain"], "iid")) == pytest.approx(1.25, abs=NEAR)
