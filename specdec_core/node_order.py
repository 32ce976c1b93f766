"""The order of a tree's nodes in a forward, and what it costs block-sparse attention (DySpec, appendix C)."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Int, Shaped
from torch import Tensor

from specdec_core.tree import TokenTree

NODE_ORDERS = ("creation", "dfs", "heavy_path")
"""As they were drafted; depth first, children in draft order; depth first, the child of the largest subtree first."""


@dataclass(frozen=True, slots=True, eq=False)
class Placed:
    """A tree as a forward reads it, and the way back to the order in which it was drafted."""

    tree: TokenTree
    """Its nodes in the order of the forward."""
    places: Int[Tensor, " nodes"] | None
    """Where each drafted node stands in the forward; None: where it was drafted."""

    def restored(self, rows: Shaped[Tensor, "nodes ..."]) -> Shaped[Tensor, "nodes ..."]:
        """Rows of the forward's nodes in the order in which they were drafted."""
        return rows if self.places is None else rows[self.places]

    def slots(self, path: Int[Tensor, " path"]) -> Int[Tensor, " path"]:
        """Where the nodes of a path stand: on the host like the path, or on the tree's device if they were moved."""
        return path if self.places is None else self.places[path]


def placed(tree: TokenTree, name: str) -> Placed:
    """A tree in the order of this name; nothing is computed for `creation` or a bare root."""
    if name == "creation" or tree.num_nodes == 1:
        return Placed(tree, None)
    order = node_order(tree, name)
    return Placed(reordered(tree, order), order.argsort())


def node_order(tree: TokenTree, name: str) -> Int[Tensor, " nodes"]:
    """Which node stands at each place; parents come before their children in every order.

    Preorder places are sums along paths: a node stands behind its parent, its earlier siblings and their subtrees. No
    read from the device. ValueError for an unknown name.
    """
    if name not in NODE_ORDERS:
        raise ValueError(f"node_order must be one of {', '.join(NODE_ORDERS)}, not {name!r}")
    index = torch.arange(tree.num_nodes, device=tree.tokens.device)
    if name == "creation":
        return index
    sizes = tree.ancestor_mask.sum(0)  # of the subtrees
    rank = index if name == "dfs" else torch.argsort(-sizes, stable=True).argsort()
    behind_parent = 1 + _earlier_siblings(tree.parents, rank, sizes)
    behind_parent[:1] = 0
    return tree.along_paths(behind_parent, torch.add).argsort()


def heap_order(tree: TokenTree) -> Int[Tensor, " nodes"]:
    """The order in which DySpec's Algorithm 1 would create the nodes: by falling value of their sampling sites.

    The value of a node is the probability that its parent is reached and no earlier sibling drawn there. No forward
    needs this order: it is the one that the paper's are set against.
    """
    edges = tree.required_edge_probs.double()
    before = _earlier_siblings(tree.parents, torch.arange(tree.num_nodes, device=edges.device), edges)
    values = tree.along_paths(edges, torch.mul)[tree.parents.clamp(min=0)] * (1 - before)
    return torch.argsort(-tree.along_paths(values, torch.minimum), stable=True)


def _earlier_siblings(
    parents: Int[Tensor, " nodes"], rank: Int[Tensor, " nodes"], values: Shaped[Tensor, " nodes"]
) -> Shaped[Tensor, " nodes"]:
    """Sum of the values of each node's siblings of smaller rank."""
    side_by_side = (parents * len(parents) + rank).argsort()
    parents, values = parents[side_by_side], values[side_by_side]
    before = values.cumsum(0) - values
    among_siblings = before - before[torch.searchsorted(parents, parents)]
    return torch.empty_like(values).scatter_(0, side_by_side, among_siblings)


def reordered(tree: TokenTree, order: Int[Tensor, " nodes"]) -> TokenTree:
    """The same tree, node `order[i]` at place i; siblings may no longer stand in draft order.

    `order` is a permutation in which parents come first; the distributions keep their rows.
    """
    place = order.argsort()
    parents = tree.parents[order]
    parents = torch.where(parents < 0, -1, place[parents.clamp(min=0)])
    edges, rows = (None if column is None else column[order] for column in (tree.edge_probs, tree.draft_rows))
    return TokenTree(tree.tokens[order], parents, edges, tree.draft_probs, rows)


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
