"""Attention over the blocks of keys that a block of queries sees, in Triton (DySpec, appendix C).

The keys of a block of queries are shared out among several programs, as in flash decoding (Dao et al., 2023): each runs
the online softmax over its part of the list, and what they found is added up by the logarithms of their sums.
Logarithms and exponentials are to base 2.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor

from specdec_core.models.tree_attention.blocks import BlockMask

MAX_SPLITS = 16
PROGRAMS_PER_PROCESSOR = 2
"""Keys are shared out until there are so many programs for every multiprocessor."""
_LOG2_E = 1.4426950408889634


def block_attention(
    query: Float[Tensor, "batch heads new dim"],
    key: Float[Tensor, "batch kv_heads slots dim"],
    value: Float[Tensor, "batch kv_heads slots dim"],
    blocks: BlockMask,
    scale: float,
    splits: int | None = None,
) -> Float[Tensor, "batch new heads dim"]:
    """softmax(Q K^T scale + mask) V, summed in float32; blocks of keys that no query of a block sees are not read.

    Keys and values are read where they are, whatever their strides; head h reads those of head h // (heads / kv_heads).
    `splits`, a power of two, is the number of programs that share the keys of a block of queries.
    """
    batch, heads, new, dim = query.shape
    row_blocks, column_blocks = blocks.listed.shape
    splits = splits or _splits(row_blocks * heads * batch, column_blocks, query.device)
    out = query.new_empty(batch, new, heads, dim)
    parts = out if splits == 1 else out.new_empty(splits, *out.shape, dtype=torch.float32)
    sums = out.new_empty(splits, batch * new * heads, dtype=torch.float32)
    shape: dict[str, Any] = {"DIM": dim, "WIDTH": max(16, triton.next_power_of_2(dim)), "SPLITS": splits}
    with torch.cuda.device_of(query):
        _attend[(row_blocks * splits, heads, batch)](
            *(query, key, value, blocks.listed, blocks.counts, blocks.words, parts, sums),
            *(*query.stride(), *key.stride(), *value.stride()),
            *(scale * _LOG2_E, new, blocks.slots, column_blocks, blocks.words.shape[1]),
            GROUP=heads // key.shape[1],
            BLOCK=blocks.block,
            WIDEN=query.dtype == torch.bfloat16 and triton.knobs.runtime.interpret,
            **shape,
        )
        if splits > 1:
            _combine[(batch * new * heads,)](parts, sums, out, batch * new * heads, **shape)
    return out


def _splits(programs: int, column_blocks: int, device: torch.device) -> int:
    """A power of two that leaves every program two blocks of keys or more, if all are seen; 1 off the GPU."""
    if device.type != "cuda":
        return 1
    wanted = PROGRAMS_PER_PROCESSOR * torch.cuda.get_device_properties(device).multi_processor_count / programs
    room, splits = min(MAX_SPLITS, column_blocks // 2), 1
    while splits < wanted and 2 * splits <= room:
        splits *= 2
    return splits


@triton.jit
def _tile(start, stride_row, stride_dim, rows, there, DIM: tl.constexpr, WIDTH: tl.constexpr):  # noqa: N803
    """Rows of queries, keys or values; 0 where there are none, and beyond the head's dimension."""
    dims = tl.arange(0, WIDTH)
    places = start + rows[:, None] * stride_row + dims[None, :] * stride_dim
    return tl.load(places, mask=there[:, None] & (dims < DIM)[None, :], other=0.0)


@triton.jit
def _keep(parts, at, mixed, there, DIM: tl.constexpr, WIDTH: tl.constexpr):  # noqa: N803
    """Write rows of what values were mixed to."""
    dims = tl.arange(0, WIDTH)
    places = parts + at[:, None] * DIM + dims[None, :]
    tl.store(places, mixed.to(parts.dtype.element_ty), mask=there[:, None] & (dims < DIM)[None, :])


@triton.jit
def _product(one, other, WIDEN: tl.constexpr):  # noqa: N803
    """In float32. Triton's interpreter multiplies the bits of bfloat16 as integers, so there they are made float32."""
    if WIDEN:
        one, other = one.to(tl.float32), other.to(tl.float32)
    return tl.dot(one, other, input_precision="ieee")


@triton.jit(do_not_specialize=["new", "slots", "column_blocks", "padded_rows"])
def _attend(
    query, key, value, listed, counts, words, parts, sums,
    q_batch, q_head, q_row, q_dim, k_batch, k_head, k_row, k_dim, v_batch, v_head, v_row, v_dim,
    scale, new, slots, column_blocks, padded_rows,
    GROUP: tl.constexpr, BLOCK: tl.constexpr, DIM: tl.constexpr, WIDTH: tl.constexpr, SPLITS: tl.constexpr,  # noqa: N803
    WIDEN: tl.constexpr,  # noqa: N803
):  # fmt: skip
    """One block of queries of one head, over one share of the blocks of keys that it sees."""
    row_block, split = tl.program_id(0) // SPLITS, tl.program_id(0) % SPLITS
    head, batch = tl.program_id(1), tl.program_id(2)
    inside = tl.arange(0, BLOCK)
    rows = row_block * BLOCK + inside
    q = _tile(query + batch * q_batch + head * q_head, q_row, q_dim, rows, rows < new, DIM, WIDTH)
    key += batch * k_batch + head // GROUP * k_head
    value += batch * v_batch + head // GROUP * v_head
    largest = tl.full([BLOCK], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK], tl.float32)
    mixed = tl.zeros([BLOCK, WIDTH], tl.float32)
    count = tl.load(counts + row_block)
    for place in range(split * count // SPLITS, (split + 1) * count // SPLITS):
        entry = tl.load(listed + row_block * column_blocks + place)
        columns = entry // 2 * BLOCK + inside
        k = _tile(key, k_row, k_dim, columns, columns < slots, DIM, WIDTH)
        scores = _product(q, tl.trans(k), WIDEN) * scale
        partial = (entry + 0 * inside) % 2 == 0
        word = tl.load(words + entry // 2 * padded_rows + rows, mask=partial, other=-1)  # all bits set: all is seen
        scores = tl.where((word[:, None] >> inside[None, :]) & 1 == 1, scores, float("-inf"))
        higher = tl.maximum(largest, tl.max(scores, 1))
        finite = tl.where(higher == float("-inf"), 0.0, higher)  # no key seen yet: -inf minus itself is no number
        weights = tl.exp2(scores - finite[:, None])
        kept = tl.exp2(largest - finite)
        v = _tile(value, v_row, v_dim, columns, columns < slots, DIM, WIDTH)
        total = total * kept + tl.sum(weights, 1)
        mixed = mixed * kept[:, None] + _product(weights.to(v.dtype), v, WIDEN)
        largest = higher
    total = tl.where(total == 0, 1.0, total)  # queries that there are not, or that see no key of this share
    at = ((split * tl.num_programs(2) + batch) * new + rows) * tl.num_programs(1) + head
    _keep(parts, at, mixed / total[:, None], rows < new, DIM, WIDTH)
    tl.store(sums + at, largest + tl.log2(total), mask=rows < new)


@triton.jit(do_not_specialize=["rows"])
def _combine(parts, sums, out, rows, DIM: tl.constexpr, WIDTH: tl.constexpr, SPLITS: tl.constexpr):  # noqa: N803
    """One query of one head: its parts, weighted by the sums that they were divided by."""
    row, splits, dims = tl.program_id(0), tl.arange(0, SPLITS), tl.arange(0, WIDTH)
    logarithms = tl.load(sums + splits * rows + row)
    highest = tl.max(logarithms, 0)
    weights = tl.exp2(logarithms - tl.where(highest == float("-inf"), 0.0, highest))
    total = tl.sum(weights, 0)
    places = parts + (splits * rows + row)[:, None] * DIM + dims[None, :]
    found = tl.load(places, mask=(dims < DIM)[None, :], other=0.0)
    mixed = tl.sum(found * weights[:, None], 0) / tl.where(total == 0, 1.0, total)
    tl.store(out + row * DIM + dims, mixed.to(out.dtype.element_ty), mask=dims < DIM)
