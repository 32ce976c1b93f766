"""Multi-candidate speculative decoding (Yang et al., 2024), with and without replacement."""

from jaxtyping import Float
from torch import Tensor

from specdec_core.verifiers.multi_round import MultiRound
from specdec_core.verifiers.rounds import ChildByChild, State


class MultiCandidate(ChildByChild):
    """With `replacement` SpecInfer's rule, without it rounds in which a rejected token leaves q.

    There is no fallback: children drawn when q's support was exhausted are never accepted.
    """

    def __init__(self, *, replacement: bool = False) -> None:
        self.replacement = replacement
        self.lossless_for = frozenset({"iid" if replacement else "without_replacement"})

    def begin(self, p: Float[Tensor, "*batch vocab"], q: Float[Tensor, "*batch vocab"], num_children: int) -> State:
        """Each child meets the residual that the rejected ones left."""
        return MultiRound(p, q, remove=not self.replacement)
