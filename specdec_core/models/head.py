"""A head: it drafts from the target's own features, and is no language model without them."""

from abc import ABC, abstractmethod
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from specdec_core.cache import KVCache
from specdec_core.models.causal_lm import FINAL, Layers, ModelOutput


class Head(ABC):
    """What all heads have in common for whoever times or measures one; each has a draft model that drafts with it."""

    layers: Layers = FINAL
    """Of which of the target's layers it reads features, side by side."""
    config: Any
    vocab_size: int
    """The target's: tokens that it does not know have probability 0."""
    max_positions: int | None
    cache: KVCache

    @property
    @abstractmethod
    def device(self) -> torch.device:
        """Where token ids and features go in and logits come out."""

    @property
    @abstractmethod
    def dtype(self) -> torch.dtype:
        """Of weights, features and mask."""

    @abstractmethod
    def reset(self, capacity: int) -> None:
        """Empty the cache and make room for `capacity` tokens; it grows if that was too little."""

    @abstractmethod
    def along(
        self, tokens: Int[Tensor, " text"], features: Float[Tensor, "text features"]
    ) -> Float[Tensor, "read vocab"]:
        """Logits behind each token of a text but the first, as they are at a root, given the target's features."""

    @abstractmethod
    def blank(self, tokens: Int[Tensor, " new"]) -> ModelOutput:
        """A forward over plain successive tokens with features of zero, appended to the cache: what it costs."""
