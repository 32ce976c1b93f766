"""Multi-candidate speculative decoding (Yang et al., 2024), with and without replacement."""

from jaxtyping import Float, Int
from torch import Tensor

from specdec_core.verifiers.rounds import ChildByChild, Rounds, multi_round


class MultiCandidate(ChildByChild):
    """With `replacement` SpecInfer's rule, without it rounds in which a rejected token leaves q.

    There is no fallback: children drawn when q's support was exhausted are never accepted.
    """

    def __init__(self, *, replacement: bool = False) -> None:
        self.replacement = replacement
        self.lossless_for = frozenset({"iid" if replacement else "without_replacement"})

    def rounds(
        self, p: Float[Tensor, " vocab"], q: Float[Tensor, " vocab"], children: Int[Tensor, " children"]
    ) -> Rounds:
        """Each child meets the residual that the rejected ones left."""
        return multi_round(p, q, children, remove=not self.replacement)
