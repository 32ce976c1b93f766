"""What draft models with a key-value cache share: the mask of a tree that grows layer by layer."""

import torch
from jaxtyping import Bool, Int
from torch import Tensor
from torch.nn import functional as F

from specdec_core.drafters.base import Context
from specdec_core.layout import Layout, tree_layout
from specdec_core.models.causal_lm import CausalLM, Layers
from specdec_core.models.eagle import EagleHead
from specdec_core.sending import sent
from specdec_core.sliced_mask import LEAD, SlicedMask
from specdec_core.timing import Clock

ROOM = 2048
"""Cache slots beyond the prompt, for answers and trees; the cache grows if they do not suffice."""


class CachedDraft:
    """The nodes of the present tree in the draft's cache: which see which, and where they begin."""

    needs_hidden: Layers = ()
    max_depth: int | None = None

    def __init__(self, model: CausalLM | EagleHead) -> None:
        self._model = model
        self.vocab_size, self.max_positions = model.vocab_size, model.max_positions
        self._clock = Clock(model.device)
        self._start = 0  # length of the cache once the root is in it: slot 0 of the tree
        self._num_slots = 0  # nodes below the root that the model has read
        # rows of all slots, and behind them zeros; the last row is the root's (-1), which sees no slot
        self._visible = torch.zeros(257, 256, dtype=torch.bool, device=model.device)
        self.sliced: SlicedMask | None = None
        """Masks of the largest tree, where the drafter knows it and gives its nodes in order, level by level."""

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return self._model.device

    def _unread(self, context: Context, start: int) -> Int[Tensor, " new"]:
        """Committed tokens from position `start` on."""
        return sent(torch.tensor(context.tokens[start:], dtype=torch.long), self.device)

    def _begin_tree(self, context: Context, first: int = 0) -> None:
        """The cache ends in the root, or in the `first` nodes right below it."""
        self._clock, self._start = context.clock, self._model.cache.length - first
        if self.sliced is None:
            self._visible[: self._num_slots, : self._num_slots] = False
            self._make_room(first)
            self._visible[:first, :first].fill_diagonal_(True)
        self._num_slots = first

    def _layout(self, parents: Int[Tensor, " new"]) -> Layout:
        """Of one more layer of nodes, each below the slot `parents[i]` (-1: the root)."""
        new, before = parents.shape[0], self._num_slots
        self._num_slots += new
        if sliced := self._sliced_layout(before + 1, new):
            return sliced
        rows, depths = self._grow_mask(parents, before)
        return tree_layout(rows, depths, prefix=self._start, max_positions=self.max_positions, dtype=self._model.dtype)

    def slice_masks(self, sliced: SlicedMask | None, num_prompt: int) -> None:
        """From now on masks are views of these, made for a prompt and answers of some length; None: they are built."""
        self.sliced = sliced
        self._visible.zero_()
        if sliced is not None:
            sliced.prepare(num_prompt + ROOM, self.device, self._model.dtype)

    def _sliced_layout(self, first: int, count: int) -> Layout | None:
        """Of nodes from `first` on, behind all that the cache holds; None where no mask was made for them."""
        if self.sliced is None or first < -LEAD:
            return None
        return self.sliced.layout(
            first,
            count,
            prefix=self._model.cache.length,
            device=self.device,
            dtype=self._model.dtype,
            max_positions=self.max_positions,
        )

    def _grow_mask(
        self, parents: Int[Tensor, " new"], before: int
    ) -> tuple[Bool[Tensor, "new slots"], Int[Tensor, " new"]]:
        """A node's mask row, which is its parent's and itself, and how many nodes it sees above it."""
        slots = before + parents.shape[0]
        self._make_room(slots)
        rows = self._visible[:, :slots][parents]
        depths = rows.sum(-1)
        rows[:, before:].fill_diagonal_(True)
        self._visible[before:slots, :slots] = rows
        return rows, depths

    def _make_room(self, slots: int) -> None:
        if slots > (room := self._visible.shape[1]):
            more = 2 ** slots.bit_length() - room
            with torch.inference_mode(False):  # it may be written to outside of it
                self._visible = F.pad(self._visible, (0, more, 0, more))
