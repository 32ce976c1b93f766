"""Published DFlash heads: config.json beside model.safetensors (z-lab/*-DFlash-*)."""

import copy
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers import Qwen3Config

from specdec_core.errors import LoadError
from specdec_core.models.causal_lm import CausalLM
from specdec_core.models.dflash import DFlash, DFlashModel
from specdec_core.models.eagle_checkpoint import EMBEDDING, read_tensors
from specdec_core.models.memory import parameter_bytes
from specdec_core.models.output import output_of
from specdec_core.models.spec import ModelSpec

_PART = "dflash_config"
_KNOWN = frozenset(("block_size", "mask_token_id", "num_target_layers", "target_layer_ids"))
"""What that part of a config may say; more of it is of heads that came after DFlash."""
_ARCHITECTURE = "DFlashDraftModel"
_OTHER_EQUATIONS = re.compile("softcap|multiplier|logits?_scal|embed_scale")
"""In names that other families' configs have for what Qwen3's layers do not."""


@dataclass(frozen=True, slots=True)
class DFlashCheckpoint:
    """A head on the host, checked against the target's config."""

    config: Any
    tensors: dict[str, Tensor]
    joins: bool = False
    """Its embedding and its output matrix are the target's."""

    def head(self, target: CausalLM, *, device: torch.device, dtype: torch.dtype) -> DFlash:
        """The head on its device; the target's output matrix is copied if that is another one."""
        model = _outline(self.config)
        placed = {name: tensor.to(device, dtype) for name, tensor in self.tensors.items() if name != EMBEDDING}
        model.load_state_dict(placed, assign=True)
        model.rotary_emb = type(model.rotary_emb)(self.config).to(device)
        output = output_of(target)
        here = all(parameter.device == device for parameter in output.parameters())
        output = output if here else copy.deepcopy(output).to(device)
        return DFlash(model.requires_grad_(False), self._embedding(target), output)

    def _embedding(self, target: CausalLM) -> nn.Module:
        """The target's, or one of its own where that is shared out among ranks."""
        if EMBEDDING in self.tensors:
            return nn.Embedding.from_pretrained(self.tensors[EMBEDDING])
        embedding: nn.Module = target.model.get_input_embeddings()
        return embedding


def dflash_config(spec: ModelSpec, said: Mapping[str, Any], target_config: Any) -> Qwen3Config:
    """What config.json says, with the target's vocabulary and with the ids of the layers that it reads.

    LoadError where something is missing, or the head is another one than DFlash's.
    """
    part = dict(said.get(_PART) or {})
    found: dict[str, Any] = {name: said.get(name, part.get(name)) for name in _KNOWN}
    _check_variant(spec, said, part)
    needed = ("block_size", "mask_token_id", "num_target_layers")
    if missing := [name for name in needed if found[name] is None]:
        raise LoadError(f"{spec.source} is no DFlash head: its config.json does not say {', '.join(missing)}")
    config = Qwen3Config.from_dict(dict(said))
    block, mask, layers = (int(found[name]) for name in needed)
    ids = [int(layer) for layer in found["target_layer_ids"] or default_layers(layers, config.num_hidden_layers)]
    config.update({"block_size": block, "num_target_layers": layers, "vocab_size": target_config.vocab_size})
    config.update({_PART: {"mask_token_id": mask, "target_layer_ids": ids}, "pad_token_id": None})
    if block < 2 or not ids:
        raise LoadError(f"{spec.id} has a block of {block} and reads {len(ids)} layers; it takes 2 and 1 at least")
    return config


def default_layers(target: int, draft: int) -> list[int]:
    """The layers read by a head of `draft` layers whose config names none: the middle one, or evenly spaced ones."""
    if draft == 1:
        return [target // 2]
    first, last = 1, target - 3
    return [round(first + number * (last - first) / (draft - 1)) for number in range(draft)]


def read_dflash(spec: ModelSpec, config: Any, target_config: Any) -> DFlashCheckpoint:
    """Read a head for a target of this config. LoadError says which size, file, tensor or shape is wrong."""
    layers, part = target_config.num_hidden_layers, config.dflash_config
    sizes = {"num_target_layers": layers, "hidden_size": target_config.hidden_size}
    for name, size in sizes.items():
        if getattr(config, name) != size:
            raise LoadError(f"{spec.id} was made for a target of {name} {getattr(config, name)}, not {size}")
    if not all(0 <= layer < layers for layer in part["target_layer_ids"]):
        raise LoadError(f"{spec.id} reads layers {part['target_layer_ids']} of a target that has {layers}")
    if not 0 <= part["mask_token_id"] < target_config.vocab_size:
        raise LoadError(f"mask_token_id of {spec.id} is {part['mask_token_id']}, which the target has not")
    tensors, expected = read_tensors(spec), _outline(config).state_dict()
    if differing := sorted(expected.keys() ^ tensors.keys()):
        what = "lacks" if differing[0] in expected else "has besides"
        raise LoadError(f"{spec.id} does not hold a DFlash head: it {what} {', '.join(differing[:3])}")
    for name, tensor in tensors.items():
        if tensor.shape != expected[name].shape:
            raise LoadError(
                f"{name} of {spec.id} has shape {list(tensor.shape)}, but {list(expected[name].shape)} fits its config"
            )
    return DFlashCheckpoint(config, tensors)


def dflash_bytes(config: Any, dtype: torch.dtype) -> int:
    """Bytes of the head's own parameters; embedding and output matrix are the target's."""
    return parameter_bytes(_outline(config).to(dtype))


def _check_variant(spec: ModelSpec, said: Mapping[str, Any], part: Mapping[str, Any]) -> None:
    """LoadError for heads that are told apart from DFlash's by their config alone."""
    if not said:
        raise LoadError(f"{spec.source} has no config.json, or an empty one; fetch the head again")
    if said.get("model_type") != "qwen3":
        raise LoadError(f"{spec.id} is a head of family {said.get('model_type')!r}; only Qwen3's is supported")
    others = [f"architectures {name}" for name in said.get("architectures") or () if name != _ARCHITECTURE]
    others += [f"{name} in {_PART}" for name in sorted(part.keys() - _KNOWN)]
    others += ["is_causal"] * bool(said.get("is_causal"))
    others += sorted(name for name, value in said.items() if value and _OTHER_EQUATIONS.search(name))
    others += ["layers with a sliding window"] * ("sliding_attention" in (said.get("layer_types") or ()))
    if others:
        raise LoadError(f"{spec.id} is no plain DFlash head: its config.json has {', '.join(others)}")


def _outline(config: Any) -> DFlashModel:
    """The head's model on the meta device: shapes, but no numbers."""
    ids = (getattr(config, _PART, None) or {}).get("target_layer_ids")
    with torch.device("meta"):
        return DFlashModel(config, len(ids) if ids else config.num_hidden_layers)
