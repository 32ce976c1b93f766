"""A mask as blocks: which of them attention has to read, and the bits of those that are seen in part."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import pad
from torch.utils.weak import WeakIdKeyDictionary

BLOCKS = (16, 32, 64)
"""Rows and columns of a block that the kernel knows."""
_memo: WeakIdKeyDictionary = WeakIdKeyDictionary()
"""What was made of each mask that is still alive, by block size: all layers of a forward are given the same one."""


@dataclass(frozen=True, slots=True)
class BlockMask:
    """Blocks of `block` queries and `block` keys, counted from the first query and from cache slot 0."""

    block: int
    rows: int
    """Queries."""
    slots: int
    """Keys."""
    listed: Int[Tensor, "row_blocks column_blocks"]
    """For each block of queries the blocks of keys that it sees, ascending: twice the index, plus 1 where every query
    sees every key. Behind the first `counts` of a row stand those that it does not see."""
    counts: Int[Tensor, " row_blocks"]
    """How many blocks of keys a block of queries sees."""
    words: Int[Tensor, "column_blocks padded_rows"]
    """Bit c of word [j, i] says whether query i sees key c of block j."""


def block_mask(mask: Float[Tensor, "1 1 new slots"] | Bool[Tensor, "1 1 new slots"], block: int = 32) -> BlockMask:
    """The blocks of a mask: True or 0 where a query sees a key. On the mask's device, with no read from it.

    Made once for each mask, which must not be changed afterwards. Blocks at the edges are filled up: queries that there
    are not do not make a block partial, keys that there are not do.
    """
    made = _memo.setdefault(mask, {})
    if block not in made:
        made[block] = _made(mask[0, 0] if mask.dtype == torch.bool else mask[0, 0] == 0, block)
    found: BlockMask = made[block]
    return found


def _made(visible: Bool[Tensor, "new slots"], block: int) -> BlockMask:
    rows, slots = visible.shape
    padded = pad(visible, (0, -slots % block, 0, -rows % block))
    by_block = padded.unflatten(1, (-1, block))  # [padded_rows, column_blocks, block]
    seen = by_block.sum(-1, dtype=torch.int32).unflatten(0, (-1, block)).sum(1)
    first_rows = torch.arange(0, rows, block, device=visible.device)
    real_rows = (rows - first_rows).clamp(max=block)
    full = seen == (real_rows * block)[:, None]
    order = torch.argsort((seen == 0).byte(), dim=-1, stable=True)
    listed = (2 * order + full.gather(1, order)).int()
    words = (by_block * _bits(block, visible.device)).sum(-1, dtype=_bits(block, visible.device).dtype)
    return BlockMask(block, rows, slots, listed, (seen > 0).sum(-1, dtype=torch.int32), words.T.contiguous())


def _bits(block: int, device: torch.device) -> Int[Tensor, " block"]:
    """The number that each bit of a word stands for; the highest is the sign."""
    kind = torch.int64 if block == 64 else torch.int32
    return torch.ones(block, dtype=kind, device=device) << torch.arange(block, dtype=kind, device=device)
