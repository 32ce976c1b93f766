"""SpecInfer's multi-step speculative sampling (Miao et al., 2024, Algorithm 2)."""

from jaxtyping import Float
from torch import Tensor

from specdec_core.verifiers.multi_round import MultiRound
from specdec_core.verifiers.rounds import ChildByChild, State


class SpecInfer(ChildByChild):
    """Rounds against the unchanged q, for children that were drawn independently."""

    lossless_for = frozenset({"iid"})

    def begin(self, p: Float[Tensor, "*batch vocab"], q: Float[Tensor, "*batch vocab"], num_children: int) -> State:
        """Each child meets the residual that the rejected ones left."""
        return MultiRound(p, q, remove=False)
