"""The pair of the last cell, kept: sweeps run cell after cell in one process, mostly with the same models."""

import gc
from pathlib import Path

import torch

from bench.measure.cell import PairSpec, Runtime
from bench.measure.fingerprints import fingerprint_folder
from bench.measure.neutral import say_left_out
from bench.measure.planted import planted_pair
from specdec_core.models import Pair, load_pair

_loaded: dict[tuple[object, ...], Pair] = {}


def loaded(spec: PairSpec, runtime: Runtime) -> Pair:
    """The pair on its device; that of another cell gives its memory back first."""
    names = ("device", "dtype", "attention", "device_map", "tensor_parallel", "draft_device", "graphs")
    options = {name: getattr(runtime, name) for name in names}
    folders = [Path(model.source) for model in (spec.target, spec.draft) if model]
    files = tuple(fingerprint_folder(folder) for folder in folders if folder.is_dir())
    key = (spec.target, spec.draft, spec.planted, str(options), files)
    if key not in _loaded:
        release()
        _loaded[key] = planted_pair(spec, runtime) if spec.planted else load_pair(spec.target, spec.draft, **options)
        say_left_out(_loaded[key], spec.name)
    return _loaded[key]


def release() -> None:
    """Give the memory of the last pair back: caches refer to their layers and back, so a collection is needed."""
    if any(pair.graphs for pair in _loaded.values()):
        torch._dynamo.reset()  # its cache holds packed weights
    _loaded.clear()
    gc.collect()
    torch.cuda.empty_cache()
