"""From a tree and the length of the cached prefix to what a forward needs: attention mask and position ids."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

_tree_slots: WeakIdKeyDictionary = WeakIdKeyDictionary()
"""Of masks that are still alive."""


@dataclass(frozen=True, slots=True)
class Layout:
    """How the new tokens of one forward see the cache and one another."""

    mask: Float[Tensor, "1 1 new slots"] | None
    """Additive: 0 where a token (row) sees a cache slot (column), -inf elsewhere. The new tokens are the last slots.
    None for a single token that sees everything: attention without a mask copies no keys and values."""
    positions: Int[Tensor, "1 new"]
    """Position ids."""


def tree_slots(mask: Float[Tensor, "1 1 new slots"]) -> int | None:
    """How many of a layout's last slots are the tree's; all before them are seen by every token. None: not known."""
    found: int | None = _tree_slots.get(mask)
    return found


def masked(mask: Float[Tensor, "new slots"], positions: Int[Tensor, " new"], slots: int) -> Layout:
    """A layout whose tree begins `slots` before the mask's end."""
    whole = mask[None, None]
    _tree_slots[whole] = slots
    return Layout(whole, positions[None])


def tree_layout(
    visible: Bool[Tensor, "new drafted"],
    depths: Int[Tensor, " new"],
    *,
    prefix: int,
    max_positions: int | None = None,
    dtype: torch.dtype = torch.float32,
) -> Layout:
    """Tokens of a tree behind `prefix` cached tokens, all of which they see.

    `visible` says which slots behind the prefix each of them sees: its ancestors and itself. A token at depth d stands
    at position `prefix + d`, where d counts from the first slot behind the prefix. Positions past the model's last are
    clamped: a node there lies beyond any output that fits, so that its logits are never used.
    """
    new, drafted = visible.shape
    positions = prefix + depths
    if max_positions is not None and prefix + drafted > max_positions:
        positions = positions.clamp(max=max_positions - 1)
    if drafted == 1:
        return Layout(None, positions[None])
    slots = prefix + drafted
    aligned = torch.zeros(new, -(-slots // 8) * 8, dtype=dtype, device=visible.device)  # else each layer copies it
    mask = aligned[:, :slots]
    mask[:, prefix:].masked_fill_(~visible, -torch.inf)
    return masked(mask, positions, drafted)


def causal_layout(
    new: int, *, prefix: int, device: torch.device, max_positions: int | None = None, dtype: torch.dtype = torch.float32
) -> Layout:
    """A plain continuation: each of the `new` tokens sees the prefix, the new ones before it and itself."""
    visible = torch.ones(new, new, dtype=torch.bool, device=device).tril_()
    depths = torch.arange(new, device=device)
    return tree_layout(visible, depths, prefix=prefix, max_positions=max_positions, dtype=dtype)
