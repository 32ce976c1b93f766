"""The ways of computing attention over a tree that are set against each other, by name (DySpec, appendix C)."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
from torch.nn.functional import scaled_dot_product_attention

from specdec_core.models.tree_attention import TRITON, block_mask

SDPA, MANUAL, FLEX = "sdpa", "manual", "flex_attention"


@dataclass(frozen=True, slots=True, eq=False)
class Problem:
    """One attention: queries of the new tokens, keys and values of all, and which see which."""

    query: Float[Tensor, "1 heads new dim"]
    key: Float[Tensor, "1 kv_heads slots dim"]
    value: Float[Tensor, "1 kv_heads slots dim"]
    mask: Float[Tensor, "1 1 new slots"]
    """0 or -inf."""
    block: int
    """Rows and columns of a block, where the kernel can choose."""

    @property
    def scale(self) -> float:
        """Of the scores."""
        return float(self.query.shape[-1] ** -0.5)


Kernel = Callable[[Problem], Callable[[], Tensor]]
"""What a forward does once for its mask; the result is what every layer does."""


def _tree_triton(problem: Problem) -> Callable[[], Tensor]:
    """The kernel of this package: blocks in which nothing is seen are skipped."""
    from specdec_core.models.tree_attention.kernel import block_attention

    blocks, scale = block_mask(problem.mask, problem.block), problem.scale
    return lambda: block_attention(problem.query, problem.key, problem.value, blocks, scale)


def _sdpa(problem: Problem) -> Callable[[], Tensor]:
    """PyTorch's own attention with the mask as a tensor; every block is read."""

    def run() -> Tensor:
        keys, values = _every_head(problem)
        return scaled_dot_product_attention(problem.query, keys, values, attn_mask=problem.mask, scale=problem.scale)

    return run


def _manual(problem: Problem) -> Callable[[], Tensor]:
    """softmax(Q K^T + mask) V in plain tensor operations."""

    def run() -> Tensor:
        keys, values = _every_head(problem)
        scores = (problem.query * problem.scale) @ keys.mT
        scores += problem.mask
        return scores.softmax(-1) @ values

    return run


def _every_head(problem: Problem) -> tuple[Tensor, Tensor]:
    """Keys and values for every head of queries, as transformers' SDPA makes them under a mask."""
    group = problem.query.shape[1] // problem.key.shape[1]
    if group == 1:
        return problem.key, problem.value
    return problem.key.repeat_interleave(group, 1), problem.value.repeat_interleave(group, 1)


def _flex(problem: Problem) -> Callable[[], Tensor]:
    """PyTorch's block-sparse attention, with blocks of its own size, compiled once for all masks of a size."""
    _, _, new, slots = problem.mask.shape
    seen, rule = _flex_rule(new, slots, problem.mask.device)
    seen.copy_(problem.mask[0, 0] == 0)
    blocks = create_block_mask(rule, None, None, new, slots, device=problem.mask.device)
    options: dict[str, Any] = {"scale": problem.scale, "enable_gqa": problem.query.shape != problem.key.shape}
    return lambda: _compiled_flex()(problem.query, problem.key, problem.value, block_mask=blocks, **options)


@cache
def _flex_rule(new: int, slots: int, device: torch.device) -> tuple[Tensor, Callable[..., Tensor]]:
    """A mask to be written into, and the rule that reads it: the same objects for every tree, so nothing recompiles."""
    seen = torch.zeros(new, slots, dtype=torch.bool, device=device)
    return seen, lambda batch, head, query, key: seen[query, key]


@cache
def _compiled_flex() -> Callable[..., Tensor]:
    compiled: Callable[..., Tensor] = torch.compile(flex_attention, dynamic=False)
    return compiled


KERNELS: dict[str, Kernel] = {TRITON: _tree_triton, SDPA: _sdpa, MANUAL: _manual, FLEX: _flex}
NEED_GPU = (TRITON, FLEX)


def runnable(name: str, device: torch.device) -> bool:
    """Whether a kernel's time on this device says something: Triton's interpreter is not timed."""
    return name not in NEED_GPU or (device.type == "cuda")
