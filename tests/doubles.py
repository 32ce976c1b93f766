"""Random models, models whose distribution is known in closed form, and trees with known values."""

import copy
from typing import Any

import torch
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM

from specdec_core import CausalLM, TokenTree, Verdict
from specdec_core.cache import KVCache
from specdec_core.drafters import Context
from specdec_core.models import ModelOutput


def random_llama(seed: int, *, vocab: int = 61, layers: int = 2, positions: int = 256) -> CausalLM:
    """A small Llama with random weights, sharp enough that arg maxima are not ties."""
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=vocab,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=positions,
        initializer_range=0.4,
    )
    return CausalLM(LlamaForCausalLM(config))


def perturbed(target: CausalLM) -> CausalLM:
    """The target's weights with some noise: much is accepted, and not always the draft's best."""
    model, rng = copy.deepcopy(target.model), torch.Generator().manual_seed(1)
    with torch.no_grad():
        for weight in model.parameters():
            weight += 0.1 * weight.std() * torch.randn(weight.shape, generator=rng)
    return CausalLM(model)


class BigramLM(CausalLM):
    """Logits depend on the token alone, so the distribution of a continuation is a product of table entries."""

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
    """A draft model whose distribution at a node is any function of the tokens on its path below the root."""

    needs_hidden, max_depth = (), None

    def __init__(self, vocab: int, probs: Any) -> None:
        self.vocab_size, self.max_positions, self.device = vocab, None, torch.device("cpu")
        self.probs, self.paths, self.expanded = probs, [], []

    def reset(self, prompt_ids: Tensor, target: ModelOutput) -> None:
        pass

    def begin(self, context: Context) -> ModelOutput:
        self.paths, self.expanded = [], []
        return self._logits([()])

    def begin_below(self, context: Context, tokens: Tensor) -> ModelOutput:
        self.paths, self.expanded = [], []
        return self.expand(tokens, torch.full_like(tokens, -1))

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
        return ModelOutput(torch.stack([self.probs(path) for path in paths]).log())


def random_q(vocab: int, seed: int, sharpness: float = 2.0) -> Any:
    """A draft distribution that differs from path to path."""

    def probs(path: tuple[int, ...]) -> Tensor:
        rng = torch.Generator().manual_seed(hash((seed, *path)) % 2**31)
        return (sharpness * torch.randn(vocab, generator=rng)).softmax(-1)

    return probs


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
