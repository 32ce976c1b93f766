"""Distribution of the first token, given the tree, of lossy rules: against sums over their draws, against counts."""

from collections import Counter

import pytest
import torch
from doubles import BigramLM, paths_of
from first_token_probs import ORACLES, TREES, fixed_tree
from played_forks import GREEDY, T1, table
from scipy import stats
from stops import Rule, likes_token_1

from specdec_core import TokenTree, generate
from specdec_core.drafters import fork_tree
from specdec_core.models import ModelOutput


@pytest.mark.parametrize("sampling", [T1, GREEDY], ids=["t1", "greedy"])
@pytest.mark.parametrize("rule", ORACLES)
@pytest.mark.parametrize("name", TREES)
def test_the_distribution_of_the_first_token_is_that_of_all_the_rules_draws(name, rule, sampling):
    probs_of, firsts, spread = ORACLES[rule][0].first_token_probs, set(), 0
    for seed in range(4):
        tree, scored, p, q = fixed_tree(name, seed)
        found = probs_of(tree, scored, sampling)
        assert (found.dtype, found.shape, found.device.type) == (torch.float64, (6,), "cpu")
        assert found.tolist() == pytest.approx(ORACLES[rule][1](tree, p, q, sampling.greedy), abs=2e-6)
        assert float(found.sum()) == pytest.approx(1, abs=1e-9)
        firsts.add(int(found.argmax()))
        spread += int((found > 1e-3).sum())
        if sampling.greedy:
            judged = ORACLES[rule][0].judge(tree, scored, sampling, torch.Generator())
            assert float(found[judged.tokens[0]]) == 1
    assert spread > 4 or sampling.greedy or name == "one"


@pytest.mark.parametrize("rule", ORACLES)
def test_ties_go_to_the_first_path(rule):
    """Certain acceptance everywhere, certain rejection everywhere, and the same chance in all chains."""
    tree, scored, p, _ = fixed_tree("fork", 3, holes=False)
    probs_of = ORACLES[rule][0].first_token_probs
    same = TokenTree(tree.tokens, tree.parents, tree.edge_probs, p.softmax(-1)[tree.tokens], tree.draft_rows)
    same.edge_probs[1:] = p.softmax(-1)[tree.tokens[tree.parents[1:]], tree.tokens[1:]]
    assert float(probs_of(same, scored, T1)[tree.tokens[1]]) == pytest.approx(1, abs=1e-6)
    never = scored.logits.clone()
    for node, parent in enumerate(tree.parents.tolist()):
        if parent > 0:
            never[parent, tree.tokens[node]] = -torch.inf
    found = probs_of(tree, ModelOutput(never, None, scored.root_probs), T1)
    assert float(found[tree.tokens[1]]) == 1
    chance = 0.3  # of each of three chains of one node: the first wins unless it is rejected and a later one is not
    tokens, parents = torch.tensor([0, 0, 1, 2, 3, 3, 3]), torch.tensor([-1, 0, 0, 0, 1, 2, 3])
    q3, p3 = torch.tensor([0.0, 0, 0, 1]), torch.tensor([0.7, 0, 0, chance])
    rows = torch.tensor([-1, 0, 0, 0, -1, -1, -1])
    chains = TokenTree(tokens, parents, torch.tensor([1.0] * 7), q3[None], rows)
    scored = ModelOutput(p3.log().expand(7, 4), None, torch.full((4,), 0.25))
    found = probs_of(chains, scored, T1).tolist()
    miss = 1 - chance
    assert found == pytest.approx([chance + miss**3, miss * chance, miss**2 * chance, 0], abs=1e-6)


@pytest.mark.parametrize("rule", ORACLES)
@pytest.mark.parametrize("name", ["fork", "ended_early", "unequal"])
def test_first_tokens_of_many_judgements_have_that_distribution(rule, name):
    judge, rng, number = ORACLES[rule][0], torch.Generator().manual_seed(11), 500
    tree, scored, _, _ = fixed_tree(name, {"fork": 0, "ended_early": 1, "unequal": 2}[name])
    probs = judge.first_token_probs(tree, scored, T1)
    counts = Counter(judge.judge(tree, scored, T1, rng).tokens[0] for _ in range(number))
    assert all(probs[token] > 0 for token in counts)
    tokens = (probs * number >= 3).nonzero().flatten().tolist()
    seen, wanted = [counts[token] for token in tokens], [float(probs[token]) * number for token in tokens]
    seen.append(number - sum(seen))
    wanted.append(number - sum(wanted))
    if wanted[-1] < 1e-6:
        seen.pop(), wanted.pop()
    assert len(seen) > 1
    assert stats.chisquare(seen, wanted, sum_check=False).pvalue > 1e-3


@pytest.mark.parametrize("rule", ORACLES)
@pytest.mark.parametrize("width", [2, 3])
def test_first_tokens_of_the_engine_have_the_distributions_of_their_trees(rule, width):
    """Sum of (first token - its tree's distribution), step by step: every one has mean 0 whatever came before."""
    p, q, total, spread = table(6, 5, 1.2), table(7, 5, 1.2), torch.zeros(5).double(), torch.zeros(5).double()
    seen = []

    def watch(tree, scored, verdict):
        probs = ORACLES[rule][0].first_token_probs(tree, scored, T1)
        total.sub_(probs)
        total[verdict.tokens[0]] += 1
        spread.add_(probs * (1 - probs))
        seen.append((int(tree.depths.max()), float(probs.max())))

    drafter = fork_tree(draft=BigramLM(q), width=width, depth=3, decision=Rule(likes_token_1))
    generate(
        BigramLM(p), drafter, ORACLES[rule][0], [0], max_new_tokens=300, sampling=T1, allow_lossy=True, watch=watch,
        rng=torch.Generator().manual_seed(width),
    )  # fmt: skip
    assert {depth for depth, _ in seen} == {2, 3, 4}
    assert sum(largest < 0.99 for _, largest in seen) > 50
    assert float((total / spread.sqrt()).abs().max()) < 3.9


@pytest.mark.parametrize("rule", ORACLES)
def test_at_temperature_0_the_distribution_is_that_of_the_one_tree(rule):
    """The tree is one and so is the winner: the engine's first token, step by step."""
    p, q, firsts = table(8, 7, 2.0), table(9, 7, 2.0), []
    for row in (0, 3, 5):
        q[row] = p[row]
    best = p.softmax(-1).argmax(-1)

    def watch(tree, scored, verdict):
        probs = ORACLES[rule][0].first_token_probs(tree, scored, GREEDY)
        assert probs.max() == probs.sum() == probs[verdict.tokens[0]] == 1
        firsts.append(verdict.tokens[0] == int(best[tree.tokens[0]]))
        for node, path in enumerate(paths_of(tree)[1:], 1):
            if len(path) > 1:
                assert path[-1] == int(q[path[-2]].argmax())
            assert node

    for start in range(7):
        drafter = fork_tree(draft=BigramLM(q), width=3, depth=3, draws="topk", decision=Rule(likes_token_1))
        generate(BigramLM(p), drafter, ORACLES[rule][0], [start], max_new_tokens=8, allow_lossy=True, watch=watch)
    assert set(firsts) == {True, False}, "the second best may win"
