"""Trees, queries, keys and values for attention under a mask, and what comes out by the definition, in float64."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from specdec_core.layout import tree_layout

TOLERANCE = {torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 2e-2}
"""Absolute, for inputs of unit normals: a few units in the last place of outputs of up to 4."""


@dataclass(frozen=True)
class Case:
    """One attention: the last `new` nodes of a tree ask, behind a prefix."""

    kind: str = "random"
    nodes: int = 37
    prefix: int = 0
    heads: int = 2
    kv_heads: int = 1
    dim: int = 16
    dtype: torch.dtype = torch.float32
    new: int | None = None
    batch: int = 1

    def __str__(self) -> str:
        sizes = f"{self.kind}{self.nodes}-p{self.prefix}-{self.heads}x{self.kv_heads}x{self.dim}"
        asked = "" if self.new is None else f"-last{self.new}"
        return f"{sizes}{asked}-b{self.batch}-{str(self.dtype).removeprefix('torch.')}"


def visible(kind: str, nodes: int, rng: torch.Generator) -> Tensor:
    """Row i marks node i and its ancestors, by walking up."""
    parents = {
        "random": [-1] + [int(torch.randint(node, (1,), generator=rng)) for node in range(1, nodes)],
        "chain": [node - 1 for node in range(nodes)],
        "star": [-1] + [0] * (nodes - 1),
    }[kind]
    seen = torch.eye(nodes, dtype=torch.bool)
    for node in range(nodes):
        at = node
        while parents[at] >= 0:
            at = parents[at]
            seen[node, at] = True
    return seen


def mask_of(case: Case, rng: torch.Generator) -> Tensor:
    seen = visible(case.kind, case.nodes, rng)[-(case.new or case.nodes) :]
    layout = tree_layout(seen, seen.sum(-1) - 1, prefix=case.prefix, dtype=case.dtype)
    return torch.zeros(1, 1, 1, case.prefix + 1, dtype=case.dtype) if layout.mask is None else layout.mask


def inputs(case: Case, rng: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """Queries as a projection leaves them, keys and values as views of a cache; where nothing is stored it is NaN."""
    new, slots = case.new or case.nodes, case.prefix + case.nodes
    query = torch.randn(case.batch, new, case.heads, case.dim, generator=rng).to(case.dtype).transpose(1, 2)
    cache = torch.full((2, case.batch, case.kv_heads, slots + 21, case.dim), math.nan)
    cache[..., :slots, :] = torch.randn(2, case.batch, case.kv_heads, slots, case.dim, generator=rng)
    keys, values = cache.to(case.dtype)[..., :slots, :]
    return query, keys, values


def by_definition(query: Tensor, key: Tensor, value: Tensor, mask: Tensor, scale: float) -> Tensor:
    """Head by head, over the keys that are seen; [batch, heads, new, dim] in float64."""
    query, key, value = query.double(), key.double(), value.double()
    group, out = query.shape[1] // key.shape[1], torch.zeros_like(query)
    for batch in range(query.shape[0]):
        for head in range(query.shape[1]):
            for row in range(query.shape[2]):
                seen = (mask[0, 0, row] == 0).nonzero().flatten()
                keys, values = key[batch, head // group, seen], value[batch, head // group, seen]
                out[batch, head, row] = (scale * keys @ query[batch, head, row]).softmax(0) @ values
    return out
