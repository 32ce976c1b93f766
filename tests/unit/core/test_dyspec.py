"""DySpec's trees against the paper's algorithm, word for word, on the same races."""

import heapq
from itertools import count, product
from zlib import crc32

import numpy as np
import pytest
import torch
from doubles import TableDraft, context_for, paths_of, random_q

from specdec_core import Sampling, generate
from specdec_core.drafters import DySpec, DySpecHeap, DySpecThreshold, dyspec
from specdec_core.drafters.sites import Sites
from specdec_core.errors import NonFiniteLogitsError
from specdec_core.sampling import draft_probs, race
from specdec_core.verifiers import MultiCandidate, WithoutReplacement
from specdec_trees.prompts.embedded import prompts, tiny_pair


def fixed_race(q, rng=None):
    """A race that is a function of the distribution, so that every way of growing a tree meets the same draws."""
    seeds = [crc32(row.numpy().tobytes()) for row in q]
    return torch.cat([race(row[None], torch.Generator().manual_seed(seed)) for row, seed in zip(q, seeds, strict=True)])


@pytest.fixture(autouse=True)
def same_draws(monkeypatch):
    monkeypatch.setattr(dyspec, "race", fixed_race)


def q_at(draft, path, temperature=0.6):
    return (draft.probs(path).log()[None] / temperature).softmax(-1)


def exact_q_at(draft, path):
    """Without the rounding of float32, in which a distribution does not sum to 1."""
    q = q_at(draft, tuple(path))[0].double()
    return q / q.sum()


class Literal:
    """Algorithm 1 as printed, with a residual R per node: pop (R, v), draw y, v R[y] below, v (1 - R[y]) beside.

    `opened` are the nodes that the draft has read: lazily when their first site is popped, or (eager) when created.
    """

    def __init__(self, draft, n, *, max_depth=32, eager=False):
        self.draft, self.paths, self.values, self.opened = draft, [], [], []
        ties, self.nodes = count(), [()]
        heap = [(-1.0, 1, next(ties), (), None)]
        while heap and len(self.paths) < n:
            minus_v, depth, _, path, left = heapq.heappop(heap)
            if left is None:
                left = self.open(path)
            order, residual = left
            y = order[0]
            chance = residual[y]
            child = (*path, y)
            self.paths.append(child)
            self.values.append(-minus_v)
            residual = residual.copy()
            residual[y] = 0
            if len(order) > 1 and residual.sum() > 0:
                beside = -minus_v * (1 - chance)
                if beside > 1e-12:
                    heapq.heappush(heap, (-beside, depth, next(ties), path, (order[1:], residual / residual.sum())))
            if depth < max_depth:
                opened = self.open(child) if eager else None
                heapq.heappush(heap, (minus_v * chance, depth + 1, next(ties), child, opened))

    def open(self, path):
        self.opened.append(path)
        q = q_at(self.draft, path)
        times = fixed_race(q)[0]
        order = [token for token in times.argsort().tolist() if times[token].isfinite()]
        return order, exact_q_at(self.draft, path).numpy()


def grown(draft, make=DySpec, **options):
    return make(draft=draft, **options).grow(context_for())


def known(tree):
    """What a tree says of every node, by its path: probability, and q of its children where it has any."""
    rows = [tree.q_after(node).tolist() if len(tree.children(node)) else None for node in range(tree.num_nodes)]
    return dict(zip(paths_of(tree), zip(tree.edge_probs.tolist(), rows, strict=True), strict=True))


CASES = [
    (vocab, n, sharpness, max_depth)
    for vocab, sharpness in [(3, 1.0), (12, 2.0), (40, 0.5), (40, 4.0), (200, 3.0)]
    for n in (1, 2, 5, 17, 64, 100)
    for max_depth in (32, 2)
]


@pytest.mark.few(15)
@pytest.mark.parametrize(("vocab", "n", "sharpness", "max_depth"), CASES)
def test_reading_layers_grows_the_tree_of_the_heap(vocab, n, sharpness, max_depth):
    for seed in range(4):
        draft = TableDraft(vocab, random_q(vocab, seed, sharpness))
        heap, tree = Literal(draft, n, max_depth=max_depth), grown(draft, n=n, max_depth=max_depth)
        assert sorted(paths_of(tree)[1:]) == sorted(heap.paths)
        layers = max(len(path) for path in heap.paths)
        assert 1 + len(draft.expanded) <= layers + 1, "one forward per layer, and at most one that reveals nothing"
        assert tree.depths.max() == layers


@pytest.mark.few(15)
@pytest.mark.parametrize(("vocab", "n", "sharpness", "max_depth"), CASES)
def test_one_forward_a_node_grows_the_printed_tree_and_that_of_the_layers(vocab, n, sharpness, max_depth):
    for seed in range(4, 12):
        draft = TableDraft(vocab, random_q(vocab, seed, sharpness))
        tree = grown(draft, DySpecHeap, n=n, max_depth=max_depth)
        assert draft.expanded == [1] * tree.num_drafted, "the root, and every node alone when it is made"
        assert draft.paths == paths_of(tree)[1:], "in the order of their slots"
        assert paths_of(tree)[1:] == Literal(draft, n, max_depth=max_depth, eager=True).paths, "popped in this order"
        assert known(tree) == known(grown(draft, n=n, max_depth=max_depth))


@pytest.mark.parametrize("seed", range(20))
def test_the_heap_takes_the_drafts_best_tokens_where_it_is_to(seed):
    draft = TableDraft(30, random_q(30, seed))
    heap, layers = (grown(draft, make, n=40, draws="topk") for make in (DySpecHeap, DySpec))
    assert heap.draft_probs is None
    assert dict(zip(paths_of(heap), heap.edge_probs.tolist(), strict=True)) == dict(
        zip(paths_of(layers), layers.edge_probs.tolist(), strict=True)
    )


@pytest.mark.parametrize("seed", range(5))
def test_values_fall_along_the_pops_and_need_no_residual(seed):
    """V(u, k) = f(u) (1 - S_{k-1}), with the draft's own probabilities (spec of section 4.1's sites)."""
    draft = TableDraft(20, random_q(20, seed))
    heap = Literal(draft, 60)
    values = dict(zip(heap.paths, heap.values, strict=True))
    assert all(a >= b for a, b in zip(heap.values, heap.values[1:], strict=False))
    for path, value in values.items():
        *above, last = path
        f = np.prod([float(exact_q_at(draft, above[:i])[token]) for i, token in enumerate(above)])
        q = q_at(draft, tuple(above))[0]
        earlier = [token for token in fixed_race(q[None])[0].argsort().tolist() if (*above, token) in values]
        drawn = sum(float(exact_q_at(draft, above)[token]) for token in earlier[: earlier.index(last)])
        assert value == pytest.approx(f * (1 - drawn), abs=1e-9)
    sites = chosen_sites(draft, 60)
    assert np.sort(sites._values)[::-1][:60] == pytest.approx(heap.values, abs=1e-9)


def chosen_sites(draft, n, **options):
    """The sites behind a tree."""
    drafter, kept = DySpec(draft=draft, n=n, **options), []
    make = drafter._sites
    drafter._sites = lambda root: kept.append(make(root)) or kept[0]
    drafter.grow(context_for())
    return kept[0]


def test_reading_a_node_when_it_is_made_or_when_it_is_needed_is_the_same_tree():
    draft = TableDraft(30, random_q(30, 3))
    lazy, eager = Literal(draft, 40), Literal(draft, 40, eager=True)
    assert lazy.paths == eager.paths
    assert len(eager.opened) == 40 + 1
    assert set(lazy.opened) == {path[:-1] for path in lazy.paths}, "the paper's heap reads the inner nodes"


@pytest.mark.parametrize("seed", range(8))
def test_the_heap_equals_exhaustive_search(seed):
    """No valid tree of n sites has a larger sum of values: of those closed under parents and elder siblings."""
    vocab, n = 3, 5
    draft = TableDraft(vocab, random_q(vocab, seed))
    values, needs = {}, {}

    def open_node(path, f):
        q = q_at(draft, path)[0]
        drawn, elder = 0.0, path
        for token in fixed_race(q[None])[0].argsort().tolist():
            child = (*path, token)
            values[child], needs[child] = f * (1 - drawn), elder
            drawn, elder = drawn + float(q[token]), child
            if len(child) < n:
                open_node(child, f * float(q[token]))

    open_node((), 1.0)
    trees = {frozenset()}
    for _ in range(n):
        trees = {
            tree | {site}
            for tree in trees
            for site in values.keys() - tree
            if (not needs[site] or needs[site] in tree) and (len(site) == 1 or site[:-1] in tree)
        }
    best = max(sum(values[site] for site in tree) for tree in trees)
    tree = grown(draft, n=n)
    assert sum(values[path] for path in paths_of(tree)[1:]) == pytest.approx(best, abs=1e-6)


@pytest.mark.parametrize("n", [1, 7, 40])
@pytest.mark.parametrize("seed", range(5))
def test_the_heaps_last_value_as_threshold_gives_its_tree(n, seed):
    draft = TableDraft(25, random_q(25, seed))
    threshold = np.sort(chosen_sites(draft, n)._values)[-n]
    layered = DySpecThreshold(draft=draft, n=10 * n, threshold=float(threshold)).grow(context_for())
    assert sorted(paths_of(layered)) == sorted(paths_of(grown(draft, n=n)))


def test_thresholds_at_both_ends():
    draft = TableDraft(3, random_q(3, 0))
    assert DySpecThreshold(draft=draft, n=8, threshold=1.1).grow(context_for()).num_drafted == 0
    everything = DySpecThreshold(draft=draft, n=1000, threshold=1e-11, max_depth=3).grow(context_for())
    assert everything.num_drafted == 3 + 9 + 27, "every token of three layers; the support is exhausted"
    assert DySpecThreshold(draft=draft, n=8).threshold == 1 / 8


def test_a_layer_that_exceeds_the_budget_ends_the_tree_with_its_best_sites():
    draft = TableDraft(25, random_q(25, 1))
    free = DySpecThreshold(draft=draft, n=1000, threshold=0.01).grow(context_for())
    widths = torch.bincount(free.depths).tolist()
    cap = widths[1] + widths[2] // 2
    capped = DySpecThreshold(draft=draft, n=cap, threshold=0.01).grow(context_for())
    assert torch.bincount(capped.depths).tolist() == [1, widths[1], widths[2] // 2]
    assert set(paths_of(capped)) < set(paths_of(free))
    for node in range(capped.num_nodes):
        same = paths_of(free).index(paths_of(capped)[node])
        children = [int(token) for token in capped.tokens[capped.children(node)]]
        assert children == [int(token) for token in free.tokens[free.children(same)]][: len(children)], "elder first"


@pytest.mark.parametrize("draws", ["without_replacement", "topk"])
def test_a_tree_knows_its_distributions(draws):
    draft = TableDraft(30, random_q(30, 7))
    tree = grown(draft, n=50, draws=draws)
    assert tree.num_drafted == 50
    for node, path in enumerate(paths_of(tree)):
        children = tree.children(node)
        if not len(children):
            continue
        q, tokens = q_at(draft, path)[0], tree.tokens[children].tolist()
        wanted = (fixed_race(q[None])[0] if draws != "topk" else -q).argsort()[: len(tokens)].tolist()
        assert tokens == wanted, "siblings in draft order, without repeats"
        assert torch.allclose(tree.edge_probs[children], q[tokens])
        assert draws == "topk" or torch.equal(tree.q_after(node), q)
    assert draws != "topk" or tree.draft_probs is None


@pytest.mark.parametrize("make", [DySpec, DySpecHeap, DySpecThreshold])
def test_every_distribution_of_every_step_is_the_drafts_after_its_path(make, tiny, tiny_draft, monkeypatch):
    """What was accepted stays in the draft's cache: a draft that reads everything anew gives the same distributions."""
    monkeypatch.setattr(dyspec, "race", race)
    prompt, gaps = tiny.tokenizer(prompts(1)[0].turns[0])["input_ids"][:64], []
    committed = list(prompt)

    def watch(tree, scored, verdict):
        for node, path in enumerate(paths_of(tree)):
            if not len(tree.children(node)):
                continue
            text = torch.tensor([*committed, int(tree.tokens[0]), *path])
            tiny_draft.reset(len(text))
            q = draft_probs(tiny_draft.prefill(text).logits[-1:], 0.6)[0]
            gaps.append(float((q - tree.q_after(node)).abs().max()))
        committed.extend([int(tree.tokens[0]), *verdict.tokens])

    drafter = make(draft=tiny.draft, n=20)
    found = generate(
        tiny.target, drafter, MultiCandidate(), prompt, max_new_tokens=24, sampling=Sampling(0.6), watch=watch
    )
    assert max(gaps) < 1e-4
    assert max(step.num_accepted for step in found.steps) > 1
    if make is DySpecHeap:
        assert {(step.num_drafted, step.draft_forwards) for step in found.steps} == {(20, 21)}
        assert [step.draft_tokens for step in found.steps[1:]] == [21] * (len(found.steps) - 1), "what is kept was read"
    else:
        assert sum(step.draft_tokens for step in found.steps) < 20 * len(found.steps), "not all nodes are read"


@pytest.fixture
def tiny_draft():
    """Weights of the embedded draft, in a model of its own."""
    pair = tiny_pair()
    return pair.draft


@pytest.mark.parametrize("make", [DySpec, DySpecHeap])
def test_a_certain_draft_gives_a_chain(make):
    """Sites of equal value go to the shallower node; no node has a second child to draw."""
    certain = torch.zeros(9)
    certain[4] = 1
    tree = grown(TableDraft(9, lambda path: certain), make, n=12)
    assert tree.parents.tolist() == list(range(-1, 12))
    shallow = grown(TableDraft(9, lambda path: certain), make, n=12, max_depth=5)
    assert shallow.num_drafted == 5, "a smaller tree where there is nothing left to draw"


@pytest.mark.parametrize("make", [DySpec, DySpecHeap])
def test_rounding_cannot_tear_a_tree_apart(make):
    """Near-certain q, which float32 sums to more or less than 1: no node without its parent or elder siblings."""
    for seed in range(20):
        draft = TableDraft(50, random_q(50, seed, sharpness=40.0))
        tree = grown(draft, make, n=80)
        for node, path in enumerate(paths_of(tree)):
            q, children = q_at(draft, path)[0], tree.children(node)
            tokens = tree.tokens[children].tolist()
            assert tokens == fixed_race(q[None])[0].argsort()[: len(tokens)].tolist()
            assert torch.allclose(tree.edge_probs[children], q[tokens])


def test_more_draws_of_a_flat_distribution_are_found_where_the_first_do_not_suffice(monkeypatch):
    wide = TableDraft(300, random_q(300, 2, sharpness=0.1))
    expected = paths_of(grown(wide, n=300))
    monkeypatch.setattr(dyspec, "_FIRST_DRAWS", 1)
    assert paths_of(grown(wide, n=300)) == expected


def test_races_are_in_float64():
    assert race(torch.ones(2, 3) / 3, torch.Generator()).dtype == torch.float64


def test_both_rules_without_replacement_judge_the_trees_alike(tiny):
    """No child is drawn behind q's support, so that Sequoia's fallback never comes to pass."""
    outputs = [
        generate(
            tiny.target,
            DySpec(draft=tiny.draft, n=30),
            rule,
            [9, 8, 7],
            max_new_tokens=60,
            sampling=Sampling(0.6),
            rng=torch.Generator().manual_seed(4),
        ).tokens
        for rule in (WithoutReplacement(), MultiCandidate())
    ]
    assert outputs[0] == outputs[1]


def test_nonsense_is_refused():
    draft = TableDraft(5, random_q(5, 0))
    for options in ({"n": 0}, {"n": 3, "max_depth": 0}, {"n": 3, "draws": "iid"}, {"n": 3, "draft_temperature": 0}):
        with pytest.raises(ValueError, match=r"must be"):
            DySpec(draft=draft, **options)
    with pytest.raises(ValueError, match="threshold must be positive"):
        DySpecThreshold(draft=draft, n=3, threshold=0)
    for make, draws in product((DySpec, DySpecHeap), dyspec.DRAWS):
        with pytest.raises(NonFiniteLogitsError, match="draft returned NaN"):
            grown(TableDraft(5, lambda path: torch.full((5,), torch.nan)), make, n=3, draws=draws)


def test_sites_of_a_layer_compete_with_first_sites_that_nobody_has_read():
    """A node is read only if its first site can be among the best, given those of its cousins."""
    sites = Sites(0, 2, max_depth=9)
    edges = np.array([[0.6, 0.3, 0.1]])
    tokens, parents = sites.add(np.array([[7, 8, 9]]), edges, sites.values(edges))
    assert (tokens.tolist(), parents.tolist()) == ([7], [-1]), "the second child's 0.3 is below 0.4 and 0.6"


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("delta", [0.0, 0.1, 0.3, 0.6, 5.0])
def test_a_threshold_tree_ends_behind_a_layer_that_gains_too_little(seed, delta):
    """It is the tree of as many layers; none is read below it."""
    options, q = {"n": 30, "threshold": 0.01}, random_q(6, seed)
    whole = DySpecThreshold(draft=TableDraft(6, q), max_depth=11, **options).grow(context_for())
    gains = torch.zeros(12, dtype=torch.float64).index_add(0, whole.depths, whole.path_probs)[1:].tolist()
    depth = next((depth for depth, gain in enumerate(gains, start=1) if not gain > delta), 11)
    depth = min(depth, int(whole.depths.max()))
    ended = DySpecThreshold(draft=TableDraft(6, q), max_depth=11, delta=delta, **options)
    cut = DySpecThreshold(draft=TableDraft(6, q), max_depth=depth, **options)
    assert paths_of(ended.grow(context_for())) == paths_of(cut.grow(context_for()))
    assert len(ended.draft.expanded) == depth - 1
