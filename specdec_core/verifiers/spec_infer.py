"""SpecInfer's multi-step speculative sampling (Miao et al., 2024, Algorithm 2)."""

from jaxtyping import Float, Int
from torch import Tensor

from specdec_core.verifiers.rounds import ChildByChild, Rounds, multi_round


class SpecInfer(ChildByChild):
    """Rounds against the unchanged q, for children that were drawn independently."""

    lossless_for = frozenset({"iid"})

    def rounds(
        self, p: Float[Tensor, " vocab"], q: Float[Tensor, " vocab"], children: Int[Tensor, " children"]
    ) -> Rounds:
        """Each child meets the residual that the rejected ones left."""
        return multi_round(p, q, children, remove=False)
