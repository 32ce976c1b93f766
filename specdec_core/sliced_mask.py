"""The attention mask of the largest tree of a family, made once; smaller ones are views of it (Lu et al., 2024, 3.2).

Nodes stand level by level. A tree that ends early is the first nodes of the largest one, and its mask the upper left
corner of the largest one's; a forward over one level reads some rows of it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from specdec_core.layout import Layout, masked

LEAD = 1
"""Tokens before the root that may be read together with it."""
ROOM = 1024
"""Cached tokens before the tree for which a mask has columns, or a multiple; where they run out it is made anew."""
ALIGNMENT = 8
"""Views begin, and rows follow one another, at multiples of so many entries: attention on a GPU copies other masks."""


class SlicedMask:
    """Masks and positions of trees whose nodes are the first ones of one largest tree, root at node 0."""

    def __init__(self, parents: Sequence[int]) -> None:
        """`parents[i] < i` is the parent of node i, -1 the root's."""
        seen = torch.eye(len(parents), dtype=torch.bool)
        for node, parent in enumerate(parents[1:], 1):
            seen[node, :node] = seen[parent, :node]
        depths = torch.cat((torch.arange(-LEAD, 0), seen.sum(-1) - 1))
        self._sees_all = (seen.sum(-1) == torch.arange(1, len(parents) + 1)).tolist()
        self._num_nodes = len(parents)
        self._on = {seen.device: (seen, depths)}
        self._made: dict[tuple[torch.device, torch.dtype, int], tuple[Float[Tensor, "rows columns"], int]] = {}

    def ancestors(self, nodes: int, device: torch.device) -> Bool[Tensor, "nodes nodes"]:
        """Row i marks node i and its ancestors, in the tree of the first `nodes`: a view."""
        return self._there(device)[0][:nodes, :nodes]

    def depths(self, nodes: int, device: torch.device) -> Int[Tensor, " nodes"]:
        """Edges from the root of the first `nodes`: a view."""
        return self._there(device)[1][LEAD : LEAD + nodes]

    def prepare(self, room: int, device: torch.device, dtype: torch.dtype) -> None:
        """Make all masks for up to `room` cached tokens before the tree, so that none is made while decoding."""
        for root in range(room, room + ALIGNMENT):
            self._room(root, device, dtype)

    def layout(
        self,
        first: int,
        count: int,
        *,
        prefix: int,
        device: torch.device,
        dtype: torch.dtype,
        max_positions: int | None = None,
    ) -> Layout:
        """Mask (a view) and positions for nodes `first` to `first + count - 1`, behind `prefix` cached tokens.

        The cache holds all that comes before node `first`: the text and the tree's earlier nodes. `first` may be as low
        as `-LEAD`, for tokens of the text before the root; lower is a ValueError. Positions past the model's last are
        clamped.
        """
        if first < -LEAD:
            raise ValueError(f"a forward begins at node {-LEAD} or behind it, not at {first}")
        root = prefix - first
        positions = root + self._there(device)[1][first + LEAD : first + LEAD + count]
        if max_positions is not None:
            positions = positions.clamp(max=max_positions - 1)
        if count == 1 and (first < 0 or self._sees_all[first]):
            return Layout(None, positions[None])
        made, columns = self._room(root, device, dtype)
        rows = made[first + LEAD : first + LEAD + count, columns - root : columns + first + count]
        return masked(rows, positions, first + count)

    def _there(self, device: torch.device) -> tuple[Bool[Tensor, "nodes nodes"], Int[Tensor, " rows"]]:
        """Who sees whom, and depths, on a device."""
        if device not in self._on:
            seen, depths = next(iter(self._on.values()))
            self._on[device] = seen.to(device), depths.to(device)
        return self._on[device]

    def _room(self, root: int, device: torch.device, dtype: torch.dtype) -> tuple[Float[Tensor, "rows columns"], int]:
        """The additive mask of all nodes, and its number of columns before the root's, `root` of them at least."""
        key, nodes = (device, dtype, root % ALIGNMENT), self._num_nodes
        if key not in self._made or self._made[key][1] < root:
            columns = -(-max(ROOM, root) // ROOM) * ROOM + root % ALIGNMENT
            width = -(-(columns + nodes) // ALIGNMENT) * ALIGNMENT
            made = torch.zeros(LEAD + nodes, width, dtype=dtype, device=device)
            made[LEAD:, columns : columns + nodes].masked_fill_(~self.ancestors(nodes, device), -torch.inf)
            for row in range(LEAD):
                made[row, columns - LEAD + row + 1 :] = -torch.inf
            self._made[key] = made, columns
        return self._made[key]


@dataclass(frozen=True, slots=True)
class Part:
    """The mask of the tree of the first `nodes`, on a device: views."""

    whole: SlicedMask
    nodes: int
    device: torch.device

    @property
    def ancestors(self) -> Bool[Tensor, "nodes nodes"]:
        """Row i marks node i and its ancestors."""
        return self.whole.ancestors(self.nodes, self.device)

    @property
    def depths(self) -> Int[Tensor, " nodes"]:
        """Edges from the root."""
        return self.whole.depths(self.nodes, self.device)

    def layout(self, first: int, *, prefix: int, dtype: torch.dtype, max_positions: int | None = None) -> Layout:
        """Of all nodes from `first` on, behind `prefix` cached tokens."""
        count, device = self.nodes - first, self.device
        return self.whole.layout(first, count, prefix=prefix, device=device, dtype=dtype, max_positions=max_positions)
