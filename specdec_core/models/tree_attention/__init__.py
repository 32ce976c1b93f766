"""Attention of a forward over a tree: only the blocks of the mask in which something is seen are read."""

from specdec_core.models.tree_attention.blocks import BLOCKS, BlockMask, block_mask
from specdec_core.models.tree_attention.dense import dense_attention
from specdec_core.models.tree_attention.interface import DENSE, TRITON, check_attention

__all__ = ["BLOCKS", "DENSE", "TRITON", "BlockMask", "block_mask", "check_attention", "dense_attention"]
