"""Autoregressive decoding: the loop with nothing drafted."""

import torch
from jaxtyping import Int
from torch import Tensor

from specdec_core.drafters.base import Context, Drafter
from specdec_core.models.causal_lm import ModelOutput
from specdec_core.sampling import NO_DRAWS
from specdec_core.tree import TokenTree


class Autoregressive(Drafter):
    """Returns the bare root, so that the baseline shares loop, clock and stop rules with every method."""

    draws = NO_DRAWS

    def __init__(self) -> None:
        self._device = torch.device("cpu")

    def reset(self, prompt_ids: Int[Tensor, " prompt"], target: ModelOutput) -> None:
        """Nothing to read."""
        self._device = target.logits.device

    def grow(self, context: Context) -> TokenTree:
        """The root alone."""
        return TokenTree.root_only(context.tokens[-1], self._device)
