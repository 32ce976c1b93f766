"""Sequoia's rule for children drawn without replacement (Chen et al., 2024, Algorithm 1)."""

from jaxtyping import Float, Int
from torch import Tensor

from specdec_core.verifiers.rounds import ChildByChild, Rounds, multi_round


class WithoutReplacement(ChildByChild):
    """Rounds in which a rejected token leaves q; behind q's support the draft is uniform (`uniform_fallback`).

    It has the optimal transport property (one child) and the cover property (as many children as q has tokens), which
    SpecInfer's and SpecTr's rules have not both (Theorem 3.7).
    """

    lossless_for = frozenset({"without_replacement"})

    def __init__(self, *, uniform_fallback: bool = True) -> None:
        self.uniform_fallback = uniform_fallback

    def rounds(
        self, p: Float[Tensor, " vocab"], q: Float[Tensor, " vocab"], children: Int[Tensor, " children"]
    ) -> Rounds:
        """Each child meets the residual and the draft that the rejected ones left."""
        return multi_round(p, q, children, remove=True, uniform_fallback=self.uniform_fallback)
