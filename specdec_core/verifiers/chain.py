"""Speculative sampling of a single sequence (Leviathan et al., 2023; Chen et al., 2023)."""

from jaxtyping import Float
from torch import Tensor

from specdec_core.errors import PairError
from specdec_core.verifiers.multi_round import MultiRound
from specdec_core.verifiers.rounds import ChildByChild, State


class Chain(ChildByChild):
    """Accept x with min(1, p(x) / q(x)), else draw from norm(max(p - q, 0)). Refuses nodes with several children."""

    lossless_for = frozenset({"iid", "without_replacement"})

    def begin(self, p: Float[Tensor, "*batch vocab"], q: Float[Tensor, "*batch vocab"], num_children: int) -> State:
        """PairError for more than one child."""
        if num_children > 1:
            raise PairError(f"verifier=chain judges one child per node, not {num_children}; draft a chain")
        return MultiRound(p, q, remove=False)
