"""What a planted pair knows: two bigram distributions of low rank, one shared and one of the target's own."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float
from torch import Generator, Tensor

RANK = 256
"""Of each of the two distributions, where the models are wide enough."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Planting:
    """How much target and draft agree."""

    private: float
    """Weight of what the target alone knows, relative to what both know (rho); 0 = they differ by noise alone."""
    seed: int = 0
    spread: float = 6.0
    """Standard deviation of the target's logits: how sure it is."""
    noise: float = 0.05
    """What the layers add to the logits of either model, relative to `spread`: here the context comes in."""


@dataclass(frozen=True, slots=True)
class Matrices:
    """The two matrices of a model that hold its bigrams."""

    embedding: Float[Tensor, "vocab hidden"]
    output: Float[Tensor, "vocab hidden"]


class Bigrams:
    """logits(x | t) = spread * (<u_t, w_x> + private * <v_t, z_x>) / sqrt(1 + private^2) in units of 1 / sqrt(rank).

    u, v, w, z are random unit vectors, drawn on the host, for every token one of each. A model of width H has them in
    orthogonal subspaces of its own; embeddings have H as squared length, so that the norm in front of the output matrix
    changes them no further.
    """

    def __init__(self, planting: Planting, *, vocab: int, rank: int) -> None:
        self.planting, self.seed, self.rank = planting, planting.seed, rank
        rng = Generator().manual_seed(planting.seed)
        drawn = torch.randn(4, vocab, rank, generator=rng)
        self._shared_in, self._private_in, self._shared_out, self._private_out = torch.nn.functional.normalize(
            drawn, dim=-1
        )

    @cached_property
    def _weights(self) -> tuple[float, float]:
        """Standard deviations of the shared and the private logits."""
        private = self.planting.private
        shared = self.planting.spread / (1 + private**2) ** 0.5
        return shared, private * shared

    def target(self, hidden: int) -> Matrices:
        """Both distributions, half of the embedding for each."""
        shared, private = self._subspaces(hidden, 2)
        length, weights = (hidden / 2) ** 0.5, [weight * (2 * self.rank / hidden) ** 0.5 for weight in self._weights]
        return Matrices(
            length * (self._shared_in @ shared + self._private_in @ private),
            weights[0] * self._shared_out @ shared + weights[1] * self._private_out @ private,
        )

    def draft(self, hidden: int) -> Matrices:
        """The shared distribution alone."""
        (shared,) = self._subspaces(hidden, 1)
        weight = self._weights[0] * (self.rank / hidden) ** 0.5
        return Matrices(hidden**0.5 * self._shared_in @ shared, weight * self._shared_out @ shared)

    def projection(self, hidden: int) -> Float[Tensor, "hidden hidden"]:
        """Keeps the shared part of the target's embeddings."""
        shared, _ = self._subspaces(hidden, 2)
        return shared.T @ shared

    def target_writes(self, hidden: int) -> float:
        """Standard deviation of what all layers of a target add to a residual stream of variance 1."""
        return self.planting.noise * (hidden / (2 * self.rank)) ** 0.5

    def draft_writes(self, hidden: int) -> float:
        """The same for a draft."""
        return self.planting.noise * (hidden / self.rank) ** 0.5

    def _subspaces(self, hidden: int, count: int) -> list[Float[Tensor, "rank hidden"]]:
        """Orthonormal rows."""
        rng = Generator().manual_seed(self.seed + 1)
        basis, _ = torch.linalg.qr(torch.randn(hidden, count * self.rank, generator=rng))
        return list(basis.T.split(self.rank))


def draw_bigrams(planting: Planting, hidden: Sequence[int], vocab: int) -> Bigrams:
    """The bigrams for a target of width `hidden[0]` and, if there is one, a draft of width `hidden[1]`."""
    return Bigrams(planting, vocab=vocab, rank=min(RANK, hidden[0] // 2, *hidden[1:]))
