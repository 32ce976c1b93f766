"""GSD's rule for sampling against all its outcomes: children accepted one by one, the longest path wins. Lossy."""

from collections import Counter
from itertools import product

import pytest
import torch
from doubles import BigramLM, paths_of, random_q, random_tree
from scipy import stats
from token_graphs import coarse_q, drafted

from specdec_core import Sampling, TokenTree, generate
from specdec_core.checks import check_lossless
from specdec_core.drafters import StaticTree, TokenGraph
from specdec_core.errors import NonFiniteLogitsError, PairError
from specdec_core.models import ModelOutput
from specdec_core.shapes import chain
from specdec_core.verifiers import Greedy, GsdNondeterministic, TargetSample

RULE, SETTINGS = GsdNondeterministic(), [Sampling(1.0), Sampling(0.7, top_p=0.7)]


def depth_first(tree, node=0):
    """Nodes in preorder, siblings in the order of the tree."""
    return [node] + [found for child in tree.children(node).tolist() for found in depth_first(tree, child)]


def winner(tree, accepted):
    """The end of the longest path of accepted nodes, the first in depth first order."""
    best, parents, depths = 0, tree.parents.tolist(), tree.depths.tolist()
    for node in depth_first(tree):
        line = [node]
        while line[-1] > 0:
            line.append(parents[line[-1]])
        if all(accepted[above] for above in line if above) and depths[node] > depths[best]:
            best = node
    return best


def chances(tree, logits, sampling):
    p, parents = sampling.probs(logits).double(), tree.parents.tolist()
    ratios = [1.0]
    for node in range(1, tree.num_nodes):
        wanted, drawn = float(p[parents[node], tree.tokens[node]]), float(tree.edge_probs[node])
        ratios.append(min(1.0, wanted / drawn) if drawn > 0 else float(wanted > 0))
    return ratios


def probs_of_ends(tree, logits, sampling):
    """Probability that the accepted path ends at a node: over every pattern of acceptances."""
    ratios, ends = chances(tree, logits, sampling), Counter()
    for pattern in product((False, True), repeat=tree.num_drafted):
        chance = 1.0
        for ratio, accepted in zip(ratios[1:], pattern, strict=True):
            chance *= ratio if accepted else 1 - ratio
        if chance:
            ends[winner(tree, (True, *pattern))] += chance
    return ends


def probs_of_first_token(tree, logits, sampling):
    probs, paths = torch.zeros(logits.shape[1], dtype=torch.float64), paths_of(tree)
    for end, chance in probs_of_ends(tree, logits, sampling).items():
        if end:
            probs[paths[end][0]] += chance
        else:
            probs += chance * sampling.probs(logits[0]).double()
    return probs


def case(seed, nodes=8, vocab=4):
    """A tree with its nodes in any order in which parents come first, and what a target makes of it."""
    rng = torch.Generator().manual_seed(seed)
    return random_tree(nodes, vocab, rng), 1.5 * torch.randn(nodes, vocab, generator=rng)


@pytest.mark.parametrize("sampling", SETTINGS, ids=["t1", "t07_top_p07"])
def test_the_distribution_of_the_first_token_equals_the_sum_over_all_outcomes(sampling):
    for seed in range(25):
        tree, logits = case(seed, nodes=2 + seed % 7)
        probs = RULE.first_token_probs(tree, ModelOutput(logits), sampling)
        assert probs.dtype == torch.float64
        assert torch.allclose(probs, probs_of_first_token(tree, logits, sampling), atol=1e-12, rtol=0), seed
        assert float(probs.sum()) == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize("cap_order", ["breadth", "path_prob"])
def test_the_distribution_on_trees_of_token_graphs(cap_order):
    copies = 0
    for seed in range(8):
        options = {"k": 2, "tau": 1, "theta_prob": 0.1, "max_steps": 4, "verify_cap": 10}
        probs = random_q(3, seed)
        tree, _ = drafted(probs, 3, **options, cap_order=cap_order)
        logits = torch.randn(tree.num_nodes, 3, generator=torch.Generator().manual_seed(seed))
        found = RULE.first_token_probs(tree, ModelOutput(logits), SETTINGS[0])
        assert torch.allclose(found, probs_of_first_token(tree, logits, SETTINGS[0]), atol=1e-12, rtol=0)
        copies += int(tree.origin.behind_merge.sum())
    assert copies > 3


@pytest.mark.parametrize("sampling", SETTINGS, ids=["t1", "t07_top_p07"])
def test_judgements_have_the_distribution_of_all_outcomes(sampling):
    """Ends of the path, and the token behind them, by chi-square."""
    (tree, logits), samples = case(4, nodes=7), 1500
    rng = torch.Generator().manual_seed(1)
    counts, firsts = Counter(), Counter()
    for _ in range(samples):
        verdict = RULE.judge(tree, ModelOutput(logits), sampling, rng)
        tokens = (*verdict.tokens, verdict.next_token)
        counts[int(verdict.path[-1]), verdict.next_token] += 1
        firsts[tokens[0]] += 1
    ends, p = probs_of_ends(tree, logits, sampling), sampling.probs(logits).double()
    wanted = {(end, token): chance * float(p[end, token]) for end, chance in ends.items() for token in range(4)}
    wanted = {outcome: chance for outcome, chance in wanted.items() if chance > 0}
    assert set(counts) <= set(wanted)
    assert p_value(counts, wanted, samples) > 1e-3
    exact = RULE.first_token_probs(tree, ModelOutput(logits), sampling).tolist()
    assert p_value(firsts, {token: chance for token, chance in enumerate(exact) if chance > 0}, samples) > 1e-3


def p_value(counts, probs, samples):
    """Chi-square, rare outcomes taken together."""
    common = [outcome for outcome in probs if samples * probs[outcome] >= 5]
    observed, expected = [counts[outcome] for outcome in common], [samples * probs[outcome] for outcome in common]
    rest = max(samples - sum(expected), 1e-9)
    if rest >= 1:
        observed, expected = [*observed, samples - sum(observed)], [*expected, rest]
    scale = sum(observed) / sum(expected)
    return stats.chisquare(observed, [scale * value for value in expected]).pvalue


def test_of_equally_long_paths_the_first_in_depth_first_order_wins():
    """Nodes stand in breadth, the later branch's leaf first, as path probabilities may have it."""
    tokens, parents = torch.tensor([0, 1, 2, 3, 4, 5]), torch.tensor([-1, 0, 0, 2, 1, 2])
    tree = TokenTree(tokens, parents, torch.full((6,), 1e-6))
    verdict = RULE.judge(tree, ModelOutput(torch.zeros(6, 6)), Sampling(1.0), torch.Generator().manual_seed(0))
    assert verdict.path.tolist() == [0, 1, 4]
    assert verdict.tokens == (1, 4)


@pytest.mark.parametrize("cap_order", ["breadth", "path_prob"])
def test_certain_acceptances_are_followed_to_the_oracles_end(cap_order):
    """A target that forbids tokens, or grants more than the draft: every chance is 0 or 1."""
    rng, out_of_order = torch.Generator().manual_seed(3), 0
    for seed in range(60):
        options = {"k": 3, "tau": 1, "max_steps": 5, "theta_prob": 0, "theta_sib": 0, "verify_cap": 25}
        tree, _ = drafted(coarse_q(4, seed), 4, cap_order=cap_order, **options)
        tree = TokenTree(tree.tokens, tree.parents, torch.full((tree.num_nodes,), 1e-4))
        logits = torch.zeros(tree.num_nodes, 4).masked_fill(
            torch.rand(tree.num_nodes, 4, generator=rng) < 0.4, -torch.inf
        )
        logits[:, 0] = 0
        accepted = [ratio == 1 for ratio in chances(tree, logits, Sampling(1.0))]
        verdict = RULE.judge(tree, ModelOutput(logits), Sampling(1.0), rng)
        end = winner(tree, accepted)
        assert int(verdict.path[-1]) == end
        assert verdict.path.tolist() == tree.ancestor_mask[end].nonzero().flatten().tolist()
        assert verdict.tokens == paths_of(tree)[end]
        assert logits[end, verdict.next_token] == 0
        out_of_order += depth_first(tree) != list(range(tree.num_nodes))
    assert out_of_order > 20


def test_greedy_verification_at_temperature_0():
    for seed in range(40):
        tree, _ = drafted(random_q(5, seed), 5, k=3, tau=1, max_steps=4, theta_prob=0.05, theta_sib=0)
        logits = torch.randn(tree.num_nodes, 5, generator=torch.Generator().manual_seed(seed))
        logits[tree.parents[1:], tree.tokens[1:]] += 1
        found, wanted = (
            rule.judge(tree, ModelOutput(logits), Sampling(0.0), torch.Generator()) for rule in (RULE, Greedy())
        )
        assert (found.path.tolist(), found.tokens, found.next_token) == (
            wanted.path.tolist(),
            wanted.tokens,
            wanted.next_token,
        )
        first = RULE.first_token_probs(tree, ModelOutput(logits), Sampling(0.0))
        assert first.tolist() == torch.zeros(5).index_fill(0, logits[0].argmax(), 1).tolist()


def test_a_virtual_roots_distribution_is_the_one_that_is_known():
    tree, logits = case(2, nodes=5)
    known = torch.tensor([0.1, 0.2, 0.3, 0.4])
    given = RULE.first_token_probs(tree, ModelOutput(logits, None, known), Sampling(1.0))
    logits[0] = known.log()
    assert torch.allclose(given, RULE.first_token_probs(tree, ModelOutput(logits), Sampling(1.0)), atol=1e-6)


def test_children_of_probability_0_in_both_models_are_rejected():
    """A sharp draft's k best tokens may have underflowed, and top-p may have cut them."""
    tokens, parents = torch.tensor([0, 1, 2, 3]), torch.tensor([-1, 0, 0, 1])
    tree = TokenTree(tokens, parents, torch.tensor([1.0, 1.0, 0.0, 0.5]))
    logits = torch.tensor([[0.0, 1.0, -torch.inf, 0.0]] * 4)
    probs = RULE.first_token_probs(tree, ModelOutput(logits), Sampling(1.0))
    assert torch.allclose(probs, probs_of_first_token(tree, logits, Sampling(1.0)), atol=1e-12)
    rng = torch.Generator().manual_seed(0)
    assert {2} & {
        token for _ in range(50) for token in RULE.judge(tree, ModelOutput(logits), Sampling(1.0), rng).tokens
    } == set()


def test_nonsense_of_the_target_is_named():
    tree, _ = case(0, nodes=3)
    with pytest.raises(NonFiniteLogitsError, match="target returned NaN"):
        RULE.judge(tree, ModelOutput(torch.full((3, 4), torch.nan)), Sampling(1.0), torch.Generator())


@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_it_is_refused_unless_lossy_was_asked_for(temperature, toy_target, toy_draft):
    """At temperature 0 too: the rule is lossless for no draws, so that nothing vouches for it."""
    sampling = Sampling(temperature)
    for drafter in (TokenGraph(draft=toy_draft), TokenGraph(draft=toy_draft, k=1, tau=None, draws="iid")):
        with pytest.raises(PairError, match=r"does not keep the target's distribution.*allow_lossy=true"):
            generate(toy_target, drafter, RULE, [1, 2], max_new_tokens=3, sampling=sampling)
        assert check_lossless(drafter, RULE, sampling, allow_lossy=True) is False
    static = StaticTree(draft=toy_draft, shape=chain(2))
    with pytest.raises(PairError, match="allow_lossy=true"):
        check_lossless(static, RULE, sampling)


def disagreeing():
    """The target prefers what the draft thinks second best."""
    p, q = torch.tensor([[0.2, 0.7, 0.1]] * 3), torch.tensor([[0.7, 0.2, 0.1]] * 3)
    return BigramLM(p.log()), BigramLM(q.log())


def test_it_changes_the_distribution_where_the_models_disagree():
    """Exactly on one tree, and by the tokens of a long answer; the lossless rule passes the same test."""
    target, draft = disagreeing()
    tree, _ = drafted(lambda path: draft.table[0].softmax(-1), 3, k=2, tau=1, theta_prob=0, theta_sib=0, max_steps=2)
    exact = RULE.first_token_probs(tree, ModelOutput(target.table[tree.tokens]), Sampling(1.0))
    p = target.table[0].softmax(-1).double()
    assert float((exact - p).abs().sum() / 2) > 0.05
    for rule, lossless in ((RULE, False), (TargetSample(), True)):
        drafter = TokenGraph(draft=draft, k=2, tau=1, theta_prob=0, theta_sib=0, max_steps=2)
        options = {"sampling": Sampling(1.0), "rng": torch.Generator().manual_seed(7), "allow_lossy": not lossless}
        found = generate(target, drafter, rule, [0], max_new_tokens=900, **options)
        value = p_value(Counter(found.tokens), dict(enumerate(p.tolist())), 900)
        assert (value > 1e-3) if lossless else (value < 1e-6)


def test_a_table_draft_of_one_token_is_accepted_with_the_ratio():
    """By hand: one child of q = 0.8 and p = 0.2 is accepted once in four, else the token is a fresh one."""
    tree, _ = drafted(lambda path: torch.tensor([0.8, 0.2]), 2, k=1, tau=None, max_steps=1)
    logits = torch.tensor([0.2, 0.8]).log().expand(2, 2)
    probs = RULE.first_token_probs(tree, ModelOutput(logits), Sampling(1.0))
    assert probs.tolist() == pytest.approx([0.25 + 0.75 * 0.2, 0.75 * 0.8], abs=1e-6)
