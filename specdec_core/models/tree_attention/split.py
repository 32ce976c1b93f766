"""Attention in two parts: the cached prefix, which every node sees, without a mask, and the tree under its own.

Any mask makes PyTorch's fused attention repeat the keys and values of grouped queries; without one they are read once.
The parts are merged by their log-sum-exp (Ye et al., "FlashInfer", 2025, section 2.2).
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

_FLASH = torch.ops.aten._scaled_dot_product_flash_attention
_FLASH_ON_CPU = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
_EFFICIENT = torch.ops.aten._scaled_dot_product_efficient_attention


def split_attention(
    query: Float[Tensor, "batch heads new dim"],
    key: Float[Tensor, "batch kv_heads slots dim"],
    value: Float[Tensor, "batch kv_heads slots dim"],
    mask: Float[Tensor, "1 1 new slots"] | Bool[Tensor, "1 1 new slots"],
    scale: float,
    *,
    prefix: int,
) -> Float[Tensor, "batch heads new dim"]:
    """softmax(Q K^T scale + mask) V, where every query sees the first `prefix` keys; float32 between the parts.

    Head h reads the keys of head h // (heads / kv_heads): the queries of a group are rows of one attention.
    """
    groups = query.unflatten(1, (key.shape[1], -1))
    far, far_lse = _unmasked(groups.flatten(2, 3), key[:, :, :prefix], value[:, :, :prefix], scale)
    far, far_lse = far.view_as(groups), far_lse.view(groups.shape[:-1])
    own = mask[:, :, None, :, prefix:]
    seen = own if own.dtype == torch.bool else own == 0
    precise = torch.promote_types(query.dtype, torch.float32)
    near_keys, near_values = (part[:, :, None, prefix:].to(precise) for part in (key, value))
    scores = (groups.to(precise) @ near_keys.mT * scale).masked_fill(~seen, -torch.inf)
    total = torch.logaddexp(far_lse, scores.logsumexp(-1))[..., None]
    mixed = far * (far_lse[..., None] - total).exp() + (scores - total).exp() @ near_values
    return mixed.to(query.dtype).flatten(1, 2)


def _unmasked(query: Tensor, key: Tensor, value: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    """Attention that sees every key, and the log-sum-exp of each query's scores, [batch, heads, new]."""
    if query.device.type == "cpu":
        return _FLASH_ON_CPU(query, key, value, scale=scale)[:2]
    if query.dtype in (torch.float16, torch.bfloat16):
        return _FLASH(query, key, value, scale=scale)[:2]
    found, lse, *_ = _EFFICIENT(query, key, value, None, True, scale=scale)
    return found, lse[..., : query.shape[2]]
