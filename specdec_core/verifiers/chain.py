"""Speculative sampling of a single sequence (Leviathan et al., 2023; Chen et al., 2023)."""

from jaxtyping import Float, Int
from torch import Tensor

from specdec_core.errors import PairError
from specdec_core.verifiers.rounds import ChildByChild, Rounds, multi_round


class Chain(ChildByChild):
    """Accept x with min(1, p(x) / q(x)), else draw from norm(max(p - q, 0)). Refuses nodes with several children."""

    lossless_for = frozenset({"iid", "without_replacement"})

    def rounds(
        self, p: Float[Tensor, " vocab"], q: Float[Tensor, " vocab"], children: Int[Tensor, " children"]
    ) -> Rounds:
        """PairError for more than one child."""
        if children.shape[0] > 1:
            raise PairError(f"verifier=chain judges one child per node, not {children.shape[0]}; draft a chain")
        return multi_round(p, q, children, remove=False)
