"""The mask of a tree of any shape, from its parents alone."""

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from specdec_core.layout import Layout, tree_layout


class GrownMask:
    """Who sees whom in one tree, found by pointer doubling: log2(nodes) tensor operations."""

    def __init__(self, parents: Int[Tensor, " nodes"]) -> None:
        """`parents[i] < i`, -1 at the root."""
        self._parents = parents
        self._seen: Tensor | None = None

    @property
    def ancestors(self) -> Bool[Tensor, "nodes nodes"]:
        """Row i marks node i and its ancestors."""
        if self._seen is None:
            seen = torch.eye(self._parents.shape[0], dtype=torch.bool, device=self._parents.device)
            for jump in jumps(self._parents):
                seen = seen | seen[jump]
            self._seen = seen
        return self._seen

    @property
    def depths(self) -> Int[Tensor, " nodes"]:
        """Edges from the root."""
        return self.ancestors.sum(-1) - 1

    def layout(self, first: int, *, prefix: int, dtype: torch.dtype, max_positions: int | None = None) -> Layout:
        """Of all nodes, or, where `first` is 1, of all but the root, which is the last of `prefix` cached tokens."""
        visible, depths = self.ancestors[first:, first:], self.depths[first:] - first
        return tree_layout(visible, depths, prefix=prefix, max_positions=max_positions, dtype=dtype)


def jumps(parents: Int[Tensor, " nodes"]) -> list[Tensor]:
    """Ancestors at distance 1, 2, 4, ... of every node; the root jumps to itself."""
    jump, found = parents.clamp(min=0), []
    for _ in range((parents.shape[0] - 1).bit_length()):
        found.append(jump)
        jump = jump[jump]
    return found
