"""Trees against oracles: brute force over all trees, explicit paths, plain forwards of the draft."""

from itertools import pairwise, product

import pytest
import torch
from doubles import TableDraft, context_for, paths_of, random_llama, random_q

from specdec_core import TokenTree, Verdict, shapes
from specdec_core.drafters import CausalDraft, Eagle2, OptTree, StaticTree
from specdec_core.drafters.growth import Growth, Layer, best_children
from specdec_core.models import ModelOutput

NO_TARGET = ModelOutput(torch.zeros(1, 1))


def path_prob(probs, path: tuple[int, ...]) -> float:
    value = 1.0
    for depth, token in enumerate(path):
        value *= float(probs(path[:depth])[token])
    return value


def best_sum(probs, vocab: int, n: int, depth: int) -> float:
    """The largest sum of path probabilities over all n-node subtrees that contain the root, by exchange of nodes.

    Path probabilities never grow along a path, so the n largest of all nodes are such a subtree.
    """
    values = [path_prob(probs, path) for length in range(1, depth + 1) for path in product(range(vocab), repeat=length)]
    return sum(sorted(values, reverse=True)[:n])


def opt_tree(probs, vocab: int = 3, **options) -> tuple[TokenTree, OptTree]:
    drafter = OptTree(draft=TableDraft(vocab, probs), **options)
    return drafter.grow(context_for()), drafter


def worked_example(path: tuple[int, ...]) -> torch.Tensor:
    """OPT-Tree, Figure 4: q at every node that has children; what is left goes to tokens never best."""
    table = {
        (): {0: 0.5, 1: 0.4},
        (0,): {0: 0.8, 1: 0.1},
        (1,): {0: 0.6, 1: 0.2},
        (0, 0): {0: 0.5, 1: 0.2},
        (1, 0): {0: 0.5},
    }
    probs = torch.zeros(40)
    for token, prob in table.get(path, {}).items():
        probs[token] = prob
    probs[2:] = (1 - probs[:2].sum()) / 38
    return probs


def test_the_papers_worked_example_gives_3_07():
    tree, _ = opt_tree(worked_example, vocab=40, n=9, delta=0.0, max_depth=3)
    assert tree.expected_acceptance.item() == pytest.approx(3.07)
    assert set(paths_of(tree)[1:]) == {(0,), (1,), (0, 0), (0, 1), (1, 0), (1, 1), (0, 0, 0), (0, 0, 1), (1, 0, 0)}


def test_ties_go_to_the_shallower_node():
    """a, b and a's certain child all have .5: n = 2 takes a and b."""
    probs = {(): [0.5, 0.5, 0.0], (0,): [1.0, 0.0, 0.0]}
    tree, _ = opt_tree(lambda path: torch.tensor(probs.get(path, [0.0, 0.0, 1.0])), n=2, delta=0.0, max_depth=3)
    assert paths_of(tree) == [(), (0,), (1,)]


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("n", [1, 2, 5, 9])
@pytest.mark.parametrize("depth", [1, 2, 4])
def test_equals_the_brute_force_optimum(seed, n, depth):
    probs = random_q(3, seed)
    tree, _ = opt_tree(probs, n=n, delta=0.0, max_depth=depth)
    total = sum(path_prob(probs, path) for path in paths_of(tree)[1:])
    drafted_depth = max(len(path) for path in paths_of(tree))
    assert tree.expected_acceptance.item() - 1 == pytest.approx(total)
    assert total == pytest.approx(best_sum(probs, 3, n, depth)) or drafted_depth < depth
    assert total == pytest.approx(best_sum(probs, 3, n, drafted_depth))


def spiky(path: tuple[int, ...]) -> torch.Tensor:
    """Exact ones and zeros, and uniform distributions: ties everywhere."""
    tables = [[1.0, 0, 0], [0.5, 0.5, 0], [1 / 3] * 3, [0, 0, 1.0]]
    return torch.tensor(tables[(sum(path) + len(path)) % 4])


@pytest.mark.parametrize("n", [1, 2, 3, 7, 20, 50])
def test_closed_under_parents_with_ties_ones_and_zeros(n):
    tree, drafter = opt_tree(spiky, n=n, delta=0.0, max_depth=6)
    assert (tree.parents[1:] < torch.arange(1, tree.num_nodes)).all()
    assert (tree.parents[1:] >= 0).all()
    assert len(set(paths_of(tree))) == tree.num_nodes
    drafted = 1 + sum(drafter.draft.expanded)
    assert tree.num_drafted == min(n, tree.num_drafted) <= 3 * drafted
    for node, path in enumerate(paths_of(tree)):
        assert tree.path_probs[node].item() == pytest.approx(path_prob(spiky, path))


@pytest.mark.parametrize("seed", range(5))
def test_pruning_dead_nodes_changes_nothing_but_the_cost(seed, monkeypatch):
    probs, deepen = random_q(7, seed, sharpness=3), Growth.deepen
    pruned, cheap = opt_tree(probs, vocab=7, n=12, delta=0.0, max_depth=6)
    monkeypatch.setattr(Growth, "deepen", lambda growth, alive: deepen(growth, 12))
    full, dear = opt_tree(probs, vocab=7, n=12, delta=0.0, max_depth=6)
    assert paths_of(pruned) == paths_of(full)
    assert torch.equal(pruned.edge_probs, full.edge_probs)
    assert sum(cheap.draft.expanded) < sum(dear.draft.expanded)


def test_expected_acceptance_never_falls_with_layers_or_budget():
    probs = random_q(5, 0)
    by_depth = [opt_tree(probs, vocab=5, n=10, delta=0.0, max_depth=depth)[0] for depth in range(1, 7)]
    by_n = [opt_tree(probs, vocab=5, n=n, delta=0.0, max_depth=4)[0] for n in range(1, 30)]
    for trees in (by_depth, by_n):
        values = [tree.expected_acceptance.item() for tree in trees]
        assert values == sorted(values)


def test_threshold_stops_growth_and_every_layer_drafted_is_used():
    probs = random_q(5, 1)
    assert opt_tree(probs, vocab=5, n=10, delta=1.0)[1].draft.expanded == []
    trees = {delta: opt_tree(probs, vocab=5, n=10, delta=delta) for delta in (0.0, 0.1, 0.3, 0.6)}
    forwards = [1 + len(drafter.draft.expanded) for _, drafter in trees.values()]
    assert forwards == sorted(forwards, reverse=True)
    assert forwards[0] > forwards[-1]


def test_one_layer_never_counts_more_than_1_although_its_probabilities_may_round_to_more():
    """Sums of float32 probabilities: delta = 1 must stop after one layer all the same."""
    probs = torch.randn(300, 32, generator=torch.Generator().manual_seed(0)).softmax(-1)
    assert all(not opt_tree(lambda path, row=row: row, vocab=32, n=32, delta=1.0)[1].draft.expanded for row in probs)


def test_budgets_beyond_the_vocabulary_and_a_vocabulary_of_one():
    tree, _ = opt_tree(random_q(3, 0), n=12, delta=0.0, max_depth=1)
    assert tree.num_drafted == 3
    chain, _ = opt_tree(lambda path: torch.ones(1), vocab=1, n=4, delta=0.0)
    assert paths_of(chain) == [(), (0,), (0, 0), (0, 0, 0), (0, 0, 0, 0)]


@pytest.mark.parametrize(
    "options", [{"n": 0}, {"n": 5, "delta": -0.1}, {"n": 5, "max_depth": 0}, {"n": 5, "draft_temperature": 0}]
)
def test_senseless_options_are_refused(options):
    with pytest.raises(ValueError, match="must"):
        OptTree(draft=TableDraft(3, spiky), **options)


@pytest.mark.parametrize("shape", [shapes.chain(4), shapes.kary(2, 4), shapes.eagle25(), shapes.k_sequences(3, 4)])
def test_fixed_trees_hold_the_ranked_children_and_forward_inner_nodes_only(shape):
    probs = random_q(9, 3)
    drafter = StaticTree(draft=TableDraft(9, probs), shape=shape)
    tree = drafter.grow(context_for())
    ranked = {(): ()}
    for path in shape.paths:
        best = probs(ranked[path[:-1]]).sort(descending=True, stable=True).indices
        ranked[path] = (*ranked[path[:-1]], int(best[path[-1]]))
    assert paths_of(tree) == [ranked[path] for path in ((), *shape.paths)]
    for node, path in enumerate(paths_of(tree)):
        assert tree.path_probs[node].item() == pytest.approx(path_prob(probs, path), rel=1e-5)
    inner = [sum(1 for node in level if shape.num_children[node]) for level in shape.levels]
    assert drafter.draft.expanded == [count for count in inner[1:] if count]


def test_eagles_tree_costs_five_forwards_of_4_4_1_1_nodes():
    drafter = StaticTree(draft=TableDraft(9, random_q(9, 0)), shape=shapes.eagle25())
    drafter.grow(context_for())
    assert drafter.draft.expanded == [4, 4, 1, 1]


@pytest.mark.parametrize("draws", ["iid", "without_replacement"])
def test_sampled_children_keep_their_distribution(draws):
    probs = random_q(5, 2)
    drafter = StaticTree(draft=TableDraft(5, probs), shape=shapes.branching([3, 2]), draws=draws)
    tree = drafter.grow(context_for())
    for node in range(tree.num_nodes):
        children = tree.children(node)
        expected = probs(paths_of(tree)[node]) if len(children) else torch.zeros(5)
        assert (tree.draft_rows[node] >= 0) == bool(len(children))
        assert not len(children) or torch.allclose(tree.q_after(node), expected)
        assert torch.allclose(tree.edge_probs[children], expected[tree.tokens[children]])
        if draws == "without_replacement":
            assert len(set(tree.tokens[children].tolist())) == len(children)


def test_draft_temperature_sharpens_the_probabilities_that_trees_believe():
    probs = random_q(5, 2)
    flat, sharp = (opt_tree(probs, vocab=5, n=2, delta=2.0, draft_temperature=t)[0] for t in (1.0, 0.5))
    assert sharp.edge_probs[1].item() == pytest.approx(float((probs(()) ** 2 / (probs(()) ** 2).sum()).max()))
    assert sharp.expected_acceptance > flat.expected_acceptance


def eagle2_oracle(probs, vocab: int, total: int, depth: int, k: int) -> list[tuple[int, ...]]:
    """EAGLE-2 as lists: pool everything, expand the best k, keep the total - 1 best (ties: the earlier)."""
    layer = sorted(((path_prob(probs, (t,)), (t,)) for t in range(vocab)), key=lambda node: -node[0])[:k]
    pool, beams = list(layer), layer
    for _ in range(depth):
        children = []
        for _, path in beams:
            ranked = probs(path).sort(descending=True, stable=True).indices[:k].tolist()
            children += [(path_prob(probs, (*path, token)), (*path, token)) for token in ranked]
        children.sort(key=lambda node: -node[0])
        pool += children
        beams = children[:k]
    best = sorted(range(len(pool)), key=lambda i: (-pool[i][0], i))[: total - 1]
    return [pool[i][1] for i in sorted(best)]


@pytest.mark.parametrize("seed", range(5))
def test_eagle2_equals_its_statement_as_lists(seed):
    probs = random_q(6, seed)
    drafter = Eagle2(draft=TableDraft(6, probs), total=15, depth=3, k=3)
    tree = drafter.grow(context_for())
    assert paths_of(tree)[1:] == eagle2_oracle(probs, 6, 15, 3, 3)
    assert tree.num_drafted == 14
    assert drafter.draft.expanded == [3, 3, 3]


def gains(seed, **options):
    """E(A) of EAGLE-2's trees of one layer, two layers, ..., root excluded, and the trees."""
    drafters = [Eagle2(draft=TableDraft(6, random_q(6, seed)), depth=depth, **options) for depth in range(6)]
    trees = [drafter.grow(context_for()) for drafter in drafters]
    return [float(tree.path_probs.sum()) - 1 for tree in trees], trees


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("delta", [0.0, 0.05, 0.2, 0.6, 5.0])
def test_eagle2_ends_behind_a_layer_that_gains_too_little(seed, delta):
    options = {"total": 9, "k": 2}
    sums, trees = gains(seed, **options)
    gained = [after - before > delta for before, after in pairwise([0.0, *sums])]
    last = gained.index(False) if False in gained else 5
    drafter = Eagle2(draft=TableDraft(6, random_q(6, seed)), depth=5, delta=delta, **options)
    assert paths_of(drafter.grow(context_for())) == paths_of(trees[min(last, 5)])
    assert len(drafter.draft.expanded) == min(last, 5)
    if not delta:
        assert paths_of(trees[-1]) == paths_of(trees[min(last, 5)]), "what adds nothing has nothing below it that does"


DRAFTERS = {
    "chain": lambda draft: StaticTree(draft=draft, shape=shapes.chain(3)),
    "eagle25": lambda draft: StaticTree(draft=draft, shape=shapes.eagle25()),
    "opt_tree": lambda draft: OptTree(draft=draft, n=12, delta=0.0, max_depth=5),
    "eagle2": lambda draft: Eagle2(draft=draft, total=20, depth=3, k=4),
    "wor": lambda draft: StaticTree(draft=draft, shape=shapes.branching([3, 2, 1]), draws="without_replacement"),
}


@pytest.mark.parametrize("name", DRAFTERS)
def test_draft_probabilities_equal_plain_forwards_also_after_commits(name, toy_draft):
    """q of every node, through tree masks and reuse of the cache, against the path fed as text."""
    drafter, rng = DRAFTERS[name](CausalDraft(toy_draft)), torch.Generator().manual_seed(5)
    committed = [3, 1, 4, 1, 5]
    drafter.reset(torch.tensor(committed), NO_TARGET)
    context = context_for(9, tuple(committed))
    for _ in range(4):
        tree = drafter.grow(context)
        for node, path in enumerate(paths_of(tree)[1:], start=1):
            with torch.inference_mode():
                logits = toy_draft.model(torch.tensor([[*context.tokens, *path[:-1]]])).logits[0, -1]
            assert tree.edge_probs[node].item() == pytest.approx(float(logits.softmax(-1)[path[-1]]), abs=1e-5)
        accepted = int(torch.randint(tree.num_nodes, (1,), generator=rng))
        path = tree.ancestor_mask[accepted].nonzero().flatten()
        tokens = tuple(tree.tokens[path[1:]].tolist())
        drafter.observe(Verdict(path, tokens, 7), NO_TARGET)
        context.advance(Verdict(path, tokens, 7))
        assert len(context.tokens) - 2 <= toy_draft.cache.length <= len(context.tokens) - 1


@pytest.mark.parametrize("seed", range(20))
def test_children_that_cannot_be_among_the_best_are_left_out_of_a_ranking_without_a_trace(seed):
    rng = torch.Generator().manual_seed(seed)
    q = (4 * torch.randn(6, 50, generator=rng)).softmax(-1)
    q[0, :10] = q[1, :10] = 0.02  # ties
    paths = torch.rand(6, dtype=torch.float64, generator=rng).sort(descending=True).values
    paths[1], paths[-1] = paths[0], 0.0
    for n in (1, 8, 300):
        whole = best_children(q, paths, n, n)
        for place in (0, n // 2, len(whole.paths) - 1):
            above = whole.paths[place]
            wanted = whole.paths > above
            few = best_children(q, paths, n, n, above)
            for name in Layer._fields:
                assert torch.equal(getattr(few, name)[: wanted.sum()], getattr(whole, name)[wanted]), name


@pytest.mark.parametrize("first", [3, 300])
def test_rows_below_any_number_of_first_tokens_are_those_of_plain_text(first: int) -> None:
    """A first level that is given, wider than the mask has room for at first, and two levels below it."""
    model = random_llama(0, vocab=400, positions=1024)
    draft, context = CausalDraft(model), context_for(7, prompt=(5, 1, 8))
    draft.reset(torch.tensor([5, 1, 8]), NO_TARGET)
    level = torch.arange(50, 50 + first)
    logits = [draft.begin_below(context, level).logits[-1]]
    logits.append(draft.expand(torch.tensor([9, 11]), torch.tensor([first - 1, 0])).logits[0])
    logits.append(draft.expand(torch.tensor([13]), torch.tensor([first])).logits[0])
    text, last = [5, 1, 8, 7], 50 + first - 1
    for path, row in zip(([last], [last, 9], [last, 9, 13]), logits, strict=True):
        plain = model.model(torch.tensor([[*text, *path]])).logits[0, -1]
        assert torch.allclose(row, plain, atol=1e-4)
