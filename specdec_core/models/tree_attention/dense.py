"""Attention under a tree's mask in a few tensor operations: every score is computed. The reference of the kernel."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor


def dense_attention(
    query: Float[Tensor, "batch heads new dim"],
    key: Float[Tensor, "batch kv_heads slots dim"],
    value: Float[Tensor, "batch kv_heads slots dim"],
    mask: Float[Tensor, "1 1 new slots"] | Bool[Tensor, "1 1 new slots"],
    scale: float,
) -> Float[Tensor, "batch heads new dim"]:
    """softmax(Q K^T scale + mask) V, with the softmax in float32 or better. Every query must see a key.

    Head h reads the keys of head h // (heads / kv_heads): the queries of a group are rows of one product.
    """
    groups = query.unflatten(1, (key.shape[1], -1))
    scores = ((groups.flatten(2, 3) * scale) @ key.mT).unflatten(2, groups.shape[2:4])
    precise = scores if scores.dtype == torch.float64 else scores.float()
    seen = mask if mask.dtype == torch.bool else mask == 0
    weights = precise.masked_fill(~seen[:, :, None], -torch.inf).softmax(-1).to(query.dtype)
    return (weights.flatten(2, 3) @ value).unflatten(2, groups.shape[2:4]).flatten(1, 2)
