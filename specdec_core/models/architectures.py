"""Which architectures decode trees as their own `generate` decodes text, and which cannot, as their configs say."""

from collections.abc import Mapping
from typing import Any

from transformers import AutoModelForCausalLM, AutoModelForImageTextToText

from specdec_core.errors import LoadError

ATTENDING = frozenset({"full_attention", "sliding_attention", "chunked_attention"})
"""Layers whose memory is keys and values, of which a mask says what a token sees."""
# fmt: off
COMPARED = frozenset({
    "llama", "mistral", "ministral", "ministral3", "mixtral", "qwen2", "qwen3", "qwen2_moe", "qwen3_moe", "gemma",
    "gemma2", "gemma3_text", "gemma3n_text", "vaultgemma", "cohere", "cohere2", "granite", "granitemoe",
    "granitemoeshared", "olmo", "olmo2", "olmo3", "olmoe", "flex_olmo", "gpt_oss", "deepseek_v2", "deepseek_v3",
    "minicpm3", "phi", "phi3", "phimoe", "gpt2", "gptj", "codegen", "gpt_bigcode", "gpt_neox", "gpt_neo", "opt",
    "bloom", "falcon", "stablelm", "starcoder2", "persimmon", "nemotron", "glm", "glm4", "smollm3", "exaone4",
    "helium", "ernie4_5", "arcee", "seed_oss", "apertus", "internlm3", "nanochat", "bitnet", "diffllama",
    "llama4_text", "jetmoe", "biogpt", "xglm", "modernbert-decoder", "dots1", "hunyuan_v1_dense", "ernie4_5_moe",
    "glm4_moe", "gemma3", "llama4", "mistral3", "qwen2_5_vl",
})
# fmt: on
"""Model types of which a small random one was decoded alone and as trees, past its windows too.

`specdec_trees/architectures` does so.

All others are tried as they are loaded (`trial.py`).
"""
_BIASED = "biases scores by slot, not by position: it would score trees wrongly"
_REFUSED: Mapping[str, str] = {
    "mpt": _BIASED,
}
"""By `config.model_type`."""


def loader_of(config: Any) -> Any:
    """The class of transformers that reads the weights: causal models, and wrappers whose text model is one."""
    causal = type(config) in AutoModelForCausalLM._model_mapping
    return AutoModelForCausalLM if causal or type(config) not in _wrappers() else AutoModelForImageTextToText


def text_config(config: Any) -> Any:
    """Of the decoder: a wrapper's text model, or the config itself."""
    return config.get_text_config(decoder=True)


def check_architecture(config: Any) -> None:
    """LoadError where the config alone says that trees cannot be decoded: no decoder, or a memory that is no list."""
    if reason := _reason(config):
        raise LoadError(
            f"models of type {config.model_type} cannot decode trees: it {reason}; docs/real_pairs.md has all that can"
        )


def _reason(config: Any) -> str | None:
    text, kind = text_config(config), config.model_type
    if getattr(config, "is_encoder_decoder", False) or getattr(type(config), "is_encoder_decoder", False) is True:
        return "is an encoder with a decoder, which reads the encoder's output beside the text"
    known = AutoModelForCausalLM._model_mapping.get(type(config), None) or _wrappers().get(type(config), None)
    if known is None:
        return "has no causal language model in transformers"
    others = sorted({*(getattr(text, "layer_types", None) or ())} - ATTENDING)
    if others:
        return f"has layers of type {', '.join(others)}, whose memory a tree's mask cannot reach"
    if any(getattr(one, "_is_stateful", False) for one in (known if isinstance(known, tuple) else (known,))):
        return "is recurrent: a tree's mask cannot reach its memory"
    if kind == "falcon" and config.alibi:
        return _BIASED
    return _REFUSED.get(kind)


def _wrappers() -> Any:
    return AutoModelForImageTextToText._model_mapping
