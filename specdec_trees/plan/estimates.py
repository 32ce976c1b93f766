"""Memory of planned jobs, from configs: weights, caches, trees; and the MALs that the papers publish for them."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch

from specdec_core.cache import ROOM_FOR_TREES
from specdec_core.drafters.cached_draft import ROOM
from specdec_core.models import ModelSpec
from specdec_core.models.kinds import kind_of
from specdec_core.models.memory import kv_bytes, offloaded_bytes, tree_bytes
from specdec_trees import published
from specdec_trees.calibrate.prices import shape_of
from specdec_trees.measure.cell import PairSpec
from specdec_trees.plan.jobs import Job

GPUS = (24, 40, 48, 80)
"""GB of the GPUs that papers use: RTX 4090, A100, L40, A100 and H100."""
SPARE = 1.1
"""For the CUDA context, what passes through a layer, and fragments."""
TRAINED = 2048
"""Tokens of the texts that BLOOM, which has no last position, was trained on."""
PUBLISHED = {
    "dyspec_heap": "dyspec",
    "sequoia_hardware": "sequoia",
    "sequoia_printed": "sequoia",
    "spec_infer": "specinfer",
}
"""Our methods by the papers' names, where they differ."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Bytes of a pair on its devices, at most, and on the host."""

    target: int
    draft: int
    caches: int
    trees: int
    host: int
    draft_reads: int
    """Of the weights, what a draft forward reads: also what a draft shares with its target."""

    @property
    def device(self) -> int:
        """All that is not on the host."""
        return self.target + self.draft + self.caches + self.trees

    @property
    def gpus(self) -> tuple[int, int]:
        """How many GPUs of how many GB are enough: one if one is."""
        needed = self.device * SPARE / 1e9
        size = next((size for size in GPUS if needed <= size), GPUS[-1])
        return math.ceil(needed / size), size


def memory_of(pair: PairSpec, jobs: Iterable[Job], dtype: torch.dtype) -> Memory:
    """What the hungriest of the jobs takes."""
    jobs, config = list(jobs), shape_of(pair.target)
    positions = getattr(config, "max_position_embeddings", None) or TRAINED
    contexts = [min(job.context or positions, positions) for job in jobs]
    caches = kv_bytes(config, dtype, max(contexts, default=0) + ROOM_FOR_TREES)
    trees = [tree_bytes(config, dtype, job.nodes + 1, at) for job, at in zip(jobs, contexts, strict=True)]
    if pair.target.offload:
        target, host = offloaded_bytes(config, dtype, pair.target.resident_layers)
    else:
        target, host = kind_of(pair.target).weight_bytes(pair.target, config, dtype), 0
    draft, drafts_cache, reads = _draft(pair.draft, config, dtype, max(contexts, default=0) + ROOM)
    if pair.draft is not None:  # its distributions of the nodes are of the same size
        trees = [2 * size for size in trees]
    return Memory(
        target=target,
        draft=draft,
        caches=caches + drafts_cache,
        trees=max(trees, default=0),
        host=host,
        draft_reads=reads,
    )


def _draft(spec: ModelSpec | None, target: Any, dtype: torch.dtype, tokens: int) -> tuple[int, int, int]:
    """Bytes of a draft's weights beside the target's, of its cache, and of what a forward reads."""
    if spec is None:
        return 0, 0, 0
    config, kind = shape_of(spec, target), kind_of(spec)
    cache = kv_bytes(config, dtype, tokens) if kind.own_weights else 0
    return kind.weight_bytes(spec, config, dtype), cache, kind.forward_bytes(spec, config, dtype)


def mal_of(experiment: str, labels: dict[str, Any], job: Job) -> float:
    """The least MAL that the paper's table prints for pair, dataset, temperature and method; 1 where it has none."""
    paper, _, artifact = experiment.partition("/")
    if job.measure != "cells" or paper not in published.papers() or not labels or labels["stand_in"]:
        return 1.0
    rows = published.find(
        paper,
        artifact,
        target=labels["target"],
        draft=labels["draft"],
        dataset=job.dataset,
        temperature=job.temperature,
        method=PUBLISHED.get(job.method, job.method),
        metric=["mal", "tokens_per_step"],
    )
    return max(1.0, float(rows["value"].min())) if len(rows) else 1.0
