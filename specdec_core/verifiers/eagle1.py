"""The rule of EAGLE-1 (Li et al., 2024, section 4.3 and its released code)."""

from jaxtyping import Float, Int
from torch import Tensor

from specdec_core.verifiers.rounds import ChildByChild, Rounds, multi_round


class Eagle1(ChildByChild):
    """Rounds against q without the siblings rejected before, renormalised; a sibling that q has not is passed over.

    In law this is multi-candidate decoding without replacement: EAGLE draws its children so when it samples. Its fixed
    tree with top-k children is lossy under this rule, and refused.
    """

    lossless_for = frozenset({"without_replacement"})

    def rounds(
        self, p: Float[Tensor, " vocab"], q: Float[Tensor, " vocab"], children: Int[Tensor, " children"]
    ) -> Rounds:
        """Each child meets the residual and the draft that the rejected ones left."""
        return multi_round(p, q, children, remove=True)
