"""Every architecture that the papers' pairs use, small, with random weights, and its own logits on plain text."""

import copy
import math
from typing import Any

import torch
from doubles import paths_of
from torch import Tensor
from transformers import (
    AutoModelForCausalLM,
    BloomConfig,
    GPT2Config,
    LlamaConfig,
    MistralConfig,
    OPTConfig,
    Qwen2Config,
)

from specdec_core import CausalLM, TokenTree
from specdec_core.layout import tree_layout
from specdec_core.models import ModelOutput

VOCAB, LAST = 61, 48
"""Tokens, and positions of the models that end early."""
_SIZES = {"vocab_size": VOCAB, "hidden_size": 32, "num_hidden_layers": 2}
_HEADS = {**_SIZES, "num_attention_heads": 4, "intermediate_size": 48}
_GROUPED = {**_HEADS, "num_key_value_heads": 2}
_LLAMA3 = {**_GROUPED, "rms_norm_eps": 1e-5, "rope_theta": 500_000.0}
_SCALING = {"rope_type": "llama3", "low_freq_factor": 1.0, "high_freq_factor": 4.0}
_OPT = {**_SIZES, "num_attention_heads": 4, "ffn_dim": 48, "max_position_embeddings": LAST}
CONFIGS = {
    "llama-1": LlamaConfig(**_HEADS, rms_norm_eps=1e-6),
    "llama-2": LlamaConfig(**_HEADS, rms_norm_eps=1e-5, max_position_embeddings=4096),
    "llama-2-70b": LlamaConfig(**_GROUPED, rms_norm_eps=1e-5, max_position_embeddings=4096),
    "llama-3": LlamaConfig(**_LLAMA3, max_position_embeddings=8192),
    # frequencies of 8 dimensions are scaled at such lengths only if the original context is short
    "llama-3.1": LlamaConfig(
        **_LLAMA3, rope_scaling={**_SCALING, "factor": 8.0, "original_max_position_embeddings": 64}
    ),
    "llama-3.2": LlamaConfig(
        **_LLAMA3,
        rope_scaling={**_SCALING, "factor": 32.0, "original_max_position_embeddings": 64},
        tie_word_embeddings=True,
    ),
    "vicuna-33b": LlamaConfig(**_HEADS | {"hidden_size": 48, "num_attention_heads": 6}, rms_norm_eps=1e-6),
    "sheared-llama": LlamaConfig(**_HEADS | {"intermediate_size": 86}, rms_norm_eps=1e-5),
    "tinyllama": LlamaConfig(**_HEADS | {"num_attention_heads": 8}, num_key_value_heads=1, rms_norm_eps=1e-5),
    "opt": OPTConfig(**_OPT, word_embed_proj_dim=32),
    "opt-350m": OPTConfig(**_OPT, word_embed_proj_dim=16, do_layer_norm_before=False),
    "bloom": BloomConfig(vocab_size=VOCAB, hidden_size=32, n_layer=2, n_head=4),
    "bloom-176b": BloomConfig(vocab_size=VOCAB, hidden_size=48, n_layer=2, n_head=6),  # no power of two: other slopes
    "gpt2": GPT2Config(vocab_size=VOCAB, n_embd=32, n_layer=2, n_head=4, n_positions=LAST),
    "qwen2": Qwen2Config(**_GROUPED, rope_theta=1_000_000.0, tie_word_embeddings=True),
    "mistral-v0.1": MistralConfig(**_GROUPED, sliding_window=LAST),
    "mistral": MistralConfig(**_GROUPED, sliding_window=None, rope_theta=1_000_000.0),
}


def stock(name: str, dtype: torch.dtype = torch.float32, seed: int = 0) -> Any:
    """transformers' own model; noise on every parameter, so that biases and norms take part and attention is sharp."""
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(CONFIGS[name])
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return model.to(dtype).eval()


def both(name: str, dtype: torch.dtype = torch.float32) -> tuple[Any, CausalLM]:
    """The oracle, which never meets our code, and a wrapped copy of it."""
    own = stock(name, dtype)
    return own, CausalLM(copy.deepcopy(own))


@torch.inference_mode()
def plain(model: Any, tokens: list[int]) -> Tensor:
    """Logits behind plain text: one call without a cache, a mask or positions."""
    return model(torch.tensor([tokens])).logits[0, -1]


def by_paths(model: Any, prefix: list[int], tree: TokenTree) -> Tensor:
    """The oracle: a row per node, of its root-to-node path behind the prefix."""
    root = int(tree.tokens[0])
    return torch.stack([plain(model, [*prefix, root, *path]) for path in paths_of(tree)])


def by_tree(model: CausalLM, tree: TokenTree) -> ModelOutput:
    """The same by one forward behind what the cache holds."""
    layout = tree_layout(
        tree.ancestor_mask,
        tree.depths,
        prefix=model.cache.length,
        max_positions=model.max_positions,
        dtype=model.dtype,
    )
    return model(tree.tokens, layout)


def close(ours: Tensor, oracle: Tensor) -> bool:
    """In float32; 5e-6 is the most that was measured, at logits of up to 7, and a wrong mask or position makes 1."""
    return torch.allclose(ours, oracle, atol=1e-5, rtol=0)


def ulp(logits: Tensor) -> float:
    """Unit in the last place of the largest logit in bfloat16."""
    return 2.0 ** (math.floor(math.log2(float(logits.abs().max()))) - 7)


def commit_path(model: CausalLM, tree: TokenTree, start: int, node: int) -> list[int]:
    """Keep the path down to a node of the tree that begins in slot `start`; its tokens, root first."""
    path = tree.ancestor_mask[node].nonzero().flatten()
    model.cache.commit(start, path)
    return tree.tokens[path].tolist()
