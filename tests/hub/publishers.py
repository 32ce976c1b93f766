"""Models as their publishers lay them out, with embedded or small random weights in the place of the published ones.

Which files a publisher has was written down without a hub at hand.
"""

import io
import json
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import torch
from safetensors.torch import load_file, save
from served import Repository
from tokenizer_files import BOTH, CHAT, DATED, SLOW, Files, as_json, byte_tokenizer, llama_tokenizer, smollm2
from torch import Tensor
from transformers import AutoModelForCausalLM, BloomConfig, LlamaConfig, OPTConfig, Qwen3Config

from specdec_core.models.dflash import DFlashModel
from specdec_trees.prompts.embedded import TINY

Tensors = Mapping[str, Tensor]
VOCAB = 512
OLD = ("dtype", "rope_parameters", "mlp_bias")
"""What configs of 2023 do not have."""


def as_pickle(tensors: Tensors) -> bytes:
    file = io.BytesIO()
    torch.save(dict(tensors), file)
    return file.getvalue()


def weights(tensors: Tensors, form: str, parts: int) -> Files:
    """`safetensors` or `bin`, in one file, or in several with an index."""
    stem, written = ("model", _safetensors) if form == "safetensors" else ("pytorch_model", as_pickle)
    if parts == 1:
        return {f"{stem}.{form}": written(tensors)}
    names = list(tensors)
    held = {f"{stem}-{part + 1:05}-of-{parts:05}.{form}": names[part::parts] for part in range(parts)}
    index = {"metadata": {"total_size": 0}, "weight_map": {name: file for file, each in held.items() for name in each}}
    shards = {file: written({name: tensors[name] for name in each}) for file, each in held.items()}
    return shards | {f"{stem}.{form}.index.json": as_json(index)}


def _safetensors(tensors: Tensors) -> bytes:
    return save(dict(tensors), {"format": "pt"})


@cache
def embedded(name: str) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The config and the tensors of an embedded model."""
    (file,) = (TINY / name).glob("*.safetensors")
    return json.loads((TINY / name / "config.json").read_bytes()), load_file(file)


def config(said: Mapping[str, Any], **changes: Any) -> Files:
    """`config.json` as transformers wrote it in 2023."""
    plain = {name: value for name, value in said.items() if name not in OLD}
    return {"config.json": as_json(plain | {"torch_dtype": "float16", "transformers_version": "4.31.0"} | changes)}


def llama(name: str, tokenizer: Files, form: str = "safetensors", parts: int = 1, **generation: Any) -> Files:
    """An embedded model under Llama's config; the pickled ones have the frequencies of old files."""
    said, tensors = embedded(name)
    said = {key: value for key, value in said.items() if key != "head_dim"}
    if form == "bin":
        layers = range(said["num_hidden_layers"])
        tensors = tensors | {f"model.layers.{layer}.self_attn.rotary_emb.inv_freq": torch.ones(32) for layer in layers}
    told = as_json({"_from_model_config": True, "bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 0} | generation)
    return config(said) | {"generation_config.json": told} | tokenizer | weights(tensors, form, parts)


def random(name: str, tokenizer: Files, form: str, parts: int = 1, prefix: str = "") -> Files:
    """A small model of another family; its tensors' names are without `prefix`."""
    model = original(name)
    tensors = {each.removeprefix(prefix): tensor.half() for each, tensor in model.state_dict().items()}
    if model.config.tie_word_embeddings:
        del tensors["lm_head.weight"]
    said = model.config.to_diff_dict() | {"architectures": [type(model).__name__]}
    return config(said) | tokenizer | weights(tensors, form, parts)


@cache
def original(name: str) -> Any:
    """The target of a hub id as transformers knows it without a hub."""
    if name not in RANDOM:
        return AutoModelForCausalLM.from_pretrained(TINY / "target", dtype=torch.float32)
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(RANDOM[name]).half().float().eval()


def eagle(**changes: Any) -> Files:
    """A head of EAGLE's authors; `changes` are of its config."""
    said, tensors = embedded("eagle")
    return config(said, **changes) | {"pytorch_model.bin": as_pickle(tensors)}


def eagle3() -> Files:
    """A head of EAGLE-3's authors, whose config is silent about layers."""
    said, tensors = embedded("eagle3")
    silent = {name: value for name, value in said.items() if name != "eagle_aux_hidden_state_layer_ids"}
    marks = torch.zeros(VOCAB, dtype=torch.bool)
    marks[tensors["d2t"] + torch.arange(len(tensors["d2t"]))] = True
    return config(silent) | {"pytorch_model.bin": as_pickle(tensors | {"t2d": marks})}


def speculator() -> Files:
    """In the format of the speculators library, whose config names code that the folder brings."""
    said, tensors = embedded("eagle3")
    heads = {"algorithm": "eagle3", "default_proposal_method": "greedy", "verifier": {"name_or_path": "a/target"}}
    top = {name: said[name] for name in ("draft_vocab_size", "eagle_aux_hidden_state_layer_ids")}
    top |= {"architectures": ["Eagle3Speculator"], "auto_map": {"": "eagle3.Eagle3SpeculatorConfig"}}
    top |= {"norm_before_residual": False, "target_hidden_size": None, "speculators_version": "0.1.0"}
    told = {**top, "speculators_model_type": "eagle3", "speculators_config": heads, "transformer_layer_config": said}
    named = {name.replace("midlayer.", "layers.0."): tensor for name, tensor in tensors.items()}
    return {"config.json": as_json(told), "eagle3.py": b"raise SystemExit(1)", "model.safetensors": save(named)}


def medusa() -> Files:
    """Whose config is wrong about the number of heads."""
    said = {"base_model_name_or_path": "lmsys/vicuna-7b-v1.3", "medusa_num_heads": 2, "medusa_num_layers": 1}
    return {"config.json": as_json(said), "medusa_lm_head.pt": as_pickle(embedded("medusa")[1])}


SIZES = {"vocab_size": VOCAB, "num_attention_heads": 2, "bos_token_id": 0, "eos_token_id": 1, "pad_token_id": None}
DEEP = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 80, "num_key_value_heads": 1}
OPT = {"hidden_size": 32, "num_hidden_layers": 2, "ffn_dim": 48, "max_position_embeddings": 2048}
QWEN = {"hidden_size": 256, "intermediate_size": 64, "num_hidden_layers": 6, "head_dim": 32, "num_key_value_heads": 1}
RANDOM = {
    "meta-llama/Llama-2-70b-hf": LlamaConfig(**SIZES | DEEP, initializer_range=0.3),
    "facebook/opt-13b": OPTConfig(**SIZES | OPT, word_embed_proj_dim=32),
    "facebook/opt-350m": OPTConfig(**SIZES | OPT, word_embed_proj_dim=16, do_layer_norm_before=False),
    "bigscience/bloom-7b1": BloomConfig(vocab_size=VOCAB, hidden_size=32, n_layer=2, n_head=4),
    "bigscience/bloom-560m": BloomConfig(vocab_size=VOCAB, hidden_size=16, n_layer=1, n_head=2),
    "Qwen/Qwen3-8B": Qwen3Config(**SIZES | QWEN),
}


def dflash() -> Files:
    """A random head in the format of DFlash's authors, whose config names code on the hub."""
    read = {"mask_token_id": 500, "target_layer_ids": [1, 3]}
    of_target = {"num_target_layers": QWEN["num_hidden_layers"], "block_size": 4, "dflash_config": read}
    said = Qwen3Config(**SIZES | QWEN | {"num_hidden_layers": 2, "layer_types": ["full_attention"] * 2} | of_target)
    torch.manual_seed(0)
    tensors = DFlashModel(said, joined=2).half().state_dict()
    told = {"architectures": ["DFlashDraftModel"], "auto_map": {"AutoModel": "dflash.DFlashDraftModel"}}
    return config(said.to_dict(), **told) | {"dflash.py": b"raise SystemExit(1)", "model.safetensors": save(tensors)}


def llama2(parts: int, **generation: Any) -> Callable[[], Files]:
    """Meta's: shards of safetensors and the same as pickles, both kinds of tokenizer."""

    def made() -> Files:
        files = llama("target", llama_tokenizer(*BOTH), parts=parts, **generation)
        return files | weights(embedded("target")[1], "bin", parts)

    return made


SAMPLED = {"do_sample": True, "temperature": 0.6, "top_p": 0.9, "max_length": 4096}
MODELS: dict[str, Callable[[], Files]] = {
    "meta-llama/Llama-2-7b-hf": llama2(2, **SAMPLED),
    "meta-llama/Llama-2-7b-chat-hf": llama2(2, **SAMPLED),
    "meta-llama/Llama-2-13b-hf": llama2(3, **SAMPLED),
    "meta-llama/Llama-2-13b-chat-hf": llama2(3, **SAMPLED),
    "meta-llama/Llama-2-70b-chat-hf": llama2(15, **SAMPLED),
    "meta-llama/Llama-2-70b-hf": lambda: random("meta-llama/Llama-2-70b-hf", llama_tokenizer(*BOTH), "safetensors", 15),
    "meta-llama/Llama-3.1-8B-Instruct": lambda: llama(
        "target",
        byte_tokenizer("PreTrainedTokenizerFast", "tokenizer.json", add_bos_token=True, chat_template=DATED),
        parts=4,
        eos_token_id=[1, 300, 301],
    ),
    "meta-llama/Llama-3.2-1B-Instruct": lambda: llama(
        "draft",
        byte_tokenizer("PreTrainedTokenizerFast", "tokenizer.json", add_bos_token=True, chat_template=DATED),
        eos_token_id=[1, 300, 301],
    ),
    "lmsys/vicuna-7b-v1.3": lambda: llama("target", llama_tokenizer("tokenizer.model"), "bin", 2),
    "lmsys/vicuna-33b-v1.3": lambda: llama("target", llama_tokenizer("tokenizer.model"), "bin", 7),
    "lmsys/vicuna-7b-v1.5": lambda: llama(
        "target", llama_tokenizer("tokenizer.model"), "bin", 2, temperature=0.9, top_p=0.6, max_length=4096
    ),
    "JackFram/llama-68m": lambda: llama("draft", llama_tokenizer(*BOTH), "bin"),
    "JackFram/llama-160m": lambda: llama("draft", llama_tokenizer(*BOTH), "bin"),
    "TinyLlama/TinyLlama-1.1B-Chat-v1.0": lambda: llama("draft", llama_tokenizer(*BOTH)),
    "princeton-nlp/Sheared-LLaMA-1.3B": lambda: llama("draft", llama_tokenizer(*BOTH), "bin", 2),
    "facebook/opt-13b": lambda: random(
        "facebook/opt-13b", byte_tokenizer("GPT2Tokenizer", *SLOW, add_bos_token=True), "bin", 3
    ),
    "facebook/opt-350m": lambda: random(
        "facebook/opt-350m",
        byte_tokenizer("GPT2Tokenizer", *SLOW, add_bos_token=True),
        "bin",
        prefix="model.",
    ),
    "bigscience/bloom-7b1": lambda: random(
        "bigscience/bloom-7b1",
        byte_tokenizer("BloomTokenizerFast", "tokenizer.json"),
        "bin",
        2,
        prefix="transformer.",
    ),
    "bigscience/bloom-560m": lambda: random(
        "bigscience/bloom-560m",
        byte_tokenizer("BloomTokenizerFast", "tokenizer.json"),
        "safetensors",
        prefix="transformer.",
    ),
    "Qwen/Qwen3-8B": lambda: random(
        "Qwen/Qwen3-8B",
        byte_tokenizer("Qwen2Tokenizer", "tokenizer.json", *SLOW, bos_token=None, chat_template=CHAT),
        "safetensors",
        5,
    ),
    "HuggingFaceTB/SmolLM2-1.7B-Instruct": lambda: llama("target", smollm2()),
    "HuggingFaceTB/SmolLM2-135M-Instruct": lambda: llama("draft", smollm2()),
    "yuhuili/EAGLE-llama2-chat-7B": eagle,
    "yuhuili/EAGLE-llama2-chat-13B": eagle,
    "yuhuili/EAGLE-llama2-chat-70B": eagle,
    "yuhuili/EAGLE-Vicuna-33B-v1.3": eagle,
    "yuhuili/EAGLE-Vicuna-7B-v1.3": eagle,
    "yuhuili/EAGLE3-LLaMA3.1-Instruct-8B": eagle3,
    "RedHatAI/Llama-3.1-8B-Instruct-speculator.eagle3": speculator,
    "RedHatAI/Qwen3-8B-speculator.eagle3": speculator,
    "FasterDecoding/medusa-vicuna-7b-v1.3": medusa,
    "z-lab/Qwen3-8B-DFlash-b16": dflash,
}


def is_gated(name: str) -> bool:
    """Whether its publisher asks for a licence."""
    return name.startswith("meta-llama/")


def model(name: str) -> Repository:
    """The model of a hub id."""
    return Repository(dict(MODELS[name]()), gated=is_gated(name))
