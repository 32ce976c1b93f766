"""The pair of the last cell, kept: sweeps run cell after cell in one process, mostly with the same models."""

import gc

import torch

from bench.cell import PairSpec, Runtime
from specdec_core.models import Pair, load_pair

_loaded: dict[tuple[object, ...], Pair] = {}


def loaded(spec: PairSpec, runtime: Runtime) -> Pair:
    """The pair on its device; that of another cell gives its memory back first."""
    key = (spec.target, spec.draft, runtime.device, runtime.dtype, runtime.attention)
    if key not in _loaded:
        release()
        options = {"device": runtime.device, "dtype": runtime.dtype, "attention": runtime.attention}
        _loaded[key] = load_pair(spec.target, spec.draft, **options)
    return _loaded[key]


def release() -> None:
    """Give the memory of the last pair back: caches refer to their layers and back, so a collection is needed."""
    _loaded.clear()
    gc.collect()
    torch.cuda.empty_cache()
