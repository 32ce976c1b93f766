"""What the decode loop asks of a target: a loaded model, or a recording of one."""

from collections.abc import Collection
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from specdec_core.layout import Layout
from specdec_core.models.causal_lm import Layers, ModelOutput


@runtime_checkable
class Committed(Protocol):
    """The tokens that a target has read and keeps."""

    length: int

    def truncate(self, length: int) -> None:
        """Forget what stands behind so many tokens."""

    def commit(self, start: int, kept: Tensor) -> None:
        """Of the tokens from slot `start` on keep those at the offsets `kept`."""


@runtime_checkable
class Target(Protocol):
    """Reads a prompt, then trees behind it."""

    vocab_size: int
    max_positions: int | None
    keep_hidden: Layers
    eos_token_ids: Collection[int]

    @property
    def cache(self) -> Committed:
        """What it has read."""

    @property
    def device(self) -> torch.device:
        """Where its tokens are."""

    @property
    def dtype(self) -> torch.dtype:
        """Of its masks and features."""

    def reset(self, capacity: int) -> None:
        """Begin a text of so many tokens."""

    def prefill(self, tokens: Tensor) -> ModelOutput:
        """Read a prompt; logits of its last token alone."""

    def __call__(self, tokens: Tensor, layout: Layout) -> ModelOutput:
        """Read a tree; a row per node."""
