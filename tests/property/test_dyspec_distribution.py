"""DySpec's distribution, summed exactly: every outcome of every draw at every node that the draft reads.

A tree is a function of the orders in which its nodes draw their tokens. Each order has a probability, so that the
distribution of the trees, and with a rule's exact chances that of the next three tokens, are finite sums.
"""

from collections import Counter, defaultdict
from functools import cache
from itertools import permutations

import pytest
import torch
from doubles import TableDraft, context_for, paths_of

from specdec_core.drafters import DySpec, DySpecHeap, DySpecThreshold, dyspec
from specdec_core.drafters.sites import Sites
from specdec_core.sampling import draft_probs
from specdec_core.verifiers import MultiCandidate, WithoutReplacement

VOCAB, TEMPERATURE = 3, 0.6
TOLERANCE = 1e-6
"""Q is in float32, and the drafts of the sums in float64."""


def table(seed, vocab=VOCAB):
    """Distributions after each token."""
    return (1.5 * torch.randn(vocab, vocab, generator=torch.Generator().manual_seed(seed))).softmax(-1)


P, Q = table(1).double(), table(2)


@cache
def orders(row):
    """Every order in which a node may draw its tokens, with its probability."""
    found = []
    for order in permutations(range(len(row))):
        chance, left = 1.0, 1.0
        for token in order:
            chance *= row[token] / left if left > 0 else 1.0
            left -= row[token]
        found.append((order, chance))
    total = sum(chance for _, chance in found)
    return [(order, chance / total) for order, chance in found]


def every_tree(drafter, monkeypatch):
    """All trees with their probabilities: a tape of orders is played, and lengthened where the draft reads on."""
    tapes = [()]
    while tapes:
        tape = tapes.pop()
        played, chance, short = 0, 1.0, False

        def race(q, rng, tape=tape):
            nonlocal played, chance, short
            times = torch.zeros(q.shape, dtype=torch.float64)
            for row, probs in enumerate(q.tolist()):
                choices = orders(tuple(probs))
                short = short or played >= len(tape)
                order, probability = choices[tape[played]] if played < len(tape) else choices[0]
                played, chance = played + 1, chance * probability
                times[row, list(order)] = torch.arange(1.0, len(order) + 1, dtype=torch.float64)
            return times

        monkeypatch.setattr(dyspec, "race", race)
        tree = drafter.grow(context_for())
        if short:
            tapes += [(*tape, choice) for choice in range(len(orders(tuple(Q[0].tolist()))))]
        else:
            yield tree, chance


def draft_after(token):
    """A draft whose distribution depends on the last token alone, beginning behind `token`."""
    return TableDraft(VOCAB, lambda path: Q[path[-1] if path else token])


def probs_of_step(make, rule, monkeypatch, token):
    """Probability of each sequence of tokens that one step may commit behind `token`."""
    outcomes = defaultdict(float)
    for tree, chance in every_tree(make(draft_after(token)), monkeypatch):
        walk(tree, 0, token, (), chance, rule, outcomes)
    return outcomes


def walk(tree, node, token, done, reach, rule, outcomes):
    """The rule's exact chances from a node on."""
    children = tree.children(node)
    if not len(children):
        for last in range(VOCAB):
            outcomes[(*done, last)] += reach * float(P[token, last])
        return
    q = tree.q_after(node).double()
    rounds = rule.rounds(P[token], q, tree.tokens[children])
    for child, accept in zip(children.tolist(), rounds.accept.tolist(), strict=True):
        drawn = int(tree.tokens[child])
        walk(tree, child, drawn, (*done, drawn), reach * accept, rule, outcomes)
        reach *= 1 - accept
    for last in range(VOCAB):
        outcomes[(*done, last)] += reach * float(rounds.residual[last])


def probs_of_three(make, rule, monkeypatch):
    """The distribution of three tokens behind token 0: what a step lacks is added by steps behind its last token."""
    steps = [probs_of_step(make, rule, monkeypatch, token) for token in range(VOCAB)]

    @cache
    def probs(token, count):
        found = Counter()
        for sequence, chance in steps[token].items():
            if len(sequence) >= count:
                found[sequence[:count]] += chance
                continue
            for rest, more in probs(sequence[-1], count - len(sequence)).items():
                found[(*sequence, *rest)] += chance * more
        return found

    return probs(0, 3)


def furthest(probs):
    """Largest distance to the target's own distribution of three tokens."""
    wanted = {
        (a, b, c): float(P[0, a] * P[a, b] * P[b, c]) for a in range(VOCAB) for b in range(VOCAB) for c in range(VOCAB)
    }
    return max(abs(probs[outcome] - chance) for outcome, chance in wanted.items())


MAKES = {
    **{f"heap_{n}": lambda draft, n=n: DySpec(draft=draft, n=n) for n in (1, 2, 3, 4)},
    **{f"node_by_node_{n}": lambda draft, n=n: DySpecHeap(draft=draft, n=n) for n in (1, 2, 3)},
    "heap_depth_2": lambda draft: DySpec(draft=draft, n=4, max_depth=2),
    "threshold": lambda draft: DySpecThreshold(draft=draft, n=9, threshold=0.2, max_depth=2),
    **{
        f"threshold_delta_{delta}": lambda draft, delta=delta: DySpecThreshold(
            draft=draft, n=4, threshold=0.1, max_depth=3, delta=delta
        )
        for delta in (0.45, 0.6)
    },
    "threshold_capped": lambda draft: DySpecThreshold(draft=draft, n=4, threshold=0.1, max_depth=3),
}


CELLS = [(name, MultiCandidate()) for name in MAKES]
CELLS += [
    (name, WithoutReplacement())
    for name in ("heap_3", "threshold", "threshold_capped", "threshold_delta_0.45", "threshold_delta_0.6")
]


@pytest.mark.few(7)
@pytest.mark.parametrize(("name", "rule"), CELLS, ids=[f"{name}-{type(rule).__name__}" for name, rule in CELLS])
def test_the_next_three_tokens_have_the_targets_distribution(name, rule, monkeypatch):
    assert furthest(probs_of_three(MAKES[name], rule, monkeypatch)) < TOLERANCE


class ByPath(Sites):
    """The classic error: sites ranked by the path probability of the node drawn there, not by their value."""

    def values(self, edges):
        return self._paths[:, None] * edges


class Likely(Sites):
    """Another: what was drawn is thrown away where the draft thinks little of it."""

    def add(self, tokens, edges, values):
        return super().add(tokens, edges, values * (edges > 0.3))


@pytest.mark.parametrize("wrong", [ByPath, Likely])
def test_a_choice_that_looks_at_the_drawn_token_is_found_out(wrong, monkeypatch):
    monkeypatch.setattr(dyspec, "Sites", wrong)
    assert furthest(probs_of_three(MAKES["heap_3"], MultiCandidate(), monkeypatch)) > 1e-3


def test_an_end_that_looks_at_drawn_tokens_is_found_out_where_deeper_sites_displace_others(monkeypatch):
    def ended(draft):
        drafter = DySpec(draft=draft, n=4)
        drafter.delta = 0.7
        return drafter

    assert furthest(probs_of_three(ended, MultiCandidate(), monkeypatch)) > 1e-2


def literal_trees(n):
    """Algorithm 1 as printed: the distribution of the trees, a token drawn whenever a site is popped."""

    def pop(sites, paths, chance):
        if len(paths) == n:
            found[frozenset(paths)] += chance
            return
        best = max(range(len(sites)), key=lambda at: sites[at][0])
        value, path, residual = sites[best]
        for token, probability in enumerate(residual):
            if not probability:
                continue
            left = [0.0 if other == token else share for other, share in enumerate(residual)]
            beside = [(value * (1 - probability), path, [share / sum(left) for share in left])] if sum(left) else []
            below = (value * probability, (*path, token), probs(token))
            pop([*sites[:best], *beside, below, *sites[best + 1 :]], [*paths, (*path, token)], chance * probability)

    def probs(token):
        row = draft_probs(Q[token].log()[None], TEMPERATURE)[0].double()
        return (row / row.sum()).tolist()

    found = defaultdict(float)
    pop([(1.0, (), probs(0))], [], 1.0)
    return found


@pytest.mark.parametrize("make", [DySpec, DySpecHeap])
@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_trees_have_the_distribution_of_the_printed_algorithm(n, make, monkeypatch):
    found = defaultdict(float)
    for tree, chance in every_tree(make(draft=draft_after(0), n=n), monkeypatch):
        found[frozenset(paths_of(tree)[1:])] += chance
    wanted = literal_trees(n)
    assert set(found) == set(wanted)
    assert max(abs(found[paths] - wanted[paths]) for paths in wanted) < TOLERANCE
