"""A target's own layer for the token after next (multi-token prediction; DeepSeek-AI, 2024, section 2.2).

It comes with the target's weights, as `mtp.*` (Qwen3-Next and later) or as one more layer (DeepSeek-V3). Dense layers
are read, unquantised: one with experts stored apart, or in 8 bits, is refused. No public checkpoint was at hand.
"""

import copy
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from transformers import AutoModel
from transformers.utils import cached_file

from specdec_core.errors import LoadError
from specdec_core.models.causal_lm import CausalLM
from specdec_core.models.eagle import EagleHead
from specdec_core.models.eagle_checkpoint import EMBEDDING, read_tensors, tensors_in
from specdec_core.models.fetch import fetch
from specdec_core.models.memory import parameter_bytes
from specdec_core.models.output import output_of
from specdec_core.models.spec import ModelSpec

INDEX = "model.safetensors.index.json"
_DEEPSEEK = {
    "enorm.": "pre_fc_norm_embedding.",
    "hnorm.": "pre_fc_norm_hidden.",
    "eh_proj.": "fc.",
    "shared_head.norm.": "norm.",
}
_SHARED = ("shared_head.head.", "embed_tokens.")
"""What such a layer has in common with the target."""


class MtpModel(nn.Module):
    """`fc(cat(norm(embed(t)), norm(f)))`, then one decoder layer of the target's family and its final norm.

    Features are the target's behind its own final norm, and so are those that it predicts, as in SGLang. vLLM feeds
    back those of DeepSeek's layers before the norm.
    """

    def __init__(self, decoder: Any) -> None:
        """`decoder` is a stock one-layer decoder with its embedding."""
        super().__init__()
        self.decoder, self.config = decoder, decoder.config
        width, norm = self.config.hidden_size, type(decoder.norm)
        self.pre_fc_norm_embedding, self.pre_fc_norm_hidden = (norm(width, self.config.rms_norm_eps) for _ in range(2))
        self.fc = nn.Linear(2 * width, width, bias=False)

    @property
    def embed_tokens(self) -> Any:
        """The target's embedding."""
        return self.decoder.embed_tokens

    @property
    def device(self) -> torch.device:
        """Of its weights."""
        return self.fc.weight.device

    @property
    def dtype(self) -> torch.dtype:
        """Of its weights."""
        return self.fc.weight.dtype

    def inward(self, features: Float[Tensor, "*rows hidden"]) -> Float[Tensor, "*rows hidden"]:
        """The target's features as `predict` reads them: as they are."""
        return features

    def predict(
        self, tokens: Int[Tensor, "batch new"], features: Float[Tensor, "batch new hidden"], **options: Any
    ) -> Float[Tensor, "batch new hidden"]:
        """Predicted features behind the pairs (f_i, t_{i+1}); `options` are those of a stock model's forward."""
        both = self.pre_fc_norm_embedding(self.embed_tokens(tokens)), self.pre_fc_norm_hidden(features)
        predicted: Tensor = self.decoder(inputs_embeds=self.fc(torch.cat(both, -1)), **options).last_hidden_state
        return predicted


@dataclass(frozen=True, slots=True)
class MtpCheckpoint:
    """The layer on the host, checked against the target's config."""

    config: Any
    tensors: dict[str, Tensor]
    joins: bool = False

    def head(self, target: CausalLM, *, device: torch.device, dtype: torch.dtype) -> EagleHead:
        """The layer on its device, with the target's embedding and output matrix."""
        config = copy.deepcopy(self.config)
        config._attn_implementation = target.config._attn_implementation
        model = mtp_outline(config)
        tensors = {EMBEDDING: target.model.get_input_embeddings().weight.detach()} | self.tensors
        placed = {_inside(name): tensor.to(device, dtype) for name, tensor in tensors.items()}
        model.load_state_dict(placed, assign=True)
        model.decoder.rotary_emb = type(model.decoder.rotary_emb)(config).to(device)
        return EagleHead(model.requires_grad_(False), output_of(target))


def mtp_config(target_config: Any) -> Any:
    """The target's, of one layer with full attention."""
    config = copy.deepcopy(target_config.get_text_config())
    config.update({"num_hidden_layers": 1, "tie_word_embeddings": False})
    if getattr(config, "layer_types", None):
        config.layer_types = ["full_attention"]
    return config


def mtp_outline(config: Any) -> MtpModel:
    """On the meta device. LoadError where the family's decoder is not built like Llama's."""
    with torch.device("meta"):
        decoder = AutoModel.from_config(config)
        if not all(hasattr(decoder, name) for name in ("embed_tokens", "layers", "norm", "rotary_emb")):
            raise LoadError(f"kind mtp is for decoders built like Llama's, not for {type(decoder).__name__}")
        return MtpModel(decoder)


def mtp_bytes(config: Any, dtype: torch.dtype) -> int:
    """Bytes of the layer; its embedding is the target's."""
    return parameter_bytes(mtp_outline(config).to(dtype)) - config.vocab_size * config.hidden_size * dtype.itemsize


def read_mtp(spec: ModelSpec, config: Any, target_config: Any) -> MtpCheckpoint:
    """Read the layer out of a target's checkpoint, or a file of its own. LoadError says what is missing or wrong."""
    last = f"model.layers.{target_config.get_text_config().num_hidden_layers}."
    tensors = plain_names(_read(spec, last), last)
    expected = {_outside(name): tensor for name, tensor in mtp_outline(config).state_dict().items()}
    missing, foreign = sorted(expected.keys() - tensors.keys() - {EMBEDDING}), sorted(tensors.keys() - expected.keys())
    if missing or foreign:
        said = f"lacks {', '.join(missing[:3])}" if missing else f"has {', '.join(foreign[:3])} besides"
        raise LoadError(f"{spec.id} holds no MTP layer that is built like the target's own: it {said}")
    for name, tensor in tensors.items():
        if tensor.shape != expected[name].shape:
            raise LoadError(f"{name} of {spec.id} has shape {list(tensor.shape)}, not {list(expected[name].shape)}")
    return MtpCheckpoint(config, tensors)


def plain_names(tensors: Mapping[str, Tensor], last: str) -> dict[str, Tensor]:
    """Under Qwen3-Next's names without `mtp.`; `last` is how DeepSeek's begin."""
    found = {}
    for name, tensor in tensors.items():
        if name.startswith("mtp."):
            found[name.removeprefix("mtp.")] = tensor
            continue
        name = name.removeprefix(last)
        if not name.startswith(_SHARED):
            prefix = next((theirs for theirs in _DEEPSEEK if name.startswith(theirs)), None)
            found[_DEEPSEEK[prefix] + name.removeprefix(prefix) if prefix else f"layers.0.{name}"] = tensor
    return found


def _read(spec: ModelSpec, last: str) -> dict[str, Tensor]:
    """The layer's tensors, and of a checkpoint in parts no others. LoadError where index and parts do not agree."""
    index = fetch(cached_file, spec, filename=INDEX, _raise_exceptions_for_missing_entries=False)
    if index is None:
        return {name: each for name, each in read_tensors(spec).items() if name.startswith(("mtp.", last))}
    try:
        places = json.loads(Path(index).read_text(encoding="utf-8"))["weight_map"]
        wanted = {name: str(part) for name, part in places.items() if name.startswith(("mtp.", last))}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise LoadError(f"{index} does not say which file holds which tensor; fetch it again") from error
    found: dict[str, Tensor] = {}
    for part in sorted(set(wanted.values())):
        found |= tensors_in(fetch(cached_file, spec, filename=part), wanted)
    if missing := sorted(wanted.keys() - found.keys()):
        raise LoadError(
            f"{wanted[missing[0]]} of {spec.source} lacks {missing[0]}, which {INDEX} names; fetch both again"
        )
    return found


def _inside(name: str) -> str:
    """A tensor's name in `MtpModel`."""
    return f"decoder.{name}" if re.match(r"layers\.|norm\.|embed_tokens\.", name) else name


def _outside(name: str) -> str:
    return name.removeprefix("decoder.")
