"""A small model of each architecture: model type and options of its config. Windows and chunks end within the texts."""

import contextlib
from collections.abc import Mapping
from typing import Any

import torch
from transformers import CONFIG_MAPPING

from specdec_core.models.architectures import loader_of

VOCAB, WINDOW, TURN = 96, 24, 48
"""Tokens; what a layer with a window or chunk sees; where rotations change."""
_Options = dict[str, Any]
_H: _Options = {
    "vocab_size": VOCAB,
    "hidden_size": 32,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": 256,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": None,
}
_G = _H | {"num_key_value_heads": 2}
_D = _G | {"head_dim": 16}
_W = {"sliding_window": WINDOW}
_GPT: _Options = {"vocab_size": VOCAB, "n_embd": 32, "n_layer": 4, "n_head": 4, "n_positions": 256}
_EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2}
_LOCAL = {"num_local_experts": 4, "num_experts_per_tok": 2}
_MOE = _EXPERTS | {"moe_intermediate_size": 32}
_LATENT = _H | {
    "num_key_value_heads": 4,
    "q_lora_rank": 32,
    "kv_lora_rank": 16,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 8,
    "v_head_dim": 16,
}
_ROUTED = {
    "first_k_dense_replace": 1,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
    "n_shared_experts": 1,
}
_LLAMA4 = _D | {
    "intermediate_size_mlp": 48,
    "num_local_experts": 2,
    "num_experts_per_tok": 1,
    "attention_chunk_size": WINDOW,
    "interleave_moe_layer_step": 2,
}
_VISION: _Options = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
_PIXELS = {"image_size": 28, "patch_size": 14}
_LONG = {"rope_type": "longrope", "short_factor": [1.0] * 4, "long_factor": [1.5, 2.5, 3.5, 5.0], "factor": 4.0}

ZOO: Mapping[str, tuple[str, _Options]] = {
    "llama": ("llama", _G),
    "llama, yarn": ("llama", _G | {"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}),
    "llama, dynamic": (
        "llama",
        _G | {"max_position_embeddings": TURN, "rope_scaling": {"rope_type": "dynamic", "factor": 4.0}},
    ),
    "mistral": ("mistral", _G | _W),
    "ministral": ("ministral", _D | _W),
    "ministral3": ("ministral3", _D | _W),
    "mixtral": ("mixtral", _G | _LOCAL | _W),
    "qwen2": ("qwen2", _G | _W | {"use_sliding_window": True, "max_window_layers": 2}),
    "qwen3": ("qwen3", _D | _W | {"use_sliding_window": True, "max_window_layers": 2}),
    "qwen2_moe": ("qwen2_moe", _G | _MOE | {"shared_expert_intermediate_size": 32}),
    "qwen3_moe": ("qwen3_moe", _D | _MOE | _W | {"use_sliding_window": True}),
    "gemma": ("gemma", _D),
    "gemma2": ("gemma2", _D | _W | {"query_pre_attn_scalar": 16}),
    "gemma3_text": ("gemma3_text", _D | _W | {"sliding_window_pattern": 2}),
    "gemma3n_text": (
        "gemma3n_text",
        _D
        | _W
        | {
            "num_kv_shared_layers": 2,
            "layer_types": ["sliding_attention", "full_attention"] * 2,
            "hidden_size_per_layer_input": 8,
            "vocab_size_per_layer_input": VOCAB,
            "laurel_rank": 8,
            "activation_sparsity_pattern": [0.0] * 4,
        },
    ),
    "vaultgemma": ("vaultgemma", _D | _W | {"query_pre_attn_scalar": 16}),
    "cohere": ("cohere", _G),
    "cohere2": ("cohere2", _G | _W),
    "granite": ("granite", _G | {"logits_scaling": 4.0, "embedding_multiplier": 6.0, "attention_multiplier": 0.1}),
    "granitemoe": ("granitemoe", _G | _LOCAL),
    "granitemoeshared": ("granitemoeshared", _G | _LOCAL | {"shared_intermediate_size": 32}),
    "olmo": ("olmo", _G),
    "olmo2": ("olmo2", _G),
    "olmo3": ("olmo3", _G | _W),
    "olmoe": ("olmoe", _G | _EXPERTS),
    "flex_olmo": ("flex_olmo", _G | _EXPERTS),
    "gpt_oss": ("gpt_oss", _D | _LOCAL | _W),
    "deepseek_v2": ("deepseek_v2", _LATENT | _ROUTED),
    "deepseek_v3": ("deepseek_v3", _LATENT | _ROUTED | {"n_group": 2, "topk_group": 1}),
    "minicpm3": ("minicpm3", _LATENT | {"scale_emb": 1, "dim_model_base": 32}),
    "phi": ("phi", _H | {"partial_rotary_factor": 0.5}),
    "phi3": ("phi3", _G | _W),
    "phi3, longrope": ("phi3", _G | {"original_max_position_embeddings": TURN, "rope_scaling": _LONG}),
    "phimoe": ("phimoe", _G | _LOCAL | _W),
    "gpt2": ("gpt2", _GPT),
    "gpt-sw3": ("gpt-sw3", _GPT),
    "gptj": ("gptj", _GPT | {"rotary_dim": 8}),
    "codegen": ("codegen", _GPT | {"rotary_dim": 8, "n_ctx": 256}),
    "gpt_bigcode": ("gpt_bigcode", _GPT),
    "gpt_neox": ("gpt_neox", _H),
    "gpt_neo": (
        "gpt_neo",
        {
            "vocab_size": VOCAB,
            "hidden_size": 32,
            "num_layers": 4,
            "num_heads": 4,
            "intermediate_size": 48,
            "attention_types": [[["global", "local"], 2]],
            "window_size": WINDOW,
            "max_position_embeddings": 256,
        },
    ),
    "opt": (
        "opt",
        {
            "vocab_size": VOCAB,
            "hidden_size": 32,
            "word_embed_proj_dim": 32,
            "num_hidden_layers": 4,
            "num_attention_heads": 4,
            "ffn_dim": 48,
            "max_position_embeddings": 256,
        },
    ),
    "bloom": ("bloom", {"vocab_size": VOCAB, "hidden_size": 32, "n_layer": 4, "n_head": 4}),
    "falcon": ("falcon", {"vocab_size": VOCAB, "hidden_size": 32, "num_hidden_layers": 4, "num_attention_heads": 4}),
    "falcon, alibi": (
        "falcon",
        {"vocab_size": VOCAB, "hidden_size": 32, "num_hidden_layers": 4, "num_attention_heads": 4, "alibi": True},
    ),
    "stablelm": ("stablelm", _G),
    "starcoder2": ("starcoder2", _G | _W),
    "persimmon": ("persimmon", _H),
    "nemotron": ("nemotron", _G),
    "glm": ("glm", _D),
    "glm4": ("glm4", _D),
    "smollm3": ("smollm3", _G | _W | {"use_sliding_window": True, "layer_types": None}),
    "exaone4": ("exaone4", _G | _W | {"sliding_window_pattern": 4}),
    "helium": ("helium", _D | {"head_dim": 8}),
    "ernie4_5": ("ernie4_5", _D),
    "arcee": ("arcee", _G),
    "seed_oss": ("seed_oss", _D),
    "apertus": ("apertus", _G),
    "internlm3": ("internlm3", _D),
    "nanochat": ("nanochat", _G),
    "bitnet": ("bitnet", _G),
    "diffllama": ("diffllama", _G),
    "llama4_text": ("llama4_text", _LLAMA4),
    "jetmoe": (
        "jetmoe",
        {"vocab_size": VOCAB, "hidden_size": 32, "num_hidden_layers": 4, "num_key_value_heads": 2, "kv_channels": 16}
        | {"intermediate_size": 48}
        | _LOCAL,
    ),
    "biogpt": ("biogpt", _H),
    "xglm": (
        "xglm",
        {"vocab_size": VOCAB, "d_model": 32, "ffn_dim": 48, "num_layers": 4, "attention_heads": 4}
        | {"max_position_embeddings": 256},
    ),
    "modernbert-decoder": ("modernbert-decoder", _H | {"local_attention": WINDOW}),
    "dots1": ("dots1", _D | _ROUTED | _W | {"max_window_layers": 2, "n_group": 1, "topk_group": 1}),
    "hunyuan_v1_dense": ("hunyuan_v1_dense", _D),
    "ernie4_5_moe": ("ernie4_5_moe", _D | {"moe_num_experts": 4, "moe_k": 2, "moe_intermediate_size": 32}),
    "glm4_moe": ("glm4_moe", _D | _ROUTED | {"n_group": 1, "topk_group": 1}),
    "gemma3": ("gemma3", {"text_config": _D | _W, "vision_config": _VISION | _PIXELS, "mm_tokens_per_image": 4}),
    "llama4": ("llama4", {"text_config": _LLAMA4}),
    "mistral3": (
        "mistral3",
        {"text_config": _D | _W | {"model_type": "mistral"}}
        | {"vision_config": _VISION | _PIXELS | {"model_type": "pixtral", "head_dim": 16}},
    ),
    "qwen2_5_vl": (
        "qwen2_5_vl",
        {
            "text_config": _G | {"rope_parameters": {"rope_type": "default", "mrope_section": [1, 1, 2]}},
            "vision_config": {"depth": 1, "hidden_size": 32, "num_heads": 2, "out_hidden_size": 32},
        },
    ),
    "recurrent_gemma": ("recurrent_gemma", _D | {"lru_width": 32, "attention_window_size": 64}),
    "mamba": ("mamba", {"vocab_size": VOCAB, "hidden_size": 32, "num_hidden_layers": 2}),
    "lfm2": ("lfm2", _G | {"layer_types": ["conv", "full_attention"] * 2}),
    "minimax": ("minimax", _D | _LOCAL | {"layer_types": ["linear_attention", "full_attention"] * 2}),
    "bart": ("bart", {"vocab_size": VOCAB, "d_model": 32, "decoder_layers": 2, "decoder_attention_heads": 4}),
    "t5": ("t5", {"vocab_size": VOCAB, "d_model": 32, "d_kv": 16, "num_layers": 2, "num_heads": 4, "d_ff": 48}),
    "roberta": ("roberta", _H | {"is_decoder": True}),
    "bert": ("bert", _H),
    "xlnet": ("xlnet", {"vocab_size": VOCAB, "d_model": 32, "n_layer": 2, "n_head": 4, "d_inner": 48}),
    "openai-gpt": ("openai-gpt", _GPT),
    "ctrl": ("ctrl", _GPT | {"dff": 48}),
    "mpt": ("mpt", {"d_model": 32, "n_heads": 4, "n_layers": 4, "vocab_size": VOCAB, "max_seq_len": 256}),
}
"""By what a report calls it."""


def config_of(name: str) -> Any:
    """The config of an entry, or of any other model type: in small, else as it is by default; None if it has none."""
    if name in ZOO:
        kind, options = ZOO[name]
        return CONFIG_MAPPING[kind](**options)
    for options in (_D | _W, {}):
        with contextlib.suppress(Exception):  # of whatever class, where options do not fit one another
            return CONFIG_MAPPING[name](**options)
    return None


def disturb(model: Any, scale: float, seed: int) -> Any:
    """Noise on every parameter of a model, which is returned."""
    rng = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(scale * torch.randn(parameter.shape, generator=rng, dtype=parameter.dtype))
    return model


def small(config: Any) -> Any:
    """A random stock model in float32, whose biases and norms take part and whose outputs do not repeat."""
    torch.manual_seed(0)
    return disturb(loader_of(config).from_config(config).float().eval(), 0.15, 1)
