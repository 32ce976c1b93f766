"""From a token graph to the tree that is verified: against all walks of the graph, and against plain forwards."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from doubles import paths_of, random_llama, random_q
from hypothesis import given, settings
from hypothesis import strategies as st
from token_graphs import coarse_q, crosses, drafted, every_walk, grown

from specdec_core import Sampling, generate
from specdec_core.drafters import MergeProbe, TokenGraph
from specdec_core.drafters.graph_growth import PRUNING
from specdec_core.drafters.unmerging import unmerge
from specdec_core.graph import Kind
from specdec_core.models import LayerSkip
from specdec_core.verifiers import Greedy, GsdNondeterministic, TargetSample
from specdec_trees.prompts.embedded import prompts

SMALL = {"k": 2, "tau": 1, "theta_prob": 0, "theta_sib": 0, "max_steps": 4}


def walks_of(tree):
    """Records from the root to every node."""
    walks = []
    for record, parent in zip(tree.origin.nodes.tolist(), tree.origin.tree_parents.tolist(), strict=True):
        walks.append((*walks[parent], record) if parent >= 0 else (record,))
    return walks


@pytest.mark.parametrize("depth", [None, 1, 2, 3, 5])
@pytest.mark.parametrize("order", ["breadth", "path_prob"])
def test_equals_all_walks_of_small_graphs(depth, order):
    copies = 0
    for seed in range(30):
        probs, options = coarse_q(3, seed), SMALL | {"unmerge_depth": depth}
        tree, _ = drafted(probs, 3, verify_cap=100_000, cap_order=order, **options)
        oracle = grown(probs, 0, **options)
        walks = every_walk(oracle, depth)
        copies += sum(crosses(oracle, walk) for walk in walks)
        assert sorted(walks_of(tree)) == sorted(walks)
        assert not tree.origin.capped
        if order == "breadth":
            assert walks_of(tree) == sorted(walks, key=lambda walk: (len(walk), walk))
        assert paths_of(tree) == [tuple(oracle.records[r].token for r in walk[1:]) for walk in walks_of(tree)]
    assert copies > 100 or depth in (1, 2)


@pytest.mark.parametrize("order", ["breadth", "path_prob"])
@pytest.mark.parametrize("spare", [-7, -1, 0, 1])
def test_the_cap_is_met_exactly_and_told_only_where_it_cut(order, spare):
    for seed in range(20):
        probs = random_q(4, seed)
        everything, _ = drafted(probs, 4, verify_cap=100_000, cap_order=order, **SMALL)
        cap = everything.num_drafted + spare
        tree, _ = drafted(probs, 4, verify_cap=cap, cap_order=order, **SMALL)
        assert tree.origin.capped == (spare < 0)
        assert tree.num_drafted == min(cap, everything.num_drafted)
        assert walks_of(tree) == walks_of(everything)[: cap + 1]
        if order == "path_prob":
            chances = everything.path_probs.tolist()
            assert chances == pytest.approx(sorted(chances, reverse=True)), "nothing better was left out"


def test_the_depth_limit_is_not_the_cap():
    tree, _ = drafted(random_q(4, 0), 4, unmerge_depth=2, **SMALL)
    assert tree.depths.max() == 2
    assert not tree.origin.capped


def test_a_graph_without_merges_is_its_own_tree():
    for pruning in ("siblings", "paper", "code"):
        tree, _ = drafted(coarse_q(4, 3), 4, tau=None, k=3, max_steps=3, verify_cap=1000, pruning=pruning)
        assert tree.origin.nodes.tolist() == list(range(tree.num_nodes))
        assert tree.origin.tree_parents.tolist() == tree.origin.parents.tolist()
        assert not tree.origin.behind_merge.any()


@settings(max_examples=80, deadline=None, derandomize=True)
@given(st.integers(2, 4), st.integers(0, 10_000), st.sampled_from([1, 2, 3]), st.sampled_from(PRUNING), st.booleans())
def test_random_streams_give_acyclic_graphs_and_trees_that_end(vocab, seed, tau, pruning, deep):
    probs = random_q(vocab, seed, sharpness=1.0)
    options = {"pruning": pruning}
    options |= {"cap_order": "path_prob" if deep else "breadth", "unmerge_depth": None, "verify_cap": 3000}
    options |= {"k": 3, "tau": tau, "theta_prob": 0.1, "theta_sib": 0.2, "max_steps": 8, "draft_node_cap": 150}
    tree, _ = drafted(probs, vocab, **options)
    graph = tree.origin
    edges = [(parent, record) for record, parent in enumerate(graph.parents.tolist()) if parent >= 0]
    edges += [(record, into) for record, into in enumerate(graph.merged_into.tolist()) if into >= 0]
    left = set(range(len(graph.tokens))) if pruning != "code" else set()  # the public code has cycles
    while left:
        sources = left - {end for start, end in edges if start in left}
        assert sources, "a cycle"
        left -= sources
    assert_a_tree(tree, cap=3000, depth=None)


def assert_a_tree(tree, cap, depth):
    """Closed under parents, within the limits, siblings distinct; every edge is one of the graph."""
    graph, parents = tree.origin, tree.parents.tolist()
    assert all(parent < node for node, parent in enumerate(parents))
    assert tree.num_drafted <= cap
    assert not graph.capped or tree.num_drafted == cap
    assert depth is None or tree.depths.max() <= depth
    assert len(set(paths_of(tree))) == tree.num_nodes
    for node in range(1, tree.num_nodes):
        above, record = graph.nodes[parents[node]], graph.nodes[node]
        merged = graph.merged_into[above] >= 0
        assert graph.parents[record] == (graph.merged_into[above] if merged else above)
        assert graph.behind_merge[node] == (merged or graph.behind_merge[parents[node]])


def test_walks_that_double_at_every_merge_stop_at_the_cap():
    """Chains of diamonds: 2 ** 40 walks and 120 edges; nothing is enumerated beyond the cap."""
    parents, probs, into, last = [-1], [1.0], [-1], 0
    for _ in range(40):
        first = len(parents)
        parents += [last, last, first, first + 1]
        probs += [0.5] * 4
        into += [-1, -1, -1, first + 2]
        last = first + 2
    columns = np.array(parents), np.array(probs, np.float32), np.array(into)
    for order in ("breadth", "path_prob"):
        found = unmerge(*columns, cap=5000, depth=None, order=order)
        assert len(found.records) == 5001
        assert found.capped


PRESETS = {
    "ssd": {"k": 1, "tau": None, "theta_sib": 0},
    "ssd_noexit": {"k": 1, "tau": None, "theta_prob": 0, "theta_sib": 0},
    "tsd": {"k": 4, "tau": None, "theta_sib": 0},
    "tsd_sib": {"k": 4, "tau": None},
    "gsd": {},
    "gsd_7b": {"tau": 1, "theta_prob": 0.4, "theta_sib": 0.1},
    "gsd_merging": {"tau": 1, "theta_prob": 0.01, "theta_sib": 0.05, "draft_node_cap": 100},
    "gsd_code": {"pruning": "code"},
    "gsd_code_merging": {"tau": 1, "theta_prob": 0.2, "theta_sib": 0.05, "pruning": "code", "draft_node_cap": 100},
}
OPTIONS = {
    "siblings": {},
    "paper": {"pruning": "paper"},
    "code": {"pruning": "code"},
    "path_prob": {"cap_order": "path_prob", "verify_cap": 20},
    "small": {"verify_cap": 3, "unmerge_depth": 2, "draft_node_cap": 9},
}


def similar_pair(vocab=12, noise=0.05):
    """Random models that mostly agree, over so few tokens that hypotheses meet again and again."""
    target, draft = random_llama(3, vocab=vocab), random_llama(3, vocab=vocab)
    rng = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weight in draft.model.parameters():
            weight += noise * weight.std() * torch.randn(weight.shape, generator=rng) if weight.dim() > 1 else 0
    return target, draft


@pytest.fixture(scope="module")
def pair():
    return similar_pair()


def plain(model, tokens):
    with torch.inference_mode():
        return model.model(torch.tensor([tokens])).logits[0, -1]


MERGING = {"k": 4, "tau": 1, "theta_prob": 0.02, "theta_sib": 0.05, "max_steps": 6, "draft_node_cap": 150}


@pytest.mark.long
@pytest.mark.parametrize("cls", [TokenGraph, MergeProbe])
@pytest.mark.parametrize("options", [{}, {"pruning": "code"}, {"cap_order": "path_prob"}], ids=str)
def test_distributions_of_both_models_are_plain_forwards_also_behind_merges(pair, cls, options):
    """Target: every node of the unmerged tree. Draft: the records below the root, after every commit."""
    target, draft = pair
    committed, gaps, crossed, walked = [3, 1, 4], {"target": 0.0, "draft": 0.0}, [], []

    def watch(tree, scored, verdict):
        before = [*committed, int(tree.tokens[0])]
        graph, paths = tree.origin, paths_of(tree)
        for node in range(0, tree.num_nodes, 5 if len(crossed) > 4 else 1):
            gap = (plain(target, [*before, *paths[node]]) - scored.logits[node]).abs().max()
            gaps["target"] = max(gaps["target"], float(gap))
        q = plain(draft, before).softmax(-1)
        for record in range(1, len(graph.tokens)):
            if graph.parents[record] == 0:
                gaps["draft"] = max(gaps["draft"], abs(float(q[graph.tokens[record]]) - float(graph.probs[record])))
        crossed.append(bool(graph.behind_merge[verdict.path].any()))
        walked.append(len(verdict.tokens))
        committed.extend([int(tree.tokens[0]), *verdict.tokens])

    drafter = cls(draft=draft, **MERGING, **options)
    found = generate(
        *(target, drafter, TargetSample(), [3, 1, 4]),
        max_new_tokens=50,
        sampling=Sampling(1.0),
        rng=torch.Generator().manual_seed(1),
        watch=watch,
    )
    assert gaps["target"] < 2e-4
    assert gaps["draft"] < 1e-5
    assert sum(crossed[:-1]) >= 3, "steps follow upon paths across merges"
    assert crossed == [step.facts["num_behind_merge"] > 0 for step in found.steps]
    assert sum(walked) == sum(step.num_accepted for step in found.steps)


def test_a_probe_measures_plain_forwards(pair):
    """KL of merging: both records on their own paths, read anew."""
    target, draft = pair
    checked = []

    def watch(tree, scored, verdict):
        graph, before = tree.origin, [*committed, int(tree.tokens[0])]
        committed.extend([int(tree.tokens[0]), *verdict.tokens])
        lines = [()]
        for record in range(1, len(graph.tokens)):
            lines.append((*lines[graph.parents[record]], int(graph.tokens[record])))
        aliases = np.flatnonzero(graph.kinds == Kind.ALIAS)
        assert len(graph.merge_kl) == len(aliases)
        for kl, alias in list(zip(graph.merge_kl, aliases, strict=True))[:12]:
            own, first = (
                (plain(draft, [*before, *lines[record]]).double() / 0.8).log_softmax(-1)
                for record in (alias, graph.merged_into[alias])
            )
            checked.append(abs(float((own.exp() * (own - first)).sum()) - kl))

    committed = [5, 6]
    drafter = MergeProbe(draft=draft, draft_temperature=0.8, **MERGING)
    found = generate(target, drafter, Greedy(), [5, 6], max_new_tokens=40, watch=watch)
    assert len(checked) > 50
    assert max(checked) < 2e-4
    told = [step.facts for step in found.steps]
    assert sum(len(facts["merge_kl"]) for facts in told) == sum(facts["num_alias"] for facts in told)


def continued(model, text, new):
    """Greedy decoding that reads everything anew for every token."""
    tokens = list(text)
    for _ in range(new):
        tokens.append(int(plain(model, tokens).argmax()))
    return tokens[len(text) :]


TEXT, NEW = [5, 9, 11, 3, 7], 16


@pytest.fixture(scope="module")
def wanted(pair, toy_target):
    return [continued(target, TEXT, NEW) for target in (pair[0], toy_target)]


@pytest.mark.long
@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("preset", PRESETS)
def test_greedy_outputs_are_the_targets_own(preset, options, pair, toy_target, toy_draft, wanted):
    """Of a pair that agrees mostly, and of one that does not at all."""
    pairs = (pair, (toy_target, toy_draft)) if options in ("paper", "code") else (pair,)
    for (target, draft), tokens in zip(pairs, wanted, strict=False):
        drafter = TokenGraph(draft=draft, **{"draft_node_cap": 120} | PRESETS[preset] | OPTIONS[options])
        rule = Greedy() if target is pair[0] else TargetSample()
        assert generate(target, drafter, rule, TEXT, max_new_tokens=NEW).tokens == tokens


@pytest.mark.few(3)
@pytest.mark.parametrize("preset", PRESETS)
def test_greedy_outputs_on_the_embedded_pair(preset, tiny):
    text = tiny.tokenizer(prompts()[5].turns[0])["input_ids"][:48]
    drafter = TokenGraph(draft=tiny.draft, **PRESETS[preset])
    found = generate(tiny.target, drafter, Greedy(), text, max_new_tokens=30)
    assert found.tokens == continued(tiny.target, text, 30)
    lossy = generate(tiny.target, drafter, GsdNondeterministic(), text, max_new_tokens=30, allow_lossy=True)
    assert lossy.tokens == found.tokens, "at temperature 0 the rule is greedy verification"
    assert max(step.draft_forwards for step in found.steps) <= 10
    assert max(step.num_drafted for step in found.steps) <= 100


@pytest.mark.parametrize("node_order", ["creation", "dfs", "heavy_path"])
def test_the_order_of_a_forward_changes_nothing(pair, node_order):
    target, draft = pair
    options = {"max_new_tokens": 60, "sampling": Sampling(1.0), "node_order": node_order}
    found = generate(target, TokenGraph(draft=draft, **MERGING), TargetSample(), [3, 1, 4], **options)
    wanted = generate(
        target, TokenGraph(draft=draft, **MERGING), TargetSample(), [3, 1, 4], **options | {"node_order": "creation"}
    )
    assert found.tokens == wanted.tokens
    names = "num_alias", "num_behind_merge", "capped"
    facts = [[[step.facts[name] for name in names] for step in run.steps] for run in (found, wanted)]
    assert facts[0] == facts[1]
    assert any(a != b for a, b in pairwise(facts[0]))


def test_a_target_that_drafts_for_itself_with_all_layers_accepts_everything():
    """Self-SSD without skipped layers; with some, and with merging, its output and its cache stay the target's."""
    target = random_llama(0, layers=4)
    own = continued(target, TEXT, 22)
    found = generate(target, ssd(LayerSkip(target, [])), Greedy(), TEXT, max_new_tokens=22)
    assert found.tokens == own
    assert {(step.num_accepted, step.num_drafted) for step in found.steps[:-1]} == {(6, 6)}
    for options in ({"k": 1, "tau": None}, MERGING | {"draft_node_cap": 60}):
        drafter, unchanged = TokenGraph(draft=LayerSkip(target, [1, 2]), **options), []
        grow = drafter.grow

        def watched(context, grow=grow, unchanged=unchanged):
            length = target.cache.length
            before = [layer.keys[:, :, :length].clone() for layer in target.cache.layers]
            tree = grow(context)
            after = [layer.keys[:, :, :length] for layer in target.cache.layers]
            unchanged.append(all(map(torch.equal, before, after)))
            return tree

        drafter.grow = watched
        assert generate(target, drafter, Greedy(), TEXT, max_new_tokens=22).tokens == own
        assert len(unchanged) > 1
        assert all(unchanged)


def ssd(draft):
    return TokenGraph(draft=draft, k=1, tau=None, theta_prob=0, theta_sib=0, max_steps=6)


def test_up_to_the_last_position_of_both_models():
    """Trees reach beyond the room that is left; what lies there is never used."""
    target, draft = random_llama(0, positions=32), random_llama(0, positions=32)
    for options in ({"k": 1, "tau": None, "theta_prob": 0}, MERGING):
        found = generate(target, TokenGraph(draft=draft, **options), Greedy(), TEXT, max_new_tokens=32 - len(TEXT))
        assert found.tokens == continued(target, TEXT, 32 - len(TEXT))


def test_a_stop_token_behind_a_merge_ends_the_answer(pair):
    target, draft = pair
    free = generate(target, TokenGraph(draft=draft, **MERGING), Greedy(), TEXT, max_new_tokens=40)
    for stop in set(free.tokens[2:]):
        found = generate(
            target, TokenGraph(draft=draft, **MERGING), Greedy(), TEXT, max_new_tokens=40, eos_token_ids=[stop]
        )
        assert found.tokens == free.tokens[: free.tokens.index(stop) + 1]
        assert sum(step.kept for step in found.steps) == len(found.tokens) - 1
        for step in found.steps:
            assert len(step.accepted_ranks) == step.num_accepted
            assert step.facts["num_behind_merge"] <= step.num_accepted
