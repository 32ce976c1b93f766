"""Planted pairs by their yaml: random weights of the papers' shapes, made where they run. Synthetic, and called so."""

import torch
from transformers import LlamaConfig, PreTrainedConfig

from bench import hub_configs
from bench.cell import PairSpec, Runtime
from specdec_core.errors import LoadError
from specdec_core.models import Pair
from specdec_core.models.placement import resolve_device, resolve_dtype
from specdec_core.models.planted import plant_pair

_SMALL = {"vocab_size": 2048, "max_position_embeddings": 1024, "rms_norm_eps": 1e-5, "tie_word_embeddings": False}
_SIZES = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads")
SMALL = {
    name: _SMALL | dict(zip(_SIZES, sizes, strict=True))
    for name, sizes in {
        "planted/small-target": (128, 344, 4, 4, 2),
        "planted/small-draft": (64, 172, 1, 2, 2),
        "planted/small-head": (128, 344, 1, 4, 2),
    }.items()
}
"""Shapes of no published model, for tests."""


def shape_of(model_id: str) -> PreTrainedConfig:
    """The shape that goes by a hub id, or by one of `SMALL`. LoadError names the nearest known ids."""
    return LlamaConfig(**SMALL[model_id]) if model_id in SMALL else hub_configs.config_of(model_id)


def planted_pair(spec: PairSpec, runtime: Runtime) -> Pair:
    """The pair on one device, or with its target's layers offloaded; LoadError where that is not enough memory."""
    if spec.planted is None:
        raise LoadError(f"pair {spec.name} is not planted")
    if runtime.device_map or runtime.tensor_parallel or runtime.draft_device:
        raise LoadError(f"{spec.name} is made on one device; leave out device_map, tensor_parallel and draft_device")
    device = torch.device(resolve_device(runtime.device))
    specs = [model for model in (spec.target, spec.draft) if model is not None]
    return plant_pair(
        specs,
        [shape_of(model.id) for model in specs],
        spec.planted,
        device=device,
        dtype=resolve_dtype(runtime.dtype, device),
        attention=runtime.attention,
    )
