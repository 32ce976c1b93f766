"""The rule of EAGLE-1 (Li et al., 2024, section 4.3 and its released code)."""

from jaxtyping import Float
from torch import Tensor

from specdec_core.verifiers.multi_round import MultiRound
from specdec_core.verifiers.rounds import ChildByChild, State


class Eagle1(ChildByChild):
    """Rounds against q without the siblings rejected before, renormalised; a sibling that q has not is passed over.

    In distribution this is multi-candidate decoding without replacement: EAGLE draws its children so when it samples.
    Its fixed tree with top-k children is lossy under this rule, and refused.
    """

    lossless_for = frozenset({"without_replacement"})

    def begin(self, p: Float[Tensor, "*batch vocab"], q: Float[Tensor, "*batch vocab"], num_children: int) -> State:
        """Each child meets the residual and the draft that the rejected ones left."""
        return MultiRound(p, q, remove=True)
