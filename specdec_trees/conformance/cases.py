"""What a verification function is asked: small random models, and all trees that a draft may draw from them."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import permutations, product

import numpy as np

Text = tuple[int, ...]
"""Tokens behind the root."""
Probs = tuple[float, ...]
Parents = tuple[int, ...]

KINDS = ("chain", "iid", "without_replacement", "greedy_one", "topk")
"""How children are drawn, in `specdec_core`'s words; `chain`: one child of each node, drawn from q."""
CHAINS: tuple[Parents, ...] = ((-1,), (-1, 0), (-1, 0, 1), (-1, 0, 1, 2))
"""By their number of drafted tokens."""
TREES: tuple[Parents, ...] = (
    (-1, 0, 0),
    (-1, 0, 0, 0),
    (-1, 0, 0, 1),  # only the first child has a child of its own; depth first
    (-1, 0, 1, 0),
    (-1, 0, 0, 2),
    (-1, 0, 0, 1, 2),  # breadth first, and the same depth first
    (-1, 0, 1, 0, 3),
    (-1, 0, 0, 1, 1, 2, 2),
    (-1, 0, 1, 1, 0, 4, 4),
)
PARTS = 20
"""Probabilities are multiples of one over this, so that they can be read; the rarest token of p has one part."""
SHARP, SHARP_SHARE = (0.9985, 0.0009, 0.0006), 8
"""p = q, of which bfloat16 rounds the first to 1: to be seen by the rare tokens, and so in more calls."""
PREFERRED = 4
"""How many times as often as all others together, about, a member comes that is looked at closer."""
MODELS = 4
"""Of a case: calls alternate between them, so that rows kept of another step are wrong ones."""
GREEDY_SHARE = 0.25
"""What is never the target's token needs few calls to be seen."""
CANDIDATES = 32
"""Of how many random pairs of laws a `hard` one is chosen."""


@dataclass(frozen=True, slots=True, eq=False)
class Model:
    """The laws of target and draft after every text."""

    vocab: int
    p: dict[Text, Probs]
    q: dict[Text, Probs]


@dataclass(frozen=True, slots=True, eq=False)
class Drafted:
    """A drafted tree."""

    model: Model
    parents: Parents
    texts: tuple[Text, ...]
    """The tokens from below the root to each node."""
    prob: float
    """Of drawing it."""

    @property
    def tokens(self) -> list[int]:
        """Of each node; the root's is 0."""
        return [text[-1] if text else 0 for text in self.texts]


@dataclass(frozen=True, slots=True, eq=False)
class Member:
    """A shape over a model, with all trees that may be drawn."""

    model: Model
    parents: Parents
    drafted: tuple[Drafted, ...]


@dataclass(frozen=True, eq=False)
class Case:
    """What is asked in turn and judged together: shapes of one vocabulary, each over some models."""

    vocab: int
    draws: str
    members: tuple[Member, ...]
    share: float = 1
    """How many times as many calls it gets as another."""

    @cached_property
    def depth(self) -> int:
        """Of the deepest tree."""
        return max(depth(member.parents) for member in self.members)

    @cached_property
    def num_tests(self) -> int:
        """Laws that are tested: one after every text that may be accepted, and behind the root that of each `Place`."""
        texts = sum(self.vocab**level for member in self.members for level in range(depth(member.parents) + 1))
        return texts + len(self.members) * self.vocab

    def drawn(
        self, count: int, rng: np.random.Generator, preferred: Member | None = None
    ) -> list[tuple[Member, Drafted]]:
        """So many drafts of all members in turn, or most of them of one."""
        trees = [(member, drafted) for member in self.members for drafted in member.drafted]
        weights = {member: PREFERRED * len(self.members) if member is preferred else 1 for member in self.members}
        probs = np.array([drafted.prob * weights[member] for member, drafted in trees])
        return [trees[place] for place in rng.choice(len(trees), count, p=probs / probs.sum())]


def depth(parents: Parents) -> int:
    """Edges from the root to the deepest node."""
    depths = [0]
    for parent in parents[1:]:
        depths.append(depths[parent] + 1)
    return max(depths)


def children_of(parents: Parents) -> list[list[int]]:
    """Of each node, in draw order."""
    children: list[list[int]] = [[] for _ in parents]
    for node, parent in enumerate(parents[1:], 1):
        children[parent].append(node)
    return children


def orders(q: Probs, count: int, draws: str) -> Iterator[tuple[Text, float]]:
    """Every sequence of so many children with its probability."""
    tokens = range(len(q))
    best = tuple(sorted(tokens, key=lambda token: (-q[token], token)))
    if draws == "topk":
        yield best[:count], 1.0
        return
    if draws == "greedy_one" and count:
        others = {token: q[token] for token in best[count - 1 :]}
        rest = sum(others.values())
        others = others if rest else dict.fromkeys(others, 1.0)
        yield from (
            ((token, *best[: count - 1]), chance / sum(others.values())) for token, chance in others.items() if chance
        )
        return
    for drawn in permutations(tokens, count) if draws == "without_replacement" else product(tokens, repeat=count):
        chance, left = 1.0, 1.0
        for token in drawn:
            chance *= q[token] / left if q[token] else 0.0
            left -= q[token] if draws == "without_replacement" else 0.0
        if chance:
            yield drawn, chance


def drafts(model: Model, parents: Parents, draws: str) -> Iterator[Drafted]:
    """All trees of a shape that may be drawn, with their probabilities."""
    trees: list[tuple[dict[int, Text], float]] = [({0: ()}, 1.0)]
    for node, children in enumerate(children_of(parents)):
        trees = [
            (
                texts | {child: (*texts[node], token) for child, token in zip(children, tokens, strict=True)},
                prob * chance,
            )
            for texts, prob in trees
            for tokens, chance in orders(model.q[texts[node]], len(children), draws)
        ]
    for texts, prob in trees:
        yield Drafted(model, parents, tuple(texts[node] for node in range(len(parents))), prob)


def split(total: int, count: int, least: int, rng: np.random.Generator) -> list[int]:
    """That many parts over so many tokens, at least `least` for each."""
    room = total - count * (least - 1)
    cuts = sorted(rng.choice(np.arange(1, room), count - 1, replace=False).tolist())
    return [end - begin + least - 1 for begin, end in zip([0, *cuts], [*cuts, room], strict=True)]


def laws(kind: str, vocab: int, siblings: int, rng: np.random.Generator) -> tuple[Probs, Probs]:
    """Of target and draft after one text.

    `any`, `greedy` (p one-hot), `alike` (p = q, sharp), `zeros` (in both), or `hard`: the test of the last of so many
    siblings is often reached, and has a chance that is neither near 0 nor near 1.
    """
    if kind == "hard":
        candidates = [laws("any", vocab, siblings, rng) for _ in range(CANDIDATES)]
        return max(candidates, key=lambda pair: uncertainty(pair[0], pair[1], siblings))
    if kind == "alike":
        sharp = tuple(rng.permutation(SHARP).tolist())
        return sharp, sharp
    p = rng.permutation([1.0, *split(PARTS - 1, vocab - 1, 1, rng)])
    q = np.array(split(PARTS, vocab, 2, rng), float)
    if kind == "zeros":
        p[rng.integers(vocab)] = q[rng.integers(vocab)] = 0
    if kind == "greedy":
        p = np.eye(vocab)[rng.integers(vocab)]
    return tuple((p / p.sum()).tolist()), tuple((q / q.sum()).tolist())


def uncertainty(p: Probs, q: Probs, siblings: int) -> float:
    """Of the last sibling's test, in rounds of draws without replacement from q; 0 where it is not reached."""
    chances = [min(1.0, x / y) if y else 0.0 for x, y in zip(p, q, strict=True)]
    if siblings == 1:
        return sum(y * min(chance, 1 - chance) for y, chance in zip(q, chances, strict=True))
    total, left = 0.0, [max(x - y, 0.0) for x, y in zip(p, q, strict=True)]
    for token, drawn in enumerate(q):
        others = [0.0 if other == token else y for other, y in enumerate(q)]
        if drawn and chances[token] < 1 and sum(left) > 0 and sum(others) > 0:
            after = tuple(x / sum(left) for x in left), tuple(y / sum(others) for y in others)
            total += drawn * (1 - chances[token]) * uncertainty(after[0], after[1], siblings - 1)
    return total


def model(kind: str, vocab: int, parents: Parents, rng: np.random.Generator) -> Model:
    """Laws after every text that a tree of this shape may hold."""
    siblings = max(map(len, children_of(parents)))
    texts = [text for length in range(depth(parents) + 1) for text in product(range(vocab), repeat=length)]
    rows = {text: laws(kind, vocab, siblings, rng) for text in texts}
    return Model(vocab, {text: p for text, (p, _) in rows.items()}, {text: q for text, (_, q) in rows.items()})


def plans(draws: str) -> Iterator[tuple[int, Parents, str]]:
    """Vocabulary, shape and kind of laws of every case, the smallest first."""
    yield from ((2, parents, kind) for parents in CHAINS[1:] for kind in ("any", "zeros"))
    for parents in sorted((*CHAINS[1:], *(() if draws == "chain" else TREES)), key=len):
        yield 3, parents, "any"
        if len(parents) <= 4:
            yield 4, parents, "any"
        if len(parents) <= 3:
            yield from ((3, parents, kind) for kind in ("zeros", "alike"))
        yield 3, parents, "greedy"


def cases(draws: str, rng: np.random.Generator, *, batched: bool = False) -> Iterator[Case]:
    """The smallest first. `batched`: chains with shorter ones among them, also with none drafted."""
    for vocab, parents, kind in plans(draws):
        shapes = CHAINS[: len(parents)] if batched else (parents,)
        kinds = ("any", "hard") if kind == "any" else (kind,)
        models = [model(kinds[number % len(kinds)], vocab, parents, rng) for number in range(MODELS)]
        members = [
            Member(one, shape, tuple(drafts(one, shape, "iid" if draws == "chain" else draws)))
            for one in models
            for shape in shapes
        ]
        share = SHARP_SHARE if kind == "alike" and len(parents) == 2 else GREEDY_SHARE if kind == "greedy" else 1
        yield Case(vocab, draws, tuple(members), share)
