"""Published EAGLE-1 heads: config.json beside pytorch_model.bin or model.safetensors (yuhuili/EAGLE-*)."""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding
from transformers.utils import cached_file

from specdec_core.errors import LoadError
from specdec_core.models.causal_lm import CausalLM
from specdec_core.models.draft_vocabulary import FILE as MAP
from specdec_core.models.draft_vocabulary import ReducedOutput, check_map
from specdec_core.models.eagle import EagleHead, EagleModel
from specdec_core.models.fetch import fetch, fetch_config
from specdec_core.models.spec import ModelSpec

FILES = ("model.safetensors", "pytorch_model.bin")
EMBEDDING, _KEYS, _GATE = (
    "embed_tokens.weight",
    "layers.0.self_attn.k_proj.weight",
    "layers.0.mlp.gate_proj.weight",
)


@dataclass(frozen=True, slots=True)
class EagleCheckpoint:
    """A head on the host, checked against the target's config."""

    config: Any
    tensors: dict[str, Tensor]
    d2t: Tensor | None = None
    """Which tokens it predicts, if not all."""

    def head(self, target: CausalLM, *, device: torch.device, dtype: torch.dtype) -> EagleHead:
        """The head on its device, with the target's output matrix; without an embedding it takes the target's."""
        output = target.model.get_output_embeddings()
        tensors = {EMBEDDING: target.model.get_input_embeddings().weight.detach()} | self.tensors
        config = copy.deepcopy(self.config)
        config._attn_implementation = target.config._attn_implementation
        model = _outline(config, tensors)
        model.load_state_dict({name: tensor.to(device, dtype) for name, tensor in tensors.items()}, assign=True)
        model.rotary_emb = LlamaRotaryEmbedding(config).to(device)
        return EagleHead(model.requires_grad_(False), output if self.d2t is None else ReducedOutput(output, self.d2t))


def read_eagle(spec: ModelSpec, target_config: Any) -> EagleCheckpoint:
    """Read a head for a target of this config. LoadError says which file, tensor or shape is wrong.

    Whether `fc` has a bias, the number of key/value heads and the intermediate size are read off the tensors: published
    configs are silent or wrong about them. Where the config has EAGLE-3's `draft_vocab_size`, a map of ids says which
    tokens it predicts.
    """
    config, d2t = fetch_config(spec), None
    _check_family(spec, config, target_config.hidden_size)
    if size := getattr(config, "draft_vocab_size", None):
        d2t = check_map(spec.id, read_tensors(spec, (MAP,)).get("d2t"), size, target_config.vocab_size)
    tensors = read_tensors(spec)
    config = _fitted(config, tensors, target_config.vocab_size)
    _check_tensors(spec, _outline(config, tensors).state_dict(), tensors)
    return EagleCheckpoint(config, tensors, d2t)


def read_tensors(spec: ModelSpec, files: Sequence[str] = FILES) -> dict[str, Tensor]:
    """All tensors of the checkpoint on the host. Nothing but tensors is unpickled: LoadError for a file with code."""
    options = {"_raise_exceptions_for_missing_entries": False}
    paths = (fetch(cached_file, spec, filename=name, **options) for name in files)
    path = next(filter(None, paths), None)
    if path is None:
        raise LoadError(f"{spec.source} lacks {' or '.join(files)}, a file of tensors")
    try:
        found = load_file(path) if path.endswith(".safetensors") else torch.load(path, "cpu", weights_only=True)
    except MemoryError:
        raise
    except Exception as error:  # truncated and foreign files raise errors of many kinds
        raise LoadError(
            f"{path} cannot be read as tensors alone ({type(error).__name__}): it is truncated, or holds "
            "other objects, which are never unpickled; fetch it again"
        ) from error
    if not isinstance(found, dict) or not all(isinstance(tensor, Tensor) for tensor in found.values()):
        raise LoadError(f"{path} is not a dictionary of tensors; fetch it again")
    return found


def _check_family(spec: ModelSpec, config: Any, hidden: int) -> None:
    if getattr(config, "model_type", None) != "llama":
        raise LoadError(f"{spec.id} is a head of family {config.model_type!r}; only Llama's is supported (EAGLE-1)")
    if config.hidden_size != hidden:
        raise LoadError(f"{spec.id} was made for a target of hidden size {config.hidden_size}, not {hidden}")


def _fitted(config: Any, tensors: Mapping[str, Tensor], vocab: int) -> Any:
    """The config, with what the target and the tensors know better."""
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    known = {"num_hidden_layers": 1, "vocab_size": vocab, "tie_word_embeddings": False, "pad_token_id": None}
    if _KEYS in tensors:
        known["num_key_value_heads"] = tensors[_KEYS].shape[0] // head_dim
    if _GATE in tensors:
        known["intermediate_size"] = tensors[_GATE].shape[0]
    if positions := getattr(config, "max_sequence_length", None):
        known["max_position_embeddings"] = positions
    fitted = copy.deepcopy(config)
    fitted.update(known)
    return fitted


def _outline(config: Any, tensors: Mapping[str, Tensor]) -> EagleModel:
    """The model on the meta device: shapes, but no numbers."""
    with torch.device("meta"):
        return EagleModel(config, bias="fc.bias" in tensors)


def _check_tensors(spec: ModelSpec, expected: Mapping[str, Tensor], found: Mapping[str, Tensor]) -> None:
    missing = sorted(expected.keys() - found.keys() - {EMBEDDING})
    foreign = sorted(found.keys() - expected.keys())
    if missing or foreign:
        said = [f"lacks {', '.join(missing[:3])}"] if missing else []
        said += [f"has {', '.join(foreign[:3])} besides"] if foreign else []
        raise LoadError(f"{spec.id} is not an EAGLE-1 head: it {' and '.join(said)}")
    for name, tensor in found.items():
        if tensor.shape != expected[name].shape:
            raise LoadError(
                f"{name} of {spec.id} has shape {list(tensor.shape)}, but {list(expected[name].shape)} fits the target "
                "and the head's config.json"
            )
