"""Models whose law is known in closed form, trees with known values, and every rule with every ordered draw."""

import inspect
from collections.abc import Iterator
from fractions import Fraction
from importlib import import_module
from itertools import permutations, product
from pkgutil import iter_modules
from typing import Any

import torch
from torch import Tensor

from specdec_core import CausalLM, TokenTree, Verdict, verifiers
from specdec_core.cache import KVCache
from specdec_core.drafters import Context
from specdec_core.drafters.static_tree import DRAWS
from specdec_core.errors import PairError
from specdec_core.models import ModelOutput
from specdec_core.verifiers import ChildByChild

Law = list[Fraction]


class BigramLM(CausalLM):
    """Logits depend on the token alone, so the law of a continuation is a product of table entries."""

    def __init__(self, table: Tensor) -> None:
        self.table = table
        self.vocab_size = table.shape[1]
        self.max_positions = None
        self.cache = KVCache(0, 0)
        self.forwards = 0

    @property
    def device(self) -> torch.device:
        return self.table.device

    @property
    def dtype(self) -> torch.dtype:
        return torch.float32

    def _run(self, tokens: Tensor, layout: Any, logits_to_keep: int = 0, **options: Any) -> ModelOutput:
        self.forwards += 1
        self.cache.advance(tokens.shape[0])
        return ModelOutput(self.table[tokens][-logits_to_keep:])


class TableDraft:
    """A draft model whose law at a node is any function of the tokens on its path below the root."""

    def __init__(self, vocab: int, law: Any) -> None:
        self.vocab_size, self.max_positions, self.device = vocab, None, torch.device("cpu")
        self.law, self.paths, self.expanded = law, [], []

    def reset(self, prompt_ids: Tensor, target: ModelOutput) -> None:
        pass

    def begin(self, context: Context) -> ModelOutput:
        self.paths, self.expanded = [], []
        return self._logits([()])

    def expand(self, tokens: Tensor, parents: Tensor) -> ModelOutput:
        new = [
            (*(self.paths[parent] if parent >= 0 else ()), token)
            for token, parent in zip(tokens.tolist(), parents.tolist(), strict=True)
        ]
        self.paths += new
        self.expanded.append(len(new))
        return self._logits(new)

    def commit(self, slots: Tensor, verdict: Verdict, target: ModelOutput) -> None:
        self.kept = [self.paths[slot] for slot in slots.tolist()]

    def _logits(self, paths: list[tuple[int, ...]]) -> ModelOutput:
        return ModelOutput(torch.stack([self.law(path) for path in paths]).log())


def random_law(vocab: int, seed: int, sharpness: float = 2.0) -> Any:
    """A draft law that differs from path to path."""

    def law(path: tuple[int, ...]) -> Tensor:
        rng = torch.Generator().manual_seed(hash((seed, *path)) % 2**31)
        return (sharpness * torch.randn(vocab, generator=rng)).softmax(-1)

    return law


def paths_of(tree: TokenTree) -> list[tuple[int, ...]]:
    """Tokens from the root's child to every node, by walking the parents: the oracle of everything derived."""
    parents, tokens = tree.parents.tolist(), tree.tokens.tolist()
    paths: list[tuple[int, ...]] = [()]
    for node in range(1, len(tokens)):
        paths.append((*paths[parents[node]], tokens[node]))
    return paths


def random_tree(num_nodes: int, vocab: int, rng: torch.Generator) -> TokenTree:
    """Any tree: each node's parent is some earlier node."""
    parents = [-1] + [int(torch.randint(node, (1,), generator=rng)) for node in range(1, num_nodes)]
    edges = torch.rand(num_nodes, generator=rng)
    edges[0] = 1
    return TokenTree(torch.randint(vocab, (num_nodes,), generator=rng), torch.tensor(parents), edges)


def context_for(root: int = 0, prompt: tuple[int, ...] = ()) -> Context:
    """A context outside the engine."""
    from specdec_core.timing import Clock

    return Context([*prompt, root], torch.Generator().manual_seed(0), Clock(torch.device("cpu")))


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


def name_of(value: object) -> str:
    """A rule's class and settings, for test ids."""
    if isinstance(value, ChildByChild):
        return "_".join((type(value).__name__, *(f"{key}_{on}" for key, on in vars(value).items() if type(on) is bool)))
    return str(value)


def judges(rule: ChildByChild, num_children: int) -> bool:
    """Whether the rule takes so many children of one node."""
    law = torch.ones(1, dtype=torch.float64)
    try:
        rule.begin(law, law, num_children)
    except PairError:
        return False
    return True


def tensor(law: Law) -> Tensor:
    return torch.tensor([float(x) for x in law], dtype=torch.float64)


def random_laws(vocab: int, seed: int) -> tuple[Law, Law]:
    """P and q with small integer weights, zeros among them."""
    rng = torch.Generator().manual_seed(seed)
    laws = []
    for _ in range(2):
        weights = torch.randint(0, 5, (vocab,), generator=rng)
        weights[int(torch.randint(vocab, (1,), generator=rng))] += 1
        laws.append([Fraction(int(w), int(weights.sum())) for w in weights])
    return laws[0], laws[1]


def ordered_draws(q: Law, k: int, draws: str) -> Iterator[tuple[tuple[int, ...], Fraction]]:
    """Every sequence of k drawn tokens with its probability; behind q's support the draft is uniform."""
    tokens = range(len(q))
    if draws == "topk":
        yield tuple(sorted(tokens, key=lambda token: (-q[token], token))[:k]), Fraction(1)
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
