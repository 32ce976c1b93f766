"""The pair of the last cell, kept: sweeps run many cells in one process, mostly with the same models."""

import gc
from pathlib import Path

import torch

from specdec_core.errors import LoadError
from specdec_core.models import Pair, load_pair
from specdec_core.models.graphs import usable
from specdec_core.models.placement import resolve_device, resolve_dtype
from specdec_core.models.planted.pair import plant_pair
from specdec_trees.measure import hub_configs
from specdec_trees.measure.cell import PairSpec, Runtime
from specdec_trees.measure.fingerprints import fingerprint_folder
from specdec_trees.measure.neutral import say_left_out

_loaded: dict[tuple[object, ...], Pair] = {}


def loaded(spec: PairSpec, runtime: Runtime, *, target_weights: bool = True) -> Pair:
    """The pair on its device; that of another cell gives its memory back first.

    Without `target_weights` the target's are left out if they are not loaded yet and the draft does not read them.
    """
    names = ("device", "dtype", "attention", "device_map", "tensor_parallel", "draft_device", "graphs")
    options = {name: getattr(runtime, name) for name in names}
    folders = [Path(model.source) for model in (spec.target, spec.draft) if model]
    files = tuple(fingerprint_folder(folder) for folder in folders if folder.is_dir())
    key = (spec.target, spec.draft, spec.planted, str(options), files)
    keys = [(*key, whole) for whole in {True, target_weights}]
    if not any(one in _loaded for one in keys):
        release()
        options["target_weights"] = target_weights
        pair = _planted(spec, runtime) if spec.planted else load_pair(spec.target, spec.draft, **options)
        _loaded[*key, target_weights] = pair
        say_left_out(pair, spec.name)
    return next(_loaded[one] for one in keys if one in _loaded)


def release() -> None:
    """Give the memory of the last pair back: caches refer to their layers and back, so a collection is needed."""
    if any(pair.graphs for pair in _loaded.values()):
        torch._dynamo.reset()  # its cache holds packed weights
    _loaded.clear()
    collect()


def collect() -> None:
    """Give back the memory that nothing holds any more."""
    gc.collect()
    torch.cuda.empty_cache()


def _planted(spec: PairSpec, runtime: Runtime) -> Pair:
    """A pair of random weights in published shapes, on one device or with its target's layers offloaded.

    LoadError where that needs more memory than there is.
    """
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
