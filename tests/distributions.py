"""Every rule with every draw it is lossless for, and every ordered draw with its probability."""

import inspect
from collections import Counter
from collections.abc import Iterator
from fractions import Fraction
from functools import cache
from importlib import import_module
from itertools import permutations, product
from pkgutil import iter_modules

import torch
from torch import Tensor

from specdec_core import verifiers
from specdec_core.errors import PairError
from specdec_core.sampling import DRAWS
from specdec_core.verifiers import ChildByChild, Verifier

Probs = list[Fraction]


def rule_classes() -> list[type]:
    """Every class with `lossless_for` that some module of `specdec_core.verifiers` defines."""
    modules = [import_module(f"{verifiers.__name__}.{found.name}") for found in iter_modules(verifiers.__path__)]
    return [
        value
        for module in modules
        for value in vars(module).values()
        if isinstance(value, type) and value.__module__ == module.__name__ and hasattr(value, "judge")
        if not inspect.isabstract(value) and not getattr(value, "_is_protocol", False)
    ]


def declared_pairs() -> list[tuple[ChildByChild, str]]:
    """Every rule that judges child by child, with each setting of its switches, and every draw it is lossless for."""
    pairs = []
    for rule_class in (found for found in rule_classes() if issubclass(found, ChildByChild)):
        switches = [
            name for name, value in inspect.signature(rule_class).parameters.items() if value.annotation is bool
        ]
        for settings in product((False, True), repeat=len(switches)):
            rule = rule_class(**dict(zip(switches, settings, strict=True)))
            pairs += [(rule, draws) for draws in DRAWS if draws in rule.lossless_for]
    return pairs


def refuted(rule: ChildByChild, draws: str, distance: float) -> str:
    """What to say of a rule whose distribution is not the target's for draws that it declares."""
    lossy = f"its output distribution is off by {distance:.2g} in total variation"
    return f"{name_of(rule)} declares lossless_for {draws}, but {lossy}"


def name_of(value: object) -> str:
    """A rule's class and settings, for test ids."""
    if isinstance(value, Verifier):
        return "_".join((type(value).__name__, *(f"{key}_{on}" for key, on in vars(value).items() if type(on) is bool)))
    return str(value)


def judges(rule: ChildByChild, num_children: int) -> bool:
    """Whether the rule takes so many children of one node."""
    probs = torch.ones(1, dtype=torch.float64)
    try:
        rule.begin(probs, probs, num_children)
    except PairError:
        return False
    return True


def tensor(probs: Probs) -> Tensor:
    return torch.tensor([float(x) for x in probs], dtype=torch.float64)


def random_pq(vocab: int, seed: int) -> tuple[Probs, Probs]:
    """P and q with small integer weights, zeros among them."""
    rng = torch.Generator().manual_seed(seed)
    pair = []
    for _ in range(2):
        weights = torch.randint(0, 5, (vocab,), generator=rng)
        weights[int(torch.randint(vocab, (1,), generator=rng))] += 1
        pair.append([Fraction(int(w), int(weights.sum())) for w in weights])
    return pair[0], pair[1]


def ordered_draws(q: Probs, k: int, draws: str) -> Iterator[tuple[tuple[int, ...], Fraction]]:
    """Every sequence of k drawn tokens with its probability, in the order in which they are judged.

    Behind q's support the draft is uniform.
    """
    tokens = range(len(q))
    if draws == "topk":
        yield tuple(sorted(tokens, key=lambda token: (-q[token], token))[:k]), Fraction(1)
        return
    if draws == "greedy_one":
        *best, _ = sorted(tokens, key=lambda token: (-q[token], token))[:k]
        left = {token: q[token] for token in tokens if token not in best}
        left = left if sum(left.values()) else dict.fromkeys(left, Fraction(1))
        yield from (((token, *best), chance / sum(left.values())) for token, chance in left.items() if chance)
        return
    for children in product(tokens, repeat=k) if draws == "iid" else permutations(tokens, k):
        chance, left = Fraction(1), list(q)
        for number, child in enumerate(children):
            total = sum(left)
            if total == 0:
                chance *= Fraction(1, len(q) - number)
                continue
            chance *= left[child] / total
            if draws != "iid":
                left[child] = Fraction(0)
        if chance:
            yield children, chance


def sources(rule: ChildByChild, p: Probs, q: Probs, k: int, draws: str) -> Tensor:
    """Probability that child i is accepted as a token, and in the last row that it is recovered: judging all draws."""
    joint = torch.zeros(k + 1, len(p), dtype=torch.float64)
    for children, chance in ordered_draws(q, k, draws):
        rounds, reach = rule.rounds(tensor(p), tensor(q), torch.tensor(children)), float(chance)
        for number, (child, accept) in enumerate(zip(children, rounds.accept.tolist(), strict=True)):
            joint[number, child] += reach * accept
            reach *= 1 - accept
        joint[k] += reach * rounds.residual
    return joint


def probs_of_tokens(step, token, probs, count: int) -> Counter:
    """Distribution of the next `count` tokens behind `token` and the `probs` that a step left there (None: a token).

    `step(token, probs)` gives the outcomes (tokens, probs left) of one decoding step with their probabilities.
    """
    one = cache(step)

    @cache
    def probs_from(token, probs, count):
        found = Counter()
        for (tokens, left), chance in one(token, probs).items():
            if len(tokens) >= count:
                found[tokens[:count]] += chance
                continue
            for rest, more in probs_from(tokens[-1], left, count - len(tokens)).items():
                found[(*tokens, *rest)] += chance * more
        return found

    return probs_from(token, probs, count)
