"""Published Medusa heads: config.json beside medusa_lm_head.pt or .safetensors (FasterDecoding/medusa-*)."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import LlamaConfig

from specdec_core.errors import LoadError
from specdec_core.models.eagle_checkpoint import read_tensors
from specdec_core.models.medusa import Medusa, medusa_heads
from specdec_core.models.memory import parameter_bytes
from specdec_core.models.spec import ModelSpec

FILES = ("medusa_lm_head.safetensors", "medusa_lm_head.pt")
_KEY = re.compile(r"(?:medusa_head\.)?(\d+)\.(\d+)\.(?:linear\.)?(?:weight|bias)")


@dataclass(frozen=True, slots=True)
class MedusaCheckpoint:
    """Heads on the host, checked against the target's config."""

    config: Any
    tensors: dict[str, Tensor]


def medusa_config(spec: ModelSpec, said: Mapping[str, Any], target_config: Any) -> Any:
    """What is said of the heads, with the target's sizes: their own config names none. There are no keys and values."""
    sizes = {"hidden_size": target_config.hidden_size, "vocab_size": target_config.vocab_size}
    defaults = {"medusa_num_heads": 5, "medusa_num_layers": 1}
    counts = {name: default if said.get(name) is None else int(said[name]) for name, default in defaults.items()}
    return LlamaConfig(**sizes, num_hidden_layers=0, num_attention_heads=1, **counts)


def read_medusa(spec: ModelSpec, target_config: Any) -> MedusaCheckpoint:
    """Read heads for a target of this config. LoadError says which file, tensor or shape is wrong.

    How many heads and residual blocks there are is counted off the names: published configs are wrong about it.
    """
    tensors = {name.removeprefix("medusa_head."): tensor for name, tensor in read_tensors(spec, FILES).items()}
    places = [(int(found[1]), int(found[2])) for name in tensors if (found := _KEY.fullmatch(name))]
    heads, blocks = (1 + max(column) for column in zip(*places, strict=True)) if places else (1, 1)
    counts = {"medusa_num_heads": heads, "medusa_num_layers": blocks - 1}
    config = medusa_config(spec, counts, target_config)
    expected = _outline(config).state_dict()
    if missing := sorted(expected.keys() ^ tensors.keys()):
        what = "lacks" if missing[0] in expected else "has besides"
        raise LoadError(f"{spec.id} does not hold Medusa's heads: it {what} {', '.join(missing[:3])}")
    for name, tensor in tensors.items():
        if tensor.shape != expected[name].shape:
            raise LoadError(
                f"{name} of {spec.id} has shape {list(tensor.shape)}, but {list(expected[name].shape)} fits the target"
            )
    return MedusaCheckpoint(config, tensors)


def medusa_of(read: MedusaCheckpoint, device: torch.device, dtype: torch.dtype) -> Medusa:
    """The heads on their device."""
    heads = _outline(read.config)
    heads.load_state_dict({name: tensor.to(device, dtype) for name, tensor in read.tensors.items()}, assign=True)
    return Medusa(heads.requires_grad_(False), read.config)


def medusa_bytes(config: Any, dtype: torch.dtype) -> int:
    """Bytes of all heads' parameters."""
    return parameter_bytes(_outline(config).to(dtype))


def _outline(config: Any) -> torch.nn.ModuleList:
    """The heads on the meta device."""
    with torch.device("meta"):
        return medusa_heads(config.medusa_num_heads, config.medusa_num_layers, config.hidden_size, config.vocab_size)
