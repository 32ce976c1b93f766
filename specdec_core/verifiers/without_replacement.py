"""Sequoia's rule for children drawn without replacement (Chen et al., 2024, Algorithm 1)."""

from jaxtyping import Float
from torch import Tensor

from specdec_core.verifiers.multi_round import MultiRound
from specdec_core.verifiers.rounds import ChildByChild, State


class WithoutReplacement(ChildByChild):
    """Rounds in which a rejected token leaves q; behind q's support the draft is uniform (`uniform_fallback`).

    It has the optimal transport property (one child) and the cover property (as many children as q has tokens), which
    SpecInfer's and SpecTr's rules have not both (Theorem 3.7).
    """

    lossless_for = frozenset({"without_replacement"})

    def __init__(self, *, uniform_fallback: bool = True) -> None:
        self.uniform_fallback = uniform_fallback

    def begin(self, p: Float[Tensor, "*batch vocab"], q: Float[Tensor, "*batch vocab"], num_children: int) -> State:
        """Each child meets the residual and the draft that the rejected ones left."""
        return MultiRound(p, q, remove=True, uniform_fallback=self.uniform_fallback)
