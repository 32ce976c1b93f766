"""Medusa's heads (Cai et al., 2024): each predicts one of the next tokens from the target's last feature alone."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from specdec_core.cache import KVCache
from specdec_core.models.causal_lm import ModelOutput
from specdec_core.models.head import Head


class _Block(nn.Module):
    """x + SiLU(W x + b)."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.linear = nn.Linear(hidden, hidden)

    def forward(self, x: Float[Tensor, "*rows hidden"]) -> Float[Tensor, "*rows hidden"]:
        """The same shape."""
        return x + F.silu(self.linear(x))


def medusa_heads(count: int, blocks: int, hidden: int, vocab: int) -> nn.ModuleList:
    """`count` heads of `blocks` residual blocks and an output matrix (section 2.1.1), named as published ones are."""
    return nn.ModuleList(
        nn.Sequential(*(_Block(hidden) for _ in range(blocks)), nn.Linear(hidden, vocab, bias=False))
        for _ in range(count)
    )


class Medusa(Head):
    """Heads that share a feature: the target's at position i gives head k's distribution of the token at i + 2 + k."""

    max_positions = None

    def __init__(self, heads: nn.ModuleList, config: Any) -> None:
        self.heads, self.config = heads.eval(), config
        *_, self._last = heads.parameters()  # an output matrix
        self.vocab_size = int(self._last.shape[0])
        self.cache = KVCache(0, capacity=0)

    @property
    def device(self) -> torch.device:
        """Where features go in and logits come out."""
        return self._last.device

    @property
    def dtype(self) -> torch.dtype:
        """Of weights and features."""
        return self._last.dtype

    def reset(self, capacity: int) -> None:
        """Nothing is kept but a count."""
        self.cache.truncate(0)

    @torch.inference_mode()
    def __call__(self, feature: Float[Tensor, " hidden"]) -> Float[Tensor, "depths vocab"]:
        """All heads' logits, one forward."""
        return torch.stack([head(feature) for head in self.heads])

    @torch.inference_mode()
    def along(self, tokens: Tensor, features: Tensor) -> Tensor:
        """Those of the first head; the tokens themselves are not read."""
        logits: Tensor = self.heads[0](features[:-1].to(self.device, self.dtype))
        return logits

    def blank(self, tokens: Tensor) -> ModelOutput:
        """One forward, however many tokens."""
        self.cache.advance(tokens.shape[0])
        return ModelOutput(self(torch.zeros(self.config.hidden_size, device=self.device, dtype=self.dtype)))
