"""Traversal: its chances and residuals are the paper's in fractions, its output distribution is the target's."""

from fractions import Fraction

import post_order
import pytest
import torch
from post_order import (
    EXACT,
    FIXED,
    KINDS,
    SHAPES,
    Drafted,
    Given,
    Law,
    Models,
    adaptive,
    drafted,
    law_of,
    mean_accepted,
    off,
    same,
)

from specdec_core import Sampling, TokenTree
from specdec_core.errors import NonFiniteLogitsError, PairError
from specdec_core.models import ModelOutput
from specdec_core.node_order import node_order, reordered
from specdec_core.tree import Verdict
from specdec_core.verifiers import GreedyOne, SpecInfer, Traversal, WithoutReplacement, traversal
from specdec_core.verifiers.rounds import family

RULES = {kind: Traversal(draws=kind) for kind in KINDS}
MEANS = [
    ("one", "iid", "19/25", "19/25"),
    ("one", "without_replacement", "41/50", "41/50"),
    ("chain", "iid", "119/100", "5/4"),
    ("first", "iid", "5/4", "131/100"),
    ("first", "without_replacement", "131/100", "137/100"),
    ("binary", "iid", "836/625", "866/625"),
    ("binary", "without_replacement", "3731/2500", "3821/2500"),
    ("one", "greedy_one", "9/10", "9/10"),
    ("first", "greedy_one", "139/100", "29/20"),
    ("binary", "greedy_one", "171/100", "44/25"),
]
"""Mean accepted tokens where p and q are the same at every node: of multi-round, and of Traversal."""


def judged(models: Models, trees: list[Drafted], kind: str) -> list[tuple[Drafted, Law]]:
    return [(one, law_of(RULES[kind], *one.tree(models))) for one in trees]


def mean(trees: list[tuple[Drafted, Law]]) -> float:
    return sum(one.chance * mean_accepted(one, law) for one, law in trees)


@pytest.mark.parametrize(("shape", "kind", "by_rounds", "expected"), MEANS)
def test_known_means(shape, kind, by_rounds, expected):
    trees = drafted(FIXED, SHAPES[shape], kind)
    assert sum(one.chance * post_order.multi_round(FIXED, one) for one in trees) == Fraction(by_rounds)
    exact = [(one, post_order.traversal(FIXED, one)) for one in trees]
    assert mean(exact) == Fraction(expected)
    assert mean(judged(FIXED, trees, kind)) == pytest.approx(float(Fraction(expected)), abs=EXACT)


def test_a_traced_tree():
    """The root drew 2, then 0, and 2 drew 0: both tokens of that path are accepted for sure, 7/5 by rounds."""
    law = tuple(Fraction(x, 5) for x in (2, 3, 0))
    one = Drafted([(), (2,), (0,), (2, 0)], [-1, 0, 0, 1], [(), post_order.Q, law, post_order.Q])
    tree, target = one.tree(FIXED)
    chance, left = law_of(RULES["without_replacement"], tree, target)[3]
    assert (chance, *left) == pytest.approx((1, 0.5, 0.3, 0.2), abs=EXACT)
    assert post_order.multi_round(FIXED, one) == 1 + Fraction(2, 5)
    for seed in range(20):
        rng = torch.Generator().manual_seed(seed)
        assert RULES["without_replacement"].judge(tree, target, Given(), rng).path.tolist() == [0, 1, 3]


@pytest.mark.few(16)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("seed", range(6))
def test_the_law_of_the_next_tokens_is_the_targets(shape, kind, seed):
    models = Models.random(seed)
    trees = drafted(models, SHAPES[shape], kind)
    length = 1 + max(len(one.texts[-1]) for one in trees)
    exact = [(one, post_order.traversal(models, one)) for one in trees]
    assert off(models, exact, length) == 0
    ours = judged(models, trees, kind)
    assert off(models, ours, length) < EXACT
    for (_, wanted), (_, found) in zip(exact, ours, strict=True):
        same(wanted, found)


@pytest.mark.few(10)
@pytest.mark.parametrize("kind", ["iid", "without_replacement"])  # of greedy children the number is known before
@pytest.mark.parametrize("seed", range(30))
def test_trees_that_grow_by_what_was_drawn_before(seed, kind):
    models = Models.random(100 + seed)
    assert off(models, judged(models, adaptive(models, seed, kind), kind), 3) < EXACT


def test_a_child_that_is_dropped_for_what_it_is_shows():
    """Of a drawn child that q thinks improbable nothing is left in the tree."""

    def dropped(one: Drafted, models: Models) -> Drafted:
        last = one.texts[-1]
        if models.q(last[:-1])[last[-1]] >= Fraction(1, 3):
            return one
        return Drafted(one.texts[:-1], one.parents[:-1], one.laws[:-1], one.chance)

    found = []
    for seed in range(10):
        models = Models.random(seed)
        trees = [dropped(one, models) for one in drafted(models, SHAPES["chain"], "iid")]
        found.append(off(models, judged(models, trees, "iid"), 3))
    assert max(found) > 1e-3


def test_children_that_are_judged_in_another_order_than_drawn_show():
    found = []
    for seed in range(10):
        models = Models.random(seed)
        trees = drafted(models, SHAPES["one"], "without_replacement")
        swapped = [Drafted([(), *one.texts[:0:-1]], one.parents, one.laws, one.chance) for one in trees]
        assert off(models, judged(models, trees, "without_replacement"), 2) < EXACT
        found.append(off(models, judged(models, swapped, "without_replacement"), 2))
    assert max(found) > 1e-3


@pytest.mark.few(30)
@pytest.mark.parametrize("seed", range(1000))
def test_never_below_rounds_and_equal_to_them_on_one_level(seed):
    kind, shape = KINDS[seed % 3], [*SHAPES][seed // 3 % len(SHAPES)]
    models = Models.random(1000 + seed)
    trees = drafted(models, SHAPES[shape], kind)
    rounds = float(sum(one.chance * post_order.multi_round(models, one) for one in trees))
    ours = mean(judged(models, trees, kind))
    assert ours >= rounds - EXACT
    if shape == "one":
        assert ours == pytest.approx(rounds, abs=EXACT)


@pytest.mark.parametrize(
    ("kind", "rule"),
    [("iid", SpecInfer()), ("without_replacement", WithoutReplacement()), ("greedy_one", GreedyOne())],
)
def test_one_level_is_judged_as_by_rounds(kind, rule):
    """Each drafted tree alone, with the same coins."""
    models = Models.random(3)
    for one in drafted(models, [-1, 0, 0, 0], kind):
        tree, target = one.tree(models)
        law, reach = law_of(RULES[kind], tree, target), 1.0
        rounds = rule.rounds(target.logits[0], tree.draft_probs[0], tree.tokens[1:])
        for child, accept in enumerate(rounds.accept.tolist(), 1):
            assert reach * law[child][0] == pytest.approx(reach * accept, abs=EXACT)
            reach *= 1 - accept
        assert law[0][0] == 1
        if reach > EXACT:
            assert law[0][1] == pytest.approx(rounds.residual.tolist(), abs=EXACT)


def test_coins_decide_from_the_leaves_to_the_root(monkeypatch):
    """Accepted is the first node, children before their parent, whose coin is below its chance; the residual is its."""
    models, seen = Models.random(8), []

    def ended(path, probs, *_):
        seen.append((path, probs.tolist()))
        return Verdict(torch.tensor(path), (), 0)

    monkeypatch.setattr(traversal, "ended", ended)
    for kind in KINDS:
        for number, one in enumerate(drafted(models, SHAPES["binary"], kind)):
            tree, target = one.tree(models)
            rng = torch.Generator().manual_seed(number)
            coins = torch.rand(tree.num_nodes, dtype=torch.float64, generator=rng)
            monkeypatch.setattr(traversal, "one_for_each", lambda *_, coins=coins: coins)
            RULES[kind].judge(tree, target, Given(), rng)
            law = post_order.traversal(models, one)
            node, probs = next((node, probs) for node, (chance, probs) in law.items() if float(coins[node]) < chance)
            path, left = seen.pop()
            assert path[-1] == node
            assert [int(tree.tokens[at]) for at in path[1:]] == [*one.texts[node]]
            assert left == pytest.approx([float(x) for x in probs], abs=EXACT)


@pytest.mark.parametrize("spoilt", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_all_nodes_at_once_go_the_same(kind, spoilt, rng):
    """As on a GPU, with the same coins; also where p are no numbers after a node."""
    models, rule = Models.random(21), RULES[kind]
    for one in drafted(models, SHAPES["binary"], kind)[::7]:
        tree, target = one.tree(models)
        if spoilt:
            target.logits[1] = torch.nan
        tokens, children = family(tree)
        given, coins = (
            (tree, target, Given(), tokens, children),
            torch.rand(7, dtype=torch.float64, generator=rng).tolist(),
        )
        (path, rounds), (own, known) = (
            traversal.accepted(children, coins, begin(*given)) for begin in (rule.rounds_of, rule._at_once)
        )
        assert own == path
        torch.testing.assert_close(known.residual(), rounds.residual(), rtol=0, atol=EXACT, equal_nan=True)


def test_the_numbering_of_nodes_does_not_matter(rng):
    """Breadth first, and depth first."""
    models = Models.random(5)
    for kind in KINDS:
        for one in drafted(models, SHAPES["binary"], kind):
            tree, target = one.tree(models)
            order = node_order(tree, "dfs")
            moved = law_of(RULES[kind], reordered(tree, order), ModelOutput(target.logits[order]))
            assert {int(order[node]): found for node, found in moved.items()} == law_of(RULES[kind], tree, target)


def test_equal_distributions_accept_the_first_path():
    models = Models(FIXED.q, FIXED.q)
    for kind in ("iid", "without_replacement"):
        for one in drafted(models, SHAPES["binary"], kind):
            law = law_of(RULES[kind], *one.tree(models))
            assert [node for node in law if law[node][0] == pytest.approx(1, abs=EXACT)][:1] == [3]


@pytest.mark.parametrize("row", [0, 1])
@pytest.mark.parametrize("whose", ["target", "draft"])
@pytest.mark.parametrize("kind", KINDS)
def test_numbers_that_are_none_are_refused(kind, whose, row):
    """Of the root, and of a node that is come to."""
    tree, target = drafted(FIXED, SHAPES["binary"], kind)[-1].tree(FIXED)
    p, q = target.logits.log(), tree.draft_probs.clone()
    (p if whose == "target" else q)[row] = torch.nan
    spoilt = TokenTree(tree.tokens, tree.parents, tree.edge_probs, q, tree.draft_rows)
    for seed in range(10):
        with pytest.raises(NonFiniteLogitsError, match=whose):
            RULES[kind].judge(spoilt, ModelOutput(p), Sampling(1.0), torch.Generator().manual_seed(seed))


def test_a_tree_without_q_is_refused_and_a_bare_root_is_not(rng):
    tree, target = drafted(FIXED, SHAPES["binary"], "iid")[0].tree(FIXED)
    for edges in (None, tree.edge_probs):
        with pytest.raises(PairError, match="draft_probs"):
            Traversal().judge(TokenTree(tree.tokens, tree.parents, edges), target, Given(), rng)
    bare = TokenTree.root_only(0, torch.device("cpu"))
    counts = torch.zeros(3)
    for _ in range(2000):
        counts[Traversal().judge(bare, ModelOutput(target.logits[:1]), Given(), rng).next_token] += 1
    assert (counts / 2000 - target.logits[0]).abs().max() < 0.05
    with pytest.raises(ValueError, match="topk"):
        Traversal(draws="topk")


def test_a_virtual_root_has_the_targets_own_distribution(rng):
    tree, target = drafted(FIXED, SHAPES["first"], "iid")[-1].tree(FIXED)
    sure = torch.zeros(3, dtype=torch.float64).index_fill_(0, tree.tokens[1], 1.0)
    own = ModelOutput(target.logits.log().index_fill(0, torch.tensor([0]), torch.nan), None, sure)
    assert RULES["iid"].judge(tree, own, Sampling(1.0), rng).tokens[0] == int(tree.tokens[1])


def test_temperature_0_is_the_greedy_walk(rng):
    tree, _ = drafted(FIXED, SHAPES["binary"], "without_replacement")[0].tree(FIXED)
    logits = torch.zeros(7, 3).scatter(1, tree.tokens[[2, 0, 5, 0, 0, 0, 0]][:, None], 1.0)
    assert Traversal().judge(tree, ModelOutput(logits), Sampling(0.0), rng).path.tolist() == [0, 2, 5]


@pytest.mark.parametrize("rest", [1e-5, 1e-11, 1e-12, 1e-13, 0.0])
def test_many_rejections_that_are_hardly_possible_do_not_underflow(rest):
    """Chances and residuals stay such however little is left."""
    p, q = torch.tensor([[1.0, 0.0, 0.0], [1 - rest, rest, 0.0]], dtype=torch.float64)
    for drawn in ([0] * 40, [1] * 40, [0, 1, 2] * 14):
        parents = torch.tensor([-1, *[0] * len(drawn), *range(1, len(drawn) + 1)])
        tokens, count = torch.tensor([0, *drawn, *drawn]), 1 + 2 * len(drawn)
        inner = 1 + len(drawn)
        rows = torch.where(torch.arange(count) < inner, torch.arange(count), -1)
        tree = TokenTree(tokens, parents, torch.ones(count), q.expand(inner, -1), rows)
        for rule in RULES.values():
            law = law_of(rule, tree, ModelOutput(p.expand(count, -1)))
            assert law[0][0] == 1
            for chance, left in law.values():
                assert 0 <= chance <= 1
                assert sum(left) == pytest.approx(1)
                assert min(left) >= 0
