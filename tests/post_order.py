"""Small models in fractions: every tree that may be drafted, and what rules from leaf to root make of it.

The rules are written down anew from the papers' words, one node after another, and share nothing with the package.
`law_of` is what the package makes of the same trees.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cache
from itertools import product
from random import Random

import pytest
import torch
from torch import Tensor

from specdec_core import Sampling, TokenTree
from specdec_core.models import ModelOutput
from specdec_core.verifiers import Traversal
from specdec_core.verifiers.rounds import family

Probs = tuple[Fraction, ...]
Text = tuple[int, ...]
ONE, ZERO = Fraction(1), Fraction(0)
EXACT = 1e-12
KINDS = ("iid", "without_replacement", "greedy_one")
SHAPES: dict[str, Sequence[int]] = {
    "one": [-1, 0, 0],
    "chain": [-1, 0, 1],
    "chain_of_3": [-1, 0, 1, 2],
    "fork": [-1, 0, 0, 1, 2],
    "two_below_one": [-1, 0, 1, 1],
    "binary": [-1, 0, 0, 1, 1, 2, 2],
    "first": [-1, 0, 0, 1],
    "second": [-1, 0, 0, 2],
}
"""Parents; children stand in draft order."""


@dataclass(frozen=True)
class Models:
    """p and q after every text."""

    p: Callable[[Text], Probs]
    q: Callable[[Text], Probs]
    vocab: int = 3

    @classmethod
    def random(cls, seed: int, vocab: int = 3) -> "Models":
        """Of small integer weights, zeros among them."""

        @cache
        def probs(which: str, text: Text) -> Probs:
            rng = Random(f"{seed} {which} {text}")
            weights = [rng.choice((0, 1, 1, 2, 3, 5)) for _ in range(vocab)]
            weights[rng.randrange(vocab)] += 1
            return tuple(Fraction(weight, sum(weights)) for weight in weights)

        return cls(lambda text: probs("p", text), lambda text: probs("q", text), vocab)


P, Q = (tuple(Fraction(weight, 10) for weight in weights) for weights in ((5, 3, 2), (2, 3, 5)))
FIXED = Models(lambda text: P, lambda text: Q)
"""The same at every node."""


@dataclass
class Drafted:
    """A tree while it is drawn, with the law of each child given what was drawn before it."""

    texts: list[Text] = field(default_factory=lambda: [()])
    parents: list[int] = field(default_factory=lambda: [-1])
    laws: list[Probs] = field(default_factory=lambda: [()])
    chance: Fraction = ONE

    def children(self, node: int) -> list[int]:
        """In draft order."""
        return [child for child, parent in enumerate(self.parents) if parent == node]

    def grown(self, models: Models, parent: int, kind: str, count: int = 0) -> Iterator["Drafted"]:
        """With one more child of a node that gets `count`, for every token that it may be."""
        before = [self.texts[child][-1] for child in self.children(parent)]
        law = next_law(models.q(self.texts[parent]), before, kind, count)
        for token, chance in enumerate(law):
            if chance:
                columns = [*self.texts, (*self.texts[parent], token)], [*self.parents, parent], [*self.laws, law]
                yield Drafted(*columns, self.chance * chance)

    def tree(self, models: Models) -> tuple[TokenTree, ModelOutput]:
        """As the package has it; in place of logits p itself, in float64."""
        p, q = (
            torch.tensor([[*map(float, of(text))] for text in self.texts], dtype=torch.float64)
            for of in (models.p, models.q)
        )
        tokens = torch.tensor([0, *(text[-1] for text in self.texts[1:])])
        parents = torch.tensor(self.parents)
        edges = q[parents, tokens].index_fill(0, torch.tensor([0]), 1.0)
        inner = [node for node in range(len(self.parents)) if self.children(node)]
        rows = torch.full((len(self.parents),), -1)
        rows[inner] = torch.arange(len(inner))
        return TokenTree(tokens, parents, edges, q[inner], rows), ModelOutput(p)


class Given(Sampling):
    """Its rows are distributions already."""

    greedy = False

    def probs(self, rows: Tensor) -> Tensor:
        return rows

    closed = probs


def next_law(q: Probs, before: Sequence[int], kind: str, count: int) -> Probs:
    """Of the next child, given its earlier siblings; behind q's support it is uniform."""
    if kind == "iid":
        return q
    best = sorted(range(len(q)), key=lambda token: (-q[token], token))[: count - 1]
    if kind == "greedy_one" and before:
        return tuple(Fraction(token == best[len(before) - 1]) for token in range(len(q)))
    before = best if kind == "greedy_one" else before
    left = [ZERO if token in before else x for token, x in enumerate(q)]
    left = left if sum(left) else [ZERO if token in before else ONE for token in range(len(q))]
    return tuple(x / sum(left) for x in left)


def drafted(models: Models, parents: Sequence[int], kind: str) -> list[Drafted]:
    """Every tree of a shape."""
    found = [Drafted()]
    for parent in parents[1:]:
        count = parents.count(parent)
        found = [more for one in found for more in one.grown(models, parent, kind, count)]
    return found


Law = dict[int, tuple[Fraction, Probs]]
"""Of each node the probability that it is accepted, should none before it be, and what the next token is drawn from.

In the order in which nodes are looked at.
"""


def traversal(models: Models, one: Drafted, *, backwards: bool = False) -> Law:
    """Weng et al. (2025), with residuals of a node's own chance a; `backwards` judges children against their order."""
    law: Law = {}

    def visit(node: int, a: Fraction) -> None:
        m, children = list(models.p(one.texts[node])), one.children(node)
        for child in reversed(children) if backwards else children:
            d, token = one.laws[child], one.texts[child][-1]
            visit(child, min(ONE, a * m[token] / d[token]))
            rest = [max(a * x - y, ZERO) for x, y in zip(m, d, strict=True)]
            if sum(rest):
                m = [x / sum(rest) for x in rest]
            if sum(rest) + 1 - a:
                a = sum(rest) / (sum(rest) + 1 - a)
        law[node] = a, tuple(m)

    visit(0, ONE)
    return law


def block(models: Models, one: Drafted) -> Law:
    """Sun et al. (2024, arXiv 2403.10444, Algorithm 2) on a chain."""
    g, kept, law = len(one.texts) - 1, [ONE], {}
    for node in range(1, g + 1):
        token, above = one.texts[node][-1], one.texts[node - 1]
        kept.append(min(ONE, kept[-1] * models.p(above)[token] / models.q(above)[token]))
    for node in reversed(range(g + 1)):
        p, q = models.p(one.texts[node]), models.q(one.texts[node])
        rest = [max(kept[node] * x - y, ZERO) for x, y in zip(p, q, strict=True)]
        left = sum(rest) + 1 - kept[node]
        chance = ONE if not node or not left else sum(rest) / left
        law[node] = (kept[g], p) if node == g else (chance, tuple(x / sum(rest) for x in rest) if sum(rest) else p)
    return law


def multi_round(models: Models, one: Drafted) -> Fraction:
    """Mean accepted drafted tokens, judged child by child from the root."""

    def below(node: int) -> Fraction:
        r, reach, mean = list(models.p(one.texts[node])), ONE, ZERO
        for child in one.children(node):
            d, token = one.laws[child], one.texts[child][-1]
            accept = min(ONE, r[token] / d[token])
            mean += reach * accept * (1 + below(child)) if accept else ZERO
            reach *= 1 - accept
            rest = [max(x - y, ZERO) for x, y in zip(r, d, strict=True)]
            if not reach or not sum(rest):
                break
            r = [x / sum(rest) for x in rest]
        return mean

    return below(0)


def outcomes(law: Law) -> Iterator[tuple[int, Fraction, Probs]]:
    """Accepted nodes with their probability, and the next token's law."""
    reach = ONE
    for node, (chance, probs) in law.items():
        yield node, reach * chance, probs
        reach = reach * (1 - chance)


def law_of(rule: Traversal, tree: TokenTree, target: ModelOutput) -> Law:
    """What the rule computes, at all nodes, in the order in which it looks at them."""
    tokens, children = family(tree)
    begin, law = rule.rounds_of(tree, target, Given(), tokens, children), {}

    def visit(node: int, chance: float) -> None:
        rounds = begin(node, chance)
        for place, child in enumerate(children.get(node, ()) if chance else ()):
            visit(child, rounds.accept(place))
            rounds.reject(place)
        law[node] = rounds.chance, tuple(rounds.residual().tolist())

    visit(0, 1.0)
    return law


def same(exact: Law, found: Law) -> None:
    """As far as the walk can come."""
    assert {*found} <= {*exact}
    for node, reach, probs in outcomes(exact):
        if reach:
            chance, left = found[node]
            assert chance == pytest.approx(float(exact[node][0]), abs=EXACT)
            assert left == pytest.approx([float(x) for x in probs], abs=EXACT)


def mean_accepted(one: Drafted, law: Law) -> Fraction:
    return sum(chance * len(one.texts[node]) for node, chance, _ in outcomes(law))


def text_law(models: Models, trees: Sequence[tuple[Drafted, Law]], length: int) -> Counter:
    """Probability of the first tokens of a step, and of those that the target samples behind it."""
    found: Counter = Counter()
    for one, law in trees:
        for node, chance, probs in outcomes(law):
            if not chance:
                continue
            for token, more in enumerate(probs):
                text = (*one.texts[node], token)
                if more:
                    for rest, left in going_on(models, text, length):
                        found[rest[:length]] += one.chance * chance * more * left
    return found


def going_on(models: Models, text: Text, length: int) -> list[tuple[Text, Fraction]]:
    """What the target makes of a text, up to a length."""
    found = [(text, ONE)]
    while len(found[0][0]) < length:
        found = [((*one, token), chance * x) for one, chance in found for token, x in enumerate(models.p(one)) if x]
    return found


def target_law(models: Models, length: int) -> dict[Text, Fraction]:
    return dict(going_on(models, (), length))


def off(models: Models, trees: Sequence[tuple[Drafted, Law]], length: int) -> float:
    """Distance in total variation from the target's law; exactly 0 in fractions where there is none."""
    found, wanted = text_law(models, trees, length), target_law(models, length)
    texts = product(range(models.vocab), repeat=length)
    return float(sum(abs(found[text] - wanted.get(text, ZERO)) for text in texts) / 2)


def adaptive(models: Models, seed: int, kind: str) -> list[Drafted]:
    """Trees of which a node is drawn or not by all tokens that were drawn before it, in five interleaved places."""
    found = [Drafted()]
    for place in range(5):
        found = [more for one in found for more in _perhaps(models, one, f"{seed} {place} {one.texts}", kind)]
    return found


def _perhaps(models: Models, one: Drafted, words: str, kind: str) -> list[Drafted]:
    rng = Random(words)
    parent = rng.choice(
        [node for node, text in enumerate(one.texts) if len(text) < 2 and len(one.children(node)) < 2] or [0]
    )
    room = len(one.children(parent)) < 2
    return list(one.grown(models, parent, kind)) if room and rng.random() < 0.75 else [one]
