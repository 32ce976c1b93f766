"""Resident and offloaded models of the same weights, and what they answer to prompts and trees."""

import copy
from collections.abc import Iterable

import torch
from doubles import random_tree
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, BloomConfig, GPT2Config, LlamaConfig, OPTConfig, Qwen2Config

from specdec_core import CausalLM
from specdec_core.layout import tree_layout
from specdec_core.models.offload import Offload

_SMALL = {
    "vocab_size": 61,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 5,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "initializer_range": 0.4,
}
_OPT = {"hidden_size": 32, "ffn_dim": 48, "num_hidden_layers": 3, "num_attention_heads": 4, "word_embed_proj_dim": 32}
CONFIGS = {
    "llama": LlamaConfig(**_SMALL),
    "llama_tied": LlamaConfig(**_SMALL, tie_word_embeddings=True),
    "qwen2": Qwen2Config(**_SMALL),
    "opt": OPTConfig(vocab_size=61, max_position_embeddings=128, **_OPT),
    "gpt2": GPT2Config(vocab_size=61, n_embd=32, n_layer=7, n_head=4, n_positions=128),
    "bloom": BloomConfig(vocab_size=61, hidden_size=32, n_layer=5, n_head=4),
}


def stock(name: str) -> nn.Module:
    """A random model; layers are odd in number, so that a forward ends in the buffer where the next one begins."""
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(CONFIGS[name])


def both(name: str, choice: int | str = 0, device: str = "cpu") -> tuple[CausalLM, CausalLM, Offload]:
    """A resident model, an offloaded one with the same weights, and what streams it.

    `choice` is the number of resident layers: negative numbers leave so many to be streamed, "all" leaves none.
    """
    model, layers = stock(name), CONFIGS[name].num_hidden_layers
    other = copy.deepcopy(model)
    offload = Offload(other, torch.device(device), layers if isinstance(choice, str) else choice % layers)
    return CausalLM(model.to(device)), CausalLM(other), offload


def history(model: CausalLM, rounds: int = 3) -> list[Tensor]:
    """Logits of a prefill, an extension and of trees, each followed by the commit of a path."""
    rng = torch.Generator().manual_seed(0)
    model.reset(8)
    prompt, more = (torch.tensor(ids, device=model.device) for ids in ([5, 9, 11, 3], [7, 8]))
    logits = [model.prefill(prompt).logits, model.extend(more).logits]
    for _ in range(rounds):
        tree, start = random_tree(17, 61, rng), model.cache.length
        mask, depths = tree.ancestor_mask.to(model.device), tree.depths.to(model.device)
        layout = tree_layout(mask, depths, prefix=start, dtype=model.dtype)
        logits.append(model(tree.tokens.to(model.device), layout).logits)
        deepest = int(tree.depths.argmax())
        model.cache.commit(start, tree.ancestor_mask[deepest].nonzero().flatten())
    return logits


def same(one: list[Tensor], other: list[Tensor]) -> bool:
    """Bit for bit."""
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def storages(tensors: Iterable[Tensor]) -> dict[int, int]:
    """Bytes of each storage behind these tensors."""
    return {tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes() for tensor in tensors}
