"""Drafters and rules on small tables, with every draw played, by an arithmetic of this file's own.

The rules are written down here as lists of numbers, from the papers' words; what runs is the drafter, the walk through
its tree and what the rule hands on.
"""

from collections import Counter
from functools import cache
from itertools import permutations, product

import pytest
import torch
from distributions import probs_of_tokens
from doubles import TableDraft, context_for

from specdec_core import Sampling
from specdec_core.drafters import static_tree, target_init
from specdec_core.models import ModelOutput
from specdec_core.roots import Pending, Virtual
from specdec_core.verifiers import ChildByChild, rounds

TOLERANCE = 1e-6
"""Distributions are in float32, and the sums in float64."""

T1, GREEDY = Sampling(1.0), Sampling()


def table(seed, vocab, sharpness=1.5):
    """Logits after each token."""
    return sharpness * torch.randn(vocab, vocab, generator=torch.Generator().manual_seed(seed))


def after(logits):
    """A draft whose distribution depends on the last token alone, the root's on the root."""

    class Rooted(TableDraft):
        def begin(self, context):
            self.root = context.tokens[-1]
            return super().begin(context)

    draft = Rooted(logits.shape[1], None)
    draft.root = 0
    draft.probs = lambda path: logits[path[-1] if path else draft.root].softmax(-1)
    return draft


def draws_of(q, k, how="without_replacement"):
    """Every sequence of k successive draws with its probability; uniform over the others where q has no more."""
    if k == 0:
        return [((), 1.0)]
    if how == "iid":
        found = [(tokens, 1.0) for tokens in product(range(len(q)), repeat=k)]
        return [(tokens, chance_of(q, tokens)) for tokens, _ in found if chance_of(q, tokens) > 0]
    found = []
    for tokens in permutations(range(len(q)), k):
        left, chance = list(q), 1.0
        for number, token in enumerate(tokens):
            total = sum(left)
            chance *= left[token] / total if total > 0 else 1 / (len(q) - number)
            left[token] = 0.0
        if chance > 0:
            found.append((tokens, chance))
    return found


def chance_of(q, tokens):
    chance = 1.0
    for token in tokens:
        chance *= q[token]
    return chance


def normed(probs):
    total = sum(probs)
    return [value / total for value in probs]


def mcsd(p, q, children):
    """Chance of each child to be accepted once those before it were rejected, and what is left behind all of them."""
    wanted, drawn, accept = normed(p), normed(q), []
    for child in children:
        accept.append(min(1.0, wanted[child] / drawn[child]) if drawn[child] > 0 else 0.0)
        if drawn[child] > 0 and accept[-1] < 1 - 1e-9:
            wanted = normed([max(a - b, 0.0) for a, b in zip(wanted, drawn, strict=True)])
        drawn[child] = 0.0
        if sum(drawn) > 0:
            drawn = normed(drawn)
    return accept, wanted


def every_run(run):
    """All outcomes of `run(pick)` with their probabilities; it takes its draws from `pick(chances)`, an index."""
    tapes = [()]
    while tapes:
        tape, played, chance = tapes.pop(), [], 1.0

        def pick(chances, tape=tape, played=played):
            nonlocal chance
            options = [number for number, share in enumerate(chances) if share > 0]
            if len(played) >= len(tape):
                tapes.extend((*played, other) for other in options[1:])
                choice = options[0]
            else:
                choice = tape[len(played)]
            played.append(choice)
            chance *= float(chances[choice])
            return choice

        outcome = run(pick)
        yield outcome, chance


class Played:
    """A drafter and a rule on bigram tables, each draw one of all possible ones."""

    def __init__(self, monkeypatch, target, drafter, rule, sampling=T1):
        self.target, self.drafter, self.rule, self.sampling = target, drafter, rule, sampling
        self.orders, self.pick, self.last_drawn, self.depths = cache(draws_of), None, None, set()
        for module in (target_init, static_tree):
            monkeypatch.setattr(module, "draw_children", self.draw)
        monkeypatch.setattr(ChildByChild, "choose", lambda rule, p, q, drawn, uniform: self.choose(p, q, drawn))
        monkeypatch.setattr(
            rounds, "draw_tokens", lambda probs, k, rng: torch.tensor([self.pick(normed(probs.tolist()))])
        )

    def draw(self, probs, k, how, rng, counts=None):
        ids = []
        for row in probs.tolist():
            orders = self.orders(tuple(row), k, how)
            ids.append(orders[self.pick(normed([chance for _, chance in orders]))][0])
        self.last_drawn = ids = torch.tensor(ids)
        return probs.gather(-1, ids), ids

    def choose(self, p, q, children):
        accept, rest = mcsd(p.tolist(), q.tolist(), children.tolist())
        chances, left = [], 1.0
        for chance in accept:
            chances.append(left * chance)
            left *= 1 - chance
        choice = self.pick([*chances, left])
        return choice if choice < len(chances) else torch.tensor(rest)

    def trees(self, token, probs=None):
        """Every tree behind a token with its probability."""

        def run(pick):
            self.pick, context = pick, context_for(token)
            context.root = Pending() if probs is None else Virtual(torch.tensor(probs))
            context.greedy = self.sampling.greedy
            return self.drafter.grow(context)

        for tree, chance in every_run(run):
            self.depths.add(int(tree.depths.max()))
            yield tree, chance

    def scored(self, tree, probs=None):
        rows = self.target[tree.tokens]
        if probs is None:
            return ModelOutput(rows)
        root = torch.tensor(probs)
        return ModelOutput(torch.cat((root.log()[None], rows[1:])), None, root)

    def step(self, token, probs=None):
        """Probability of the tokens, and the next distribution if one is left, of a step behind `token`."""
        outcomes = Counter()
        for tree, reached in self.trees(token, probs):

            def run(pick, tree=tree):
                self.pick = pick
                verdict = self.rule.judge(tree, self.scored(tree, probs), self.sampling, torch.Generator())
                if probs is None:
                    assert verdict.next_probs is None
                    return (*verdict.tokens, verdict.next_token), None
                assert verdict.next_token is None
                return verdict.tokens, tuple(verdict.next_probs.tolist())

            for outcome, chance in every_run(run):
                outcomes[outcome] += reached * chance
        assert sum(outcomes.values()) == pytest.approx(1, abs=1e-6)
        return outcomes

    def probs_of(self, count):
        """The distribution of so many tokens behind token 0."""
        virtual = self.drafter.virtual_root
        return probs_of_tokens(self.step, 0, tuple(self.target[0].softmax(-1).tolist()) if virtual else None, count)

    def error(self, count):
        """Largest distance from the target's own distribution of so many tokens."""
        p, found, worst = self.target.double().softmax(-1), self.probs_of(count), 0.0
        for tokens in product(range(len(p)), repeat=count):
            chance = 1.0
            for above, token in zip((0, *tokens), tokens, strict=False):
                chance *= float(p[above, token])
            assert chance > 0 or not found[tokens], "a token without probability"
            worst = max(worst, abs(found[tokens] - chance))
        return worst
