"""Token graphs (GSD) against a literal oracle: steps, classes, merging, the guard against cycles, facts of a step."""

import random
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
import torch
from doubles import BigramLM, TableDraft, context_for, paths_of, random_q
from token_graphs import DEFAULTS, coarse_q, columns, crosses, displaced, drafted, grown, recurring, shares, unmerged

from specdec_core import Sampling, generate, shapes
from specdec_core.drafters import MergeProbe, StaticTree, TokenGraph
from specdec_core.errors import NonFiniteLogitsError
from specdec_core.graph import Kind
from specdec_core.verifiers import GsdNondeterministic, TargetSample

FREE = {"theta_prob": 0, "theta_sib": 0, "verify_cap": 10_000}
LIVE, PROB, SIB, ALIAS = Kind.LIVE, Kind.PROB_LEAF, Kind.SIB_LEAF, Kind.ALIAS


def random_case(seed):
    """A distribution with ties over few tokens, a root, any options: merges, refusals and both limits are frequent."""
    rng = random.Random(seed)
    vocab = rng.choice([1, 2, 2, 3, 3, 3, 4, 4, 5])
    probs = coarse_q(vocab, rng.randrange(10**6), rng.choice([None, None, 1, 2]))
    some = probs(()).log().softmax(-1).tolist()
    in_context = rng.random() < 0.25
    tau = rng.choice([None, 1, 1, 1, 2, 2, 3])
    options = {
        "k": rng.choice([1, 2, 2, 3, 3, 4, 6]),
        "tau": tau - 1 if in_context and tau else tau,
        "tau_as_context": in_context,
        "theta_prob": rng.choice([0, 0, 0, 0.1, 0.2, max(some), min(some), rng.choice([0.15, 0.3, 1.5])]),
        "theta_sib": rng.choice([0, 0, 0, 0.3, 0.5, 1 / 3, 1.0]),
        "max_steps": rng.choice([1, 2, 3, 4, 5, 6, 8]),
        "draft_node_cap": rng.choice([1, 3, 7, 20, 40, 60, 80, 160]),
        "verify_cap": rng.choice([1, 5, 20, 40, 60]),
        "unmerge_depth": rng.choice([None, None, 1, 2, 3, 5, 10]),
        "pruning": rng.choice(["siblings", "paper", "code"]),
        "cap_order": rng.choice(["breadth", "path_prob"]),
    }
    return probs, vocab, rng.randrange(vocab), options


@pytest.mark.parametrize("batch", [0, *(pytest.param(batch, marks=pytest.mark.long) for batch in range(1, 5))])
def test_equals_the_oracle_record_by_record_and_node_by_node(batch):
    seen = Counter()
    for seed in range(600 * batch, 600 * (batch + 1)):
        probs, vocab, root, options = random_case(seed)
        tree, drafter = drafted(probs, vocab, root, **options)
        oracle = grown(probs, root, **options)
        walks, capped = unmerged(oracle, **options)
        graph, case = tree.origin, (seed, options)
        assert columns(graph) == columns(oracle), case
        assert [1, *drafter.draft.expanded] == oracle.widths, case
        assert graph.nodes.tolist() == [walk[-1] for walk in walks], case
        place = {walk: number for number, walk in enumerate(walks)}
        assert graph.tree_parents.tolist() == [place.get(walk[:-1], -1) for walk in walks], case
        assert (tree.parents.tolist(), graph.capped) == (graph.tree_parents.tolist(), capped), case
        assert graph.behind_merge.tolist() == [crosses(oracle, walk) for walk in walks], case
        assert graph.displaced.tolist() == displaced(oracle, walks), case
        assert tree.tokens.tolist() == [oracle.records[walk[-1]].token for walk in walks], case
        assert tree.edge_probs.tolist() == [float(oracle.records[walk[-1]].q) for walk in walks], case
        kinds = {record.kind for record in oracle.records}
        seen.update(kind.name for kind in kinds)
        seen.update(["refused"] if oracle.refused else [])
        seen.update(["refused, then merged"] if any(columns(oracle)[3][c] == ALIAS for c, _ in oracle.refused) else [])
        seen.update(["own path"] if oracle.on_own_path else [])
        seen.update(["full"] if oracle.full else [])
        seen.update(["capped"] if capped else [])
        seen.update(["copies"] if graph.behind_merge.any() else [])
    assert min(seen.values()) > 30, seen
    assert len(seen) == 10, seen


@pytest.mark.parametrize("k", [1, 2, 3])
def test_without_merging_and_pruning_it_is_the_full_tree(k):
    for seed in range(5):
        probs = random_q(7, seed)
        tree, drafter = drafted(probs, 7, k=k, tau=None, max_steps=4, **FREE)
        shape = shapes.chain(4) if k == 1 else shapes.kary(k, 4)
        static = StaticTree(draft=TableDraft(7, probs), shape=shape).grow(context_for())
        assert paths_of(tree) == paths_of(static)
        assert torch.equal(tree.edge_probs, static.edge_probs)
        assert tree.num_drafted == sum(k**depth for depth in range(1, 5))
        assert drafter.draft.expanded == [k**depth for depth in range(1, 4)]


@pytest.mark.parametrize("pruning", ["siblings", "paper", "code"])
def test_a_tau_longer_than_any_path_is_the_token_tree(pruning):
    for seed in range(20):
        probs, options = coarse_q(3, seed), {"max_steps": 5, "theta_sib": 0.5, "k": 3, "pruning": pruning}
        merged = drafted(probs, 3, tau=5 + 2, **options)[0]
        tree = drafted(probs, 3, tau=None, **options)[0]
        assert columns(merged.origin) == columns(tree.origin)
        assert torch.equal(merged.tokens, tree.tokens)
        assert not merged.origin.count(ALIAS)


def exactly(*probs):
    """A distribution that float32's softmax gives back bit by bit."""
    wanted = torch.tensor(probs)
    scaled = (wanted * (1 + step * 1e-6) for step in range(-2000, 2000))
    found = next(row for row in scaled if torch.equal(row.log().softmax(-1), wanted))
    return lambda path: found


def after(value):
    return float(np.nextafter(np.float32(value), np.float32(2)))


@pytest.mark.parametrize("theta", [0.2, 0.3, 0.1, 0.4])
def test_a_probability_equal_to_the_threshold_is_live(theta):
    probs = exactly(0.4, 0.3, 0.2, 0.1)
    options = {"k": 4, "tau": None, "max_steps": 1, "theta_sib": 0}
    kinds = {
        at: drafted(probs, 4, theta_prob=at, **options)[0].origin.kinds[1:].tolist() for at in (theta, after(theta))
    }
    live = [0.4, 0.3, 0.2, 0.1].index(theta) + 1
    assert kinds[theta] == [LIVE] * live + [PROB] * (4 - live)
    assert kinds[after(theta)] == [LIVE] * (live - 1) + [PROB] * (5 - live)


@pytest.mark.parametrize(("theta", "live"), [(0.5, 3), (after(0.5), 2), (0.75, 2), (after(0.75), 1), (0.25, 4)])
def test_a_probability_equal_to_its_share_of_the_best_one_is_live(theta, live):
    probs = exactly(0.4, 0.3, 0.2, 0.1)
    tree, _ = drafted(probs, 4, tau=None, max_steps=1, theta_prob=0, theta_sib=theta, pruning="paper")
    share = np.float32(theta) * np.float32([0.4])
    assert sum(np.float32([0.4, 0.3, 0.2, 0.1]) >= share) == live
    assert tree.origin.kinds[1:].tolist() == [LIVE] * live + [SIB] * (4 - live)


def test_only_ties_with_the_best_survive_a_theta_sib_of_one():
    tree, _ = drafted(exactly(0.3, 0.3, 0.3, 0.1), 4, tau=None, theta_prob=0, theta_sib=1, max_steps=1)
    assert tree.origin.kinds[1:].tolist() == [LIVE, LIVE, LIVE]


@pytest.mark.parametrize("pruning", ["siblings", "paper", "code"])
def test_a_threshold_above_one_costs_one_forward(pruning):
    tree, drafter = drafted(random_q(9, 0), 9, theta_prob=1.01, theta_sib=0, pruning=pruning)
    assert tree.origin.kinds[1:].tolist() == [PROB] * 4
    assert drafter.draft.expanded == []


def test_more_children_than_tokens_and_a_vocabulary_of_one():
    tree, _ = drafted(random_q(3, 0), 3, k=32, tau=None, max_steps=2, **FREE)
    assert tree.num_drafted == 3 + 9
    chain, drafter = drafted(lambda path: torch.ones(1), 1, k=4, tau=1, max_steps=6)
    assert paths_of(chain) == [(0,) * depth for depth in range(7)], "nothing is merged into its own path"
    assert drafter.draft.expanded == [1] * 5


def test_ties_go_to_the_lower_token():
    tree, _ = drafted(lambda path: torch.ones(6) / 6, 6, k=3, tau=None, max_steps=2, **FREE)
    assert tree.tokens[1:].tolist() == [0, 1, 2] * 4


def follows(table, vocab=5):
    """Distributions by the last token (None: the root): its best followers in falling order."""

    def probs(path):
        row = torch.full((vocab,), 1e-4)
        for rank, token in enumerate(table[path[-1] if path else None]):
            row[token] = 0.5 - 0.1 * rank
        return row / row.sum()

    return probs


def test_1_2_3_and_3_1_stay_acyclic():
    """Below the root 1 and 3: 3's child 1 goes on as the first 1, so that the 3 at its end may not go on as the 3."""
    probs = follows({None: [1, 3], 1: [2], 2: [3], 3: [1]})
    tree, drafter = drafted(probs, 5, k=2, tau=1, theta_prob=0.3, theta_sib=0.5, max_steps=4)
    tokens, parents, _, kinds, into = (np.array(column) for column in columns(tree.origin))
    kept = kinds != SIB
    assert tokens[kept].tolist() == [0, 1, 3, 2, 1, 3, 1]
    assert kinds[kept].tolist() == [LIVE, LIVE, LIVE, LIVE, ALIAS, LIVE, LIVE]
    alias = int(np.flatnonzero(kinds == ALIAS)[0])
    assert (parents[alias], into[alias]) == (2, 1)
    assert drafter.draft.expanded == [2, 1, 1]
    assert (3, 1, 2, 3, 1) in paths_of(tree), "the copy goes on to the end"


def test_two_redundant_siblings_keep_an_edge_each():
    """4's children 1 and 2 are both met before, at 3 and at the root's own child."""
    probs = follows({None: [1, 2, 4], 1: [3], 2: [3], 4: [1, 2], 3: [0]})
    tree, _ = drafted(probs, 5, k=3, tau=1, theta_prob=0, theta_sib=0.5, max_steps=3)
    graph, four = tree.origin, 3
    aliases = [record for record in np.flatnonzero(graph.kinds == ALIAS) if graph.parents[record] == four]
    assert graph.tokens[aliases].tolist() == [1, 2]
    assert graph.merged_into[aliases].tolist() == [1, 2]
    assert {(4, 1, 3), (4, 2, 3)} <= set(paths_of(tree))


def test_the_first_occurrence_wins():
    """3 stands below 1 (as a leaf of too little probability) and below 2 before it is found below 4."""
    probs = follows({None: [1, 2, 4], 1: [3], 2: [3], 4: [3], 3: [0], 0: [0]})
    tree, _ = drafted(probs, 5, k=3, tau=1, theta_prob=0, theta_sib=0.5, max_steps=3)
    graph = tree.origin
    threes = np.flatnonzero((graph.tokens == 3) & (graph.kinds != SIB))
    assert graph.kinds[threes].tolist() == [LIVE, ALIAS, ALIAS]
    assert graph.merged_into[threes[1:]].tolist() == [threes[0]] * 2


def gram(graph, record, length):
    line = []
    while record >= 0:
        line.insert(0, record)
        record = int(graph.parents[record])
    return tuple(graph.tokens[line][-length:].tolist()) if len(line) >= length else None, line


def leads(graph, start, end, before):
    """Whether a walk over edges from records before `before` leads from start to end."""
    reached = [start]
    for record in reached:
        below = [new for new in range(before) if graph.parents[new] == record]
        reached += [new for new in [*below, int(graph.merged_into[record])] if new >= 0 and new not in reached]
    return end in reached


@pytest.mark.parametrize("tau", [1, 2])
def test_no_gram_at_two_live_nodes_without_need(tau):
    """Only where one is above the other, or the edge would have closed a cycle; an alias comes behind its match."""
    needed = merges = 0
    for seed in range(40):
        probs = coarse_q(3, seed)
        tree, drafter = drafted(probs, 3, k=2, tau=tau, max_steps=6, theta_prob=0, theta_sib=0, draft_node_cap=60)
        graph, firsts = tree.origin, {}
        for record in range(1, len(graph.tokens)):
            if graph.kinds[record] == ALIAS:
                match = int(graph.merged_into[record])
                assert match < record
                assert graph.kinds[match] == LIVE
                assert gram(graph, match, tau)[0] == gram(graph, record, tau)[0]
                merges += 1
            if graph.kinds[record] != LIVE:
                continue
            tokens, line = gram(graph, record, tau)
            for other in firsts.get(tokens, []) if tokens else []:
                if other not in line:
                    assert leads(graph, other, int(graph.parents[record]), record)
                    needed += 1
            firsts.setdefault(tokens, []).append(record)
        read = {paths_of_records(graph)[record] for record in np.flatnonzero(graph.kinds == LIVE)[1:]}
        assert set(drafter.draft.paths) <= read, "what is merged is never read"
        assert len(drafter.draft.paths) == sum(drafter.draft.expanded)
    assert needed > 20
    assert merges > 100


def paths_of_records(graph):
    return [tuple(graph.tokens[gram(graph, record, 1)[1]].tolist())[1:] for record in range(len(graph.tokens))]


def test_shares_of_recurring_grams_equal_their_definition():
    for seed in range(250):
        probs, vocab, root, options = random_case(seed)
        graph = drafted(probs, vocab, root, **options)[0].origin
        wanted = [recurring(graph.tokens.tolist(), graph.parents.tolist(), length) for length in range(1, 6)]
        for found, those in zip(graph.recurring_shares(), wanted, strict=True):
            assert found == pytest.approx(those, abs=1e-12, nan_ok=True), seed


@pytest.mark.parametrize("rule", [TargetSample(), GsdNondeterministic()], ids=["target_sample", "gsd"])
@pytest.mark.parametrize("pruning", ["siblings", "paper", "code"])
def test_facts_of_every_step(rule, pruning):
    """Through the engine, with a pair of bigrams, whose distributions the oracle knows."""
    rng = torch.Generator().manual_seed(2)
    target = BigramLM(1.5 * torch.randn(6, 6, generator=rng))
    draft = BigramLM(target.table + torch.randn(6, 6, generator=rng))
    options = {"k": 3, "tau": 1, "theta_prob": 0.15, "theta_sib": 0.3, "max_steps": 4, "verify_cap": 30}
    options |= {"pruning": pruning}
    watched = []
    found = generate(
        *(target, TokenGraph(draft=draft, **options), rule, [0]),
        max_new_tokens=250,
        sampling=Sampling(1.0),
        allow_lossy=True,
        watch=lambda tree, scored, verdict: watched.append((int(tree.tokens[0]), verdict.tokens)),
    )
    assert len(found.steps) == len(watched) > 20
    for step, (root, accepted) in zip(found.steps, watched, strict=True):
        oracle = grown(lambda path, root=root: draft.table[path[-1] if path else root].softmax(-1), root, **options)
        walks, capped = unmerged(oracle, **options)
        kinds = Counter(record.kind for record in oracle.records[1:])
        told = step.facts
        counts = told["num_live"], told["num_prob_leaf"], told["num_sib_leaf"], told["num_alias"]
        assert counts == tuple(kinds[kind] for kind in (LIVE, PROB, SIB, ALIAS))
        assert (told["capped"], step.draft_forwards) == (capped, len(oracle.widths))
        assert (step.num_drafted, step.num_accepted) == (len(walks) - 1, len(accepted))
        tokens = {tuple(oracle.records[record].token for record in walk[1:]): walk for walk in walks}
        walk = tokens[accepted]
        assert told["num_behind_merge"] == sum(crosses(oracle, walk[: end + 1]) for end in range(1, len(walk)))
        assert told["num_in_shared_subtree"] == sum(shares(oracle, walk[: end + 1]) for end in range(1, len(walk)))
        moved = dict(zip(walks, displaced(oracle, walks), strict=True))
        assert told["num_displaced"] == sum(moved[walk[: end + 1]] for end in range(1, len(walk)))
        visited = [walk[: end + 1] for end in range(len(walk))]
        assert told["visited_children"] == [sum(other[:-1] == node for other in walks) for node in visited]
        ranks = [oracle.below(above).index(record) for above, record in pairwise(walk)]
        assert step.accepted_ranks == ranks
        shared = [recurring(*columns(oracle)[:2], n) for n in range(1, 6)]
        assert told["recurring"] == pytest.approx([ending for ending, _ in shared], nan_ok=True)
        assert told["in_recurring"] == pytest.approx([part for _, part in shared], nan_ok=True)
        assert told["merge_kl"] is None
    assert sum(step.facts["num_behind_merge"] > 0 for step in found.steps) > 3
    assert sum(step.facts["num_in_shared_subtree"] > step.facts["num_behind_merge"] for step in found.steps) > 3
    assert {0, 1} <= {rank for step in found.steps for rank in step.accepted_ranks}


def test_siblings_that_are_pruned_are_leaves_only_where_it_is_asked():
    """theta_sib 0.3 prunes the last of four, 0.6 the last two."""
    probs = exactly(0.4, 0.3, 0.2, 0.1)
    options = {"k": 4, "tau": None, "max_steps": 1, "theta_prob": 0.4}
    drawn = {
        (pruning, theta): drafted(probs, 4, theta_sib=theta, pruning=pruning, **options)[0].num_drafted
        for pruning in ("siblings", "paper", "code")
        for theta in (0.0, 0.3, 0.6)
    }
    for pruning, sizes in {"siblings": (4, 3, 2), "paper": (4, 4, 4), "code": (4, 3, 2)}.items():
        assert tuple(drawn[pruning, theta] for theta in (0.0, 0.3, 0.6)) == sizes


@pytest.mark.parametrize("seed", range(60))
def test_a_probe_changes_nothing_and_measures_what_merging_does(seed):
    """The distributions here know their whole path, so that KL is that of two plain distributions."""
    vocab, options = 4, random_case(seed)[3]
    probs = random_q(vocab, seed)
    (plain, _), (probed, _) = (drafted(probs, vocab, cls=cls, **options) for cls in (TokenGraph, MergeProbe))
    assert columns(plain.origin) == columns(probed.origin)
    for name in ("tokens", "parents", "edge_probs"):
        assert torch.equal(getattr(plain, name), getattr(probed, name))
    paths, graph = paths_of_records(probed.origin), probed.origin
    aliases = np.flatnonzero(graph.kinds == ALIAS)
    pairs = [[probs(paths[r]).double() for r in (alias, graph.merged_into[alias])] for alias in aliases]
    wanted = [float((p / p.sum() * (p / p.sum()).div(q / q.sum()).log()).sum()) for p, q in pairs]
    assert graph.merge_kl.tolist() == pytest.approx(wanted, abs=1e-5)
    assert plain.origin.merge_kl is None


def test_defaults_are_the_papers_for_its_largest_model():
    wanted = {"k": 4, "tau": 2, "theta_prob": 0.2, "theta_sib": 0.3, "max_steps": 10, "draft_node_cap": 10_000}
    wanted |= {"verify_cap": 100, "unmerge_depth": 10, "draws": "topk", "draft_temperature": 1.0, "pruning": "siblings"}
    assert wanted.items() <= DEFAULTS.items()


REFUSED = {
    "k": (0, -1),
    "tau": (0, -1),
    "theta_prob": (-0.1, float("nan")),
    "theta_sib": (-0.1, float("nan")),
    "max_steps": (0,),
    "draft_node_cap": (0,),
    "verify_cap": (0,),
    "unmerge_depth": (0,),
    "draws": ("without_replacement", "iid"),
    "draft_temperature": (0, -1.0),
    "pruning": ("both",),
    "cap_order": ("depth",),
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in REFUSED.items() for value in values])
def test_senseless_options_are_refused_in_a_sentence(name, value):
    with pytest.raises(ValueError, match=rf"{name}.*(must be|is for sequences)"):
        TokenGraph(draft=TableDraft(3, random_q(3, 0)), **{name: value})


def test_a_tau_of_zero_needs_a_context_and_draws_a_sequence():
    draft = TableDraft(3, random_q(3, 0))
    with pytest.raises(ValueError, match="tau must be"):
        TokenGraph(draft=draft, tau=-1, tau_as_context=True)
    for options in ({"k": 2, "tau": None}, {"k": 1, "tau": 1}):
        with pytest.raises(ValueError, match="sequences"):
            TokenGraph(draft=draft, draws="iid", **options)
    assert TokenGraph(draft=draft, tau=0, tau_as_context=True).draws == "topk"


def test_a_draft_that_returns_nonsense_is_named():
    with pytest.raises(NonFiniteLogitsError, match="draft returned NaN"):
        drafted(lambda path: torch.full((4,), torch.nan), 4)
