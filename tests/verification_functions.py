"""Verification functions that are right, and wrong ones as public bug reports tell of them, on numpy arrays.

A rule is written over `coins`, which offer `accept(prob)` and `draw(probs)`; `sampled` makes it one over `rng`.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

Rule = Callable[..., tuple[list[int], int]]


class Drawn:
    """The same two questions, answered by a generator."""

    def __init__(self, rng: np.random.Generator) -> None:
        self._rng = rng

    def accept(self, prob: float) -> bool:
        return bool(self._rng.random() < prob)

    def draw(self, probs: Any) -> int:
        """By inversion, without asking whether these are a distribution: numbers beyond the sum get the last token."""
        return min(int((self._rng.random() >= np.cumsum(probs)).sum()), len(probs) - 1)


def sampled(rule: Rule) -> Rule:
    """The rule with a generator in place of coins."""

    def verify(tokens, parents, draft_probs, target_probs, rng):
        return rule(tokens, parents, draft_probs, target_probs, Drawn(rng))

    return verify


def below(parents, node: int) -> list[int]:
    return [child for child, parent in enumerate(parents) if parent == node]


def norm(weights):
    return weights / weights.sum()


def over(left, drawn):
    """What is left of one law over the other, normalised."""
    rest = np.maximum(left - drawn, 0)
    return norm(rest) if rest.sum() > 0 else left


def in_rounds(*, remove: bool, residual=over, order=list) -> Rule:
    """Multi-round sampling: SpecInfer's (the draft's law is kept), or for draws without replacement."""

    def verify(tokens, parents, q, p, coins):
        node, path = 0, []
        while True:
            left, drawn = p[node], q[node]
            for child in order(below(parents, node)):
                token = tokens[child]
                if drawn[token] > 0 and coins.accept(left[token] / drawn[token]):
                    break
                left = residual(left, drawn)
                if remove:
                    drawn = np.where(np.arange(len(drawn)) == token, 0, drawn)
                    drawn = norm(drawn) if drawn.sum() > 0 else drawn
            else:
                return path, coins.draw(left)
            node = child
            path.append(child)

    return verify


spec_infer, multi_round = in_rounds(remove=False), in_rounds(remove=True)


def target_sample(tokens, parents, q, p, coins):
    node, path = 0, []
    while True:
        token = coins.draw(p[node])
        node = next((child for child in below(parents, node) if tokens[child] == token), None)
        if node is None:
            return path, token
        path.append(node)


def block_chances(tokens, q, p) -> tuple[list[float], list[float], list[Any]]:
    """Of block verification (arXiv:2403.10444): P, h and the weights of the next token after so many tokens."""
    depth = len(tokens) - 1
    kept, chances, weights = [1.0], [1.0], []
    for place in range(depth):
        token = tokens[place + 1]
        kept.append(min(1.0, kept[-1] * p[place][token] / q[place][token]))
    for place in range(depth + 1):
        rest = np.maximum(kept[place] * p[place] - q[place], 0) if place < depth else p[place]
        total = rest.sum()
        weights.append(norm(rest) if total > 0 else p[place])
        if place:
            chances.append(1.0 if total + 1 == kept[place] else total / (total + 1 - kept[place]))
    chances[-1] = kept[-1]
    return kept, chances, weights


def block(tokens, parents, q, p, coins):
    """The longest prefix whose coin falls so; all are tossed."""
    _, chances, weights = block_chances(tokens, q, p)
    stopped = max(place for place, chance in enumerate(chances) if place == 0 or coins.accept(chance))
    return [*range(1, stopped + 1)], coins.draw(weights[stopped])


def traversal(tokens, parents, q, p, coins):
    """Traversal verification (arXiv:2505.12398) for draws without replacement: from leaves to the root."""

    def visit(node, chance):
        left, drawn = p[node], q[node]
        for child in below(parents, node):
            token = tokens[child]
            found = visit(child, min(1.0, chance * left[token] / drawn[token]))
            if found:
                return found
            rest = np.maximum(chance * left - drawn, 0)
            total = rest.sum()
            left = norm(rest) if total > 0 else left
            chance = total / (total + 1 - chance) if total + 1 - chance > 0 else 1.0
            drawn = np.where(np.arange(len(drawn)) == token, 0, drawn)
            drawn = norm(drawn) if drawn.sum() > 0 else drawn
        return (node, coins.draw(left)) if chance >= 1 or coins.accept(chance) else None

    end, token = visit(0, 1.0)
    path = []
    while end > 0:
        path, end = [end, *path], int(parents[end])
    return path, token


RIGHT = {
    "spec_infer": (spec_infer, ("chain", "iid")),
    "multi_round": (multi_round, ("chain", "without_replacement")),
    "target_sample": (target_sample, ("chain", "iid", "without_replacement", "topk")),
    "block": (block, ("chain",)),
    "traversal": (traversal, ("chain", "without_replacement")),
}


def with_block_name(tokens, parents, q, p, coins):
    """Stops at the first rejected token, as token by token, and goes on with what block verification has left."""
    _, _, weights = block_chances(tokens, q, p)
    for place in range(len(tokens) - 1):
        if not coins.accept(p[place][tokens[place + 1]] / q[place][tokens[place + 1]]):
            return [*range(1, place + 1)], coins.draw(weights[place])
    return [*range(1, len(tokens))], coins.draw(p[-1])


def without_residual(left, drawn):
    return left


def not_clamped(left, drawn):
    return left - drawn


def not_normalised(left, drawn):
    return np.maximum(left - drawn, 0)


def backwards(children):
    return children[::-1]


def dropped(tokens, parents, q, p, coins):
    """Leaves out children that the draft thought improbable, after they were drawn."""
    keep = [child for child in range(1, len(tokens)) if q[parents[child]][tokens[child]] >= 0.3]
    masked = [parent if child in keep or child == 0 else -2 for child, parent in enumerate(parents)]
    return multi_round(tokens, masked, q, p, coins)


def bfloat16(probs):
    """Rounded to nearest; of ties some go the other way."""
    bits = np.asarray(probs, np.float32).view(np.uint32)
    return ((bits + np.uint32(0x8000)) & np.uint32(0xFFFF0000)).view(np.float32).astype(float)


def rounded(tokens, parents, q, p, coins):
    """q in bfloat16 for the tests, drawn from in float32."""
    return multi_round(tokens, parents, bfloat16(q), p, coins)


def other_temperature(tokens, parents, q, p, coins):
    """q at temperature 0.6, drawn from at 1."""
    sharper = q ** (1 / 0.6)
    return multi_round(tokens, parents, sharper / sharper.sum(1, keepdims=True), p, coins)


class Stale:
    """q of the step before."""

    def __init__(self) -> None:
        self._rows: Any = None

    def __call__(self, tokens, parents, q, p, coins):
        rows, self._rows = q if self._rows is None or len(self._rows) != len(q) else self._rows, q
        return multi_round(tokens, parents, rows, p, coins)


def own_row(tokens, parents, q, p, coins):
    """Reads the laws after a child where those after its parent are asked for; the root reads its own."""
    above = [0, *(min(node + 1, len(p) - 1) for node in range(1, len(p)))]
    return multi_round(tokens, parents, q[above], p[above], coins)


def depth_first(tokens, parents, q, p, coins):
    """Takes the node behind another as its first child, wherever that node stands."""
    node, path = 0, []
    while node + 1 < len(tokens) and q[node][tokens[node + 1]] > 0:
        if not coins.accept(p[node][tokens[node + 1]] / q[node][tokens[node + 1]]):
            return path, coins.draw(over(p[node], q[node]))
        node += 1
        path.append(node)
    return path, coins.draw(p[node])


def twice(tokens, parents, q, p, coins):
    """Every sibling is tested against the whole p, also the second of two equal ones."""
    node, path = 0, []
    while children := below(parents, node):
        accepted = [child for child in children if coins.accept(p[node][tokens[child]] / q[node][tokens[child]])]
        if not accepted:
            return path, coins.draw(over(p[node], q[node]))
        node = accepted[0]
        path.append(node)
    return path, coins.draw(p[node])


def siblings(tokens, parents, q, p, coins):
    """Accepts a node and the sibling behind it."""
    path, token = twice(tokens, parents, q, p, coins)
    return [node + more for node in path[:1] for more in (0, 1) if node + more < len(tokens)], token


def against_whole(tokens, parents, q, p, coins):
    """Tests the third sibling against the whole q, not against q without the first two."""
    node, path = 0, []
    while True:
        left, drawn = p[node], q[node]
        for place, child in enumerate(below(parents, node)):
            drawn = q[node] if place == 2 else drawn
            if coins.accept(left[tokens[child]] / drawn[tokens[child]]):
                break
            left = over(left, drawn)
            drawn = np.where(np.arange(len(drawn)) == tokens[child], 0, drawn)
            drawn = norm(drawn) if drawn.sum() > 0 else drawn
        else:
            return path, coins.draw(left)
        node = child
        path.append(child)


def wrong_when_greedy(tokens, parents, q, p, coins):
    """Right but where p is one-hot: a child then counts that is the arg max of any node of its parent's level."""
    if not (p.max(1) > 0.999).all():
        return multi_round(tokens, parents, q, p, coins)
    best, depths, node, path = p.argmax(1), [0], 0, []
    for parent in parents[1:]:
        depths.append(depths[parent] + 1)
    while True:
        alike = {int(best[other]) for other, depth in enumerate(depths) if depth == depths[node]}
        chosen = [child for child in below(parents, node) if tokens[child] in alike]
        if not chosen:
            return path, int(best[node])
        node = chosen[0]
        path.append(node)


WRONG = {
    "against_whole": (against_whole, "without_replacement"),
    "wrong_when_greedy": (wrong_when_greedy, "without_replacement"),
    "block_by_name": (with_block_name, "chain"),
    "without_residual": (in_rounds(remove=True, residual=without_residual), "chain"),
    "not_clamped": (in_rounds(remove=True, residual=not_clamped), "chain"),
    "not_normalised": (in_rounds(remove=True, residual=not_normalised), "chain"),
    "another_order": (in_rounds(remove=True, order=backwards), "without_replacement"),
    "dropped": (dropped, "without_replacement"),
    "bfloat16": (rounded, "chain"),
    "other_temperature": (other_temperature, "iid"),
    "own_row": (own_row, "chain"),
    "depth_first": (depth_first, "iid"),
    "accepted_twice": (twice, "iid"),
    "siblings": (siblings, "iid"),
    "replacement_forgotten": (spec_infer, "without_replacement"),
    "replacement_assumed": (multi_round, "iid"),
    "guesses_as_draws": (multi_round, "topk"),
}


def one_uniform(tokens, parents, q, p, rng):
    """A single random number for all tests of a call."""
    coins, uniform = Drawn(rng), rng.random()
    coins.accept = lambda prob: uniform < prob  # type: ignore[method-assign]
    return multi_round(tokens, parents, q, p, coins)


def one_uniform_per_node(tokens, parents, q, p, rng):
    """A random number serves all siblings of a node."""
    coins = Drawn(rng)

    def begun(children):
        uniform = rng.random()
        coins.accept = lambda prob: uniform < prob  # type: ignore[method-assign]
        return children

    return in_rounds(remove=True, order=begun)(tokens, parents, q, p, coins)


def seeded_anew(tokens, parents, q, p, rng):
    """The same random numbers at every call."""
    return multi_round(tokens, parents, q, p, Drawn(np.random.default_rng(0)))


WRONG_RNG = {"one_uniform": one_uniform, "seeded_anew": seeded_anew}
