"""Mean over all trees of the first token's distribution, against an enumeration of chains that runs no code of ours."""

from collections import Counter
from itertools import pairwise, product

import pytest
import torch
from first_token_probs import ORACLES
from played_forks import T1, Played, after, draws_of, mcsd, table
from stops import Rule, likes_token_1, two_minded

from specdec_core.drafters import fork_tree


def all_chains(q, firsts, depth, goes_on):
    """All chains below first tokens with their probability; a level may be the last, for what stands above it."""
    grown, done = [(tuple((first,) for first in firsts), 1.0)], []
    while grown:
        chains, chance = grown.pop()
        drafted = len(chains[0]) - 1
        if drafted == depth or (drafted and not goes_on([q[chain[-2]] for chain in chains])):
            done.append((chains, chance))
            continue
        for tokens in product(range(len(q)), repeat=len(firsts)):
            longer = tuple((*chain, token) for chain, token in zip(chains, tokens, strict=True))
            more = chance * chance_of_steps(q, longer)
            grown += [(longer, more)] if more else []
    return done


def chance_of_steps(q, chains):
    """Of the last tokens of all chains."""
    chance = 1.0
    for *_, above, token in chains:
        chance *= q[above][token]
    return chance


def lengths_of(chain, accepted):
    """How probable it is that exactly 0, 1, ... tokens below the first are accepted."""
    found, left = [], 1.0
    for above, token in pairwise(chain):
        found.append(left * (1 - accepted(above, token)))
        left *= accepted(above, token)
    return [*found, left]


def chain_winner_probs(p, q, width, depth, goes_on, rule):
    """The first token's distribution, summed without any of the code: first tokens, chains, lengths, the winner."""
    p, q = (logits.double().softmax(-1).tolist() for logits in (p, q))
    probs = Counter()

    def accepted(above, token):
        alone = min(1.0, p[above][token] / q[above][token])
        return alone if rule == "independent" else mcsd(p[above], q[above], [token])[0][0]

    for firsts, chance in draws_of(p[0], width):
        for chains, reached in all_chains(q, firsts, depth, goes_on):
            lengths = [lengths_of(chain, accepted) for chain in chains]
            for outcome in product(*(range(len(found)) for found in lengths)):
                share = chance * reached
                for found, length in zip(lengths, outcome, strict=True):
                    share *= found[length]
                probs[chains[outcome.index(max(outcome))][0]] += share
    return [probs[token] for token in range(len(p))]


def likes_1_of_lists(rows):
    return any(row.index(max(row)) == 1 for row in rows)


@pytest.mark.parametrize("rule", ORACLES)
@pytest.mark.parametrize(("width", "depth", "content"), [(2, 2, True), (2, 1, False), (3, 1, False)])
def test_the_mean_over_all_trees_is_the_distribution_of_an_enumeration_of_its_own(
    rule, width, depth, content, monkeypatch
):
    p, q = table(1, 3), two_minded(3, 2)
    drafter = fork_tree(draft=after(q), width=width, depth=depth, decision=Rule(likes_token_1) if content else None)
    played = Played(monkeypatch, p, drafter, ORACLES[rule][0])
    probs, mean = tuple(p[0].softmax(-1).tolist()), torch.zeros(3).double()
    for tree, chance in played.trees(0, probs):
        mean += chance * ORACLES[rule][0].first_token_probs(tree, played.scored(tree, probs), T1)
    wanted = chain_winner_probs(p, q, width, depth, likes_1_of_lists if content else lambda rows: True, rule)
    assert mean.tolist() == pytest.approx(wanted, abs=2e-6)
    assert played.depths == ({2, 3} if content else {1 + depth})
    assert max(abs(a - b) for a, b in zip(wanted, probs, strict=True)) > 1e-3, "several first tokens are lossy"


@pytest.mark.parametrize("rule", ORACLES)
def test_the_distribution_differs_from_p_where_subtrees_are_accepted_unequally(rule, monkeypatch):
    """Behind token 0 all is accepted, behind the others nothing: 0 wins wherever it is drawn."""
    p = torch.zeros(3, 3)
    p[1:, 0] = -torch.inf
    q = p.clone()
    q[1:] = torch.tensor([0.0, -torch.inf, -torch.inf])
    drafter = fork_tree(draft=after(q), width=2, depth=1)
    played = Played(monkeypatch, p, drafter, ORACLES[rule][0])
    mean = torch.zeros(3).double()
    for tree, chance in played.trees(0, (1 / 3, 1 / 3, 1 / 3)):
        mean += chance * ORACLES[rule][0].first_token_probs(tree, played.scored(tree, (1 / 3, 1 / 3, 1 / 3)), T1)
    assert mean.tolist() == pytest.approx([2 / 3, 1 / 6, 1 / 6], abs=1e-6)


@pytest.mark.parametrize("rule", ORACLES)
def test_with_q_equal_to_p_the_first_path_always_wins_and_the_distribution_is_p(rule, monkeypatch):
    """Spec 9.3: all is accepted, and the first draw from a distribution has that distribution."""
    p = two_minded(3, 5)
    p[1, 2] = p[2, 0] = -torch.inf
    drafter = fork_tree(draft=after(p), width=2, depth=2, decision=Rule(likes_token_1))
    played = Played(monkeypatch, p, drafter, ORACLES[rule][0])
    probs, mean = tuple(p[0].softmax(-1).tolist()), torch.zeros(3).double()
    for tree, chance in played.trees(0, probs):
        found = ORACLES[rule][0].first_token_probs(tree, played.scored(tree, probs), T1)
        assert float(found[tree.tokens[1]]) == pytest.approx(1, abs=1e-5)
        mean += chance * found
    assert mean.tolist() == pytest.approx(probs, abs=1e-5)
    assert len(played.depths) == 2
