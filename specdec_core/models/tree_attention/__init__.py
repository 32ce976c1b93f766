"""Attention of a forward over a tree: by the blocks of its mask, or the cached prefix and the tree apart."""

from specdec_core.models.tree_attention.blocks import BLOCKS, BlockMask, block_mask
from specdec_core.models.tree_attention.dense import dense_attention
from specdec_core.models.tree_attention.interface import DENSE, SPLIT, TRITON, check_attention, has_interface
from specdec_core.models.tree_attention.split import split_attention

__all__ = [
    "BLOCKS",
    "DENSE",
    "SPLIT",
    "TRITON",
    "BlockMask",
    "block_mask",
    "check_attention",
    "dense_attention",
    "has_interface",
    "split_attention",
]
