"""Trees that end early: distributions of the next tokens, summed over every draw of drafter and rule."""

from collections import Counter, defaultdict
from itertools import permutations

import pytest
import torch
from played_forks import T1, TOLERANCE, Played, after, mcsd, table
from stops import STOPS, Rule, likes_token_1, model_stop, two_minded

from specdec_core import TokenTree
from specdec_core.checks import check_lossless
from specdec_core.drafters import EarlyStop, TargetInit, fork_tree
from specdec_core.models import ModelOutput
from specdec_core.verifiers import ChildByChild, IndependentLongest, LongestSubtree, MultiCandidate


@pytest.mark.parametrize(
    ("vocab", "width", "depth", "count", "stop"),
    [
        *((2, 2, 3, 4, stop) for stop in STOPS),
        *((2, 1, 3, 4, stop) for stop in STOPS),
        *((3, 2, 2, 3, stop) for stop in ("none", "always_off", "likes_1")),
    ],
)
def test_a_fork_from_the_root_has_the_targets_distribution_however_it_ends(
    vocab, width, depth, count, stop, monkeypatch
):
    """Spec 9.1: the next tokens, summed over all draws, trees and judgements."""
    p, q = table(1, vocab), two_minded(vocab, 2)
    drafter = fork_tree(draft=after(q), width=width, depth=depth, init="draft", decision=STOPS[stop]())
    played = Played(monkeypatch, p, drafter, MultiCandidate())
    assert check_lossless(drafter, played.rule, T1)
    assert played.error(count) < TOLERANCE
    wanted = {"none": {depth}, "always_on": {depth}, "always_off": {1}}
    assert played.depths == wanted[stop] if stop in wanted else len(played.depths) > 1


@pytest.mark.parametrize("kind", ["same", "disjoint", "few", "certain"])
def test_special_distributions_too(kind, monkeypatch):
    """Q = p; q without p's tokens; fewer tokens than sequences; a certain p. The stop reads the content."""
    p, q = table(3, 3), two_minded(3, 4)
    if kind == "same":
        q = p = two_minded(3, 4)
    if kind == "disjoint":
        p[:, 0] = q[:, 1] = q[:, 2] = -torch.inf
    if kind == "few":
        q[0, 2] = q[1, 1:] = q[2, :2] = -torch.inf
    if kind == "certain":
        p[:, 1:] = -torch.inf
    drafter = fork_tree(draft=after(q), width=2, depth=2, init="draft", decision=Rule(likes_token_1))
    assert Played(monkeypatch, p, drafter, MultiCandidate()).error(3) < TOLERANCE


class Peeking(Rule):
    """Goes on unless the level just drafted, which it may see since it is kept, holds token 0."""

    def __init__(self):
        self.played = None

    def goes_on(self, drafted):
        return not bool((self.played.last_drawn == 0).any())


def test_a_stop_may_depend_on_the_very_tokens_that_were_drafted_since_they_are_kept(monkeypatch):
    stop = Peeking()
    drafter = fork_tree(draft=after(table(2, 2)), width=1, depth=3, init="draft", decision=stop)
    stop.played = Played(monkeypatch, table(1, 2), drafter, MultiCandidate())
    assert stop.played.error(4) < TOLERANCE
    assert stop.played.depths == {1, 2, 3}


def without_last(tree):
    """The tree above its last level."""
    end = int((tree.depths < tree.depths.max()).sum())
    has_child = torch.bincount(tree.parents[1:end], minlength=end) > 0
    rows = torch.where(has_child, tree.draft_rows[:end], -1)
    return TokenTree(tree.tokens[:end], tree.parents[:end], tree.edge_probs[:end], tree.draft_probs, rows)


def test_dropping_what_was_drafted_for_what_it_says_is_seen(monkeypatch):
    """The control: the level that holds token 0 is thrown away instead of kept."""
    drafter = fork_tree(draft=after(table(2, 2)), width=1, depth=2, init="draft")
    grow = drafter.grow

    def dropping(context):
        tree = grow(context)
        return without_last(tree) if int(tree.tokens[-1]) == 0 else tree

    drafter.grow = dropping
    assert Played(monkeypatch, table(1, 2), drafter, MultiCandidate()).error(3) > 1e-3


def test_rejecting_as_if_draws_were_independent_is_seen(monkeypatch):
    """The control of the rule: SpecInfer's, which leaves q as it is, on draws without replacement (spec 9.4)."""
    drafter = fork_tree(draft=after(table(2, 3)), width=2, depth=2, init="draft", decision=Rule(likes_token_1))
    played, wrong = Played(monkeypatch, table(1, 3), drafter, MultiCandidate()), MultiCandidate(replacement=True)

    def choose(p, q, children):
        found = wrong.rounds(p, q, children)
        chances, left = [], 1.0
        for chance in found.accept.tolist():
            chances.append(left * chance)
            left *= 1 - chance
        choice = played.pick([*chances, left])
        return choice if choice < len(chances) else found.residual

    assert played.error(2) < TOLERANCE
    played.choose = choose
    monkeypatch.setattr(ChildByChild, "choose", lambda rule, p, q, drawn, rng: choose(p, q, drawn))
    assert played.error(2) > 1e-3


@pytest.mark.parametrize("seed", range(4))
def test_the_rules_rounds_are_those_of_this_file(seed):
    p, q = (table(seed + offset, 5)[0].double().softmax(-1) for offset in (0, 50))
    q[seed] = 0
    q /= q.sum()
    for children in permutations(range(5), 3):
        accept, rest = mcsd(p.tolist(), q.tolist(), children)
        found = MultiCandidate().rounds(p, q, torch.tensor(children))
        reached = 1.0
        for number, chance in enumerate(accept):
            if reached > 1e-9:
                assert float(found.accept[number]) == pytest.approx(chance, abs=1e-9)
            reached *= 1 - chance
        assert reached < 1e-9 or found.residual.tolist() == pytest.approx(rest, abs=1e-9)


@pytest.mark.parametrize("stop", ["always_off", "likes_1", "unsure"])
@pytest.mark.parametrize(("vocab", "depth", "count"), [(2, 3, 4), (3, 2, 2)])
def test_below_one_first_token_the_distribution_is_the_targets_however_the_chain_ends(
    vocab, depth, count, stop, monkeypatch
):
    """Spec 9.2 for a stop that reads the content: what a step leaves is the next step's first level."""
    drafter = fork_tree(draft=after(two_minded(vocab, 2)), width=1, depth=depth, decision=STOPS[stop]())
    played = Played(monkeypatch, table(1, vocab), drafter, LongestSubtree())
    assert check_lossless(drafter, played.rule, T1)
    assert played.error(count) < TOLERANCE
    assert played.depths == {2} if stop == "always_off" else len(played.depths) > 1


def test_the_papers_rule_is_not_exact_below_one_first_token_of_several_siblings(monkeypatch):
    """Spec 3.4 (b), the control of the test above: siblings that were drawn without replacement."""
    drafter = TargetInit(draft=after(two_minded(3, 2)), widths=(1, 2), stop=None)
    p, found = table(1, 3).softmax(-1), defaultdict(float)
    played = Played(monkeypatch, table(1, 3), drafter, IndependentLongest())
    probs = tuple(p[0].tolist())
    for tree, chance in played.trees(0, probs):
        flagged = [min(1.0, float(p[tree.tokens[1], tree.tokens[n]] / tree.edge_probs[n])) for n in (2, 3)]
        a, b = (int(tree.tokens[n]) for n in (2, 3))
        found[int(tree.tokens[1]), a] += chance * flagged[0]
        found[int(tree.tokens[1]), b] += chance * (1 - flagged[0]) * flagged[1]
        for token in range(3):
            found[int(tree.tokens[1]), token] += (
                chance * (1 - flagged[0]) * (1 - flagged[1]) * float(p[tree.tokens[1], token])
            )
    exact = {(a, b): float(p[0, a] * p[a, b]) for a in range(3) for b in range(3)}
    assert sum(found.values()) == pytest.approx(1, abs=1e-6)
    assert max(abs(found[pair] - exact[pair]) for pair in exact) > 1e-3


def test_early_stop_by_a_model_is_the_same_as_by_its_scores(monkeypatch):
    """Every tree of a fork under a `topk` model ends where all scores of a level's parents are at most beta."""
    q, model = two_minded(3, 2), model_stop()
    scores = dict(enumerate(model.scores(ModelOutput(q.softmax(-1).log())).tolist()))
    beta = sorted(scores.values())[1]
    drafter = fork_tree(draft=after(q), width=2, depth=3, init="draft", decision=model, beta=beta)
    assert isinstance(drafter.stop, EarlyStop)
    played = Played(monkeypatch, table(1, 3), drafter, MultiCandidate())
    ends, number = Counter(), 0
    for root in range(3):
        for tree, _ in played.trees(root):
            number += 1
            levels = int(tree.depths.max())
            above = [tree.tokens[tree.depths == depth].tolist() for depth in range(levels)]
            goes_on = [any(scores[token] > beta for token in level) for level in above]
            assert all(goes_on[: levels - 1])
            assert levels == 3 or not goes_on[levels - 1]
            ends[levels] += 1
    assert {1, 2, 3} >= set(ends)
    assert len(ends) > 1
    assert number > 20
