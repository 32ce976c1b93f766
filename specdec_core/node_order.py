"""The order of a tree's nodes in a forward, and what it costs block-sparse attention (DySpec, appendix C)."""

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from specdec_core.tree import TokenTree

NODE_ORDERS = ("creation", "dfs", "heavy_path")
"""As they were drafted; depth first, children in draft order; depth first, the child of the largest subtree first."""


def node_order(tree: TokenTree, name: str) -> Int[Tensor, " nodes"]:
    """Which node stands at each place; parents come before their children in every order.

    Preorder places are sums along paths: a node stands behind its parent, its earlier siblings and their subtrees.
    O(nodes^2) tensor operations, no read from the device. ValueError for an unknown name.
    """
    if name not in NODE_ORDERS:
        raise ValueError(f"node_order must be one of {', '.join(NODE_ORDERS)}, not {name!r}")
    index = torch.arange(tree.num_nodes, device=tree.tokens.device)
    if name == "creation":
        return index
    visible = tree.ancestor_mask
    sizes = visible.sum(0)
    rank = index if name == "dfs" else torch.argsort(-sizes, stable=True).argsort()
    siblings = tree.parents[:, None] == tree.parents
    earlier = siblings & (rank < rank[:, None])
    behind_parent = 1 + torch.where(earlier, sizes, 0).sum(-1)
    behind_parent[0] = 0
    return torch.where(visible, behind_parent, 0).sum(-1).argsort()


def reordered(tree: TokenTree, order: Int[Tensor, " nodes"]) -> TokenTree:
    """The same tree, node `order[i]` at place i; siblings may no longer stand in draft order.

    `order` is a permutation in which parents come first; the laws keep their rows.
    """
    place = order.argsort()
    parents = tree.parents[order]
    parents = torch.where(parents < 0, -1, place[parents.clamp(min=0)])
    rows = None if tree.draft_rows is None else tree.draft_rows[order]
    return TokenTree(tree.tokens[order], parents, tree.edge_probs[order], tree.draft_probs, rows)


def block_map(visible: Bool[Tensor, "rows columns"], block: int) -> Bool[Tensor, "row_blocks column_blocks"]:
    """Which blocks of `block` rows and columns have an entry that is seen; the last ones may be smaller."""
    rows, columns = (-size % block for size in visible.shape)
    padded = torch.nn.functional.pad(visible, (0, columns, 0, rows))
    return padded.unflatten(1, (-1, block)).unflatten(0, (-1, block)).any(3).any(1)


def block_count(visible: Bool[Tensor, "nodes nodes"], block: int, prefix: int | None = None) -> Int[Tensor, ""]:
    """Blocks that attention over a tree has to read.

    Without `prefix` those of the nodes among themselves; with it key blocks count from the first of `prefix` cached
    tokens, which every node sees, so that one of them may hold both.
    """
    if prefix:
        visible = torch.nn.functional.pad(visible, (prefix, 0), value=True)
    return block_map(visible, block).sum()
