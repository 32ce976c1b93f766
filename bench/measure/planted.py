"""Planted pairs by their yaml: random weights of the papers' shapes, made where they run. Synthetic, and called so."""

import torch

from bench.measure import hub_configs
from bench.measure.cell import PairSpec, Runtime
from specdec_core.errors import LoadError
from specdec_core.models import Pair
from specdec_core.models.graphs import usable
from specdec_core.models.placement import resolve_device, resolve_dtype
from specdec_core.models.planted.pair import plant_pair


def planted_pair(spec: PairSpec, runtime: Runtime) -> Pair:
    """The pair on one device, or with its target's layers offloaded; LoadError where that is not enough memory."""
    if spec.planted is None:
        raise LoadError(f"pair {spec.name} is not planted")
    if runtime.device_map or runtime.tensor_parallel or runtime.draft_device:
        raise LoadError(f"{spec.name} is made on one device; leave out device_map, tensor_parallel and draft_device")
    device = torch.device(resolve_device(runtime.device))
    specs = [model for model in (spec.target, spec.draft) if model is not None]
    pair = plant_pair(
        specs,
        [hub_configs.config_of(model.id) for model in specs],
        spec.planted,
        device=device,
        dtype=resolve_dtype(runtime.dtype, device),
        attention=runtime.attention,
    )
    configs = [pair.target.config]
    pair.compile(usable(runtime.graphs, runtime.attention, device, configs, whole=not spec.target.offload))
    return pair
