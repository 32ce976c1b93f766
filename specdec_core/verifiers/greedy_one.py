"""The rule for greedily drafted children (Hu et al., 2025, arXiv 2502.18779, and SpecHub for two of them)."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from specdec_core.sampling import top_k, without_best
from specdec_core.verifiers.multi_round import InRounds, MultiRound
from specdec_core.verifiers.rounds import State


class GreedyOne(InRounds):
    """Rounds against q without its best tokens, then against each of these as a point mass.

    The drawn child x is accepted with min(1, p(x) / q'(x)); else a token of norm(max(p - q', 0)) is accepted where it
    is one of the best. No rule accepts more of such children. For two children this is SpecHub (Sun et al., 2024,
    arXiv 2411.05289): a pair of the best token and another has the same law there, and is accepted as often.
    """

    lossless_for = frozenset({"greedy_one"})
    remove, sure = False, True

    def begin(self, p: Float[Tensor, "*batch vocab"], q: Float[Tensor, "*batch vocab"], num_children: int) -> State:
        """The best tokens follow from q: with n children they are n - 1."""
        return _BehindBest(p, q, top_k(q.float(), min(num_children, q.shape[-1]) - 1)[1])


class _BehindBest(MultiRound):
    """D is q without the best tokens; behind each child it is the next of them for sure."""

    def __init__(
        self, p: Float[Tensor, "*batch vocab"], q: Float[Tensor, "*batch vocab"], best: Int[Tensor, "*batch best"]
    ) -> None:
        super().__init__(p, without_best(q, best), remove=False)
        self._left = list(best.unbind(-1))

    def reject(self, child: Int[Tensor, "*batch"]) -> None:
        """Go on with the next of the best tokens."""
        super().reject(child)
        if self._left:
            self._drawn = torch.zeros_like(self._wanted).scatter_(-1, self._left.pop(0)[..., None], 1.0)
            self._drawn_sum = torch.ones_like(self._drawn_sum)
