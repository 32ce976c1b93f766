"""Block verification of a single sequence (Sun et al., 2024, arXiv 2403.10444)."""

from specdec_core.errors import PairError
from specdec_core.verifiers.traversal import Children, Traversal


class Block(Traversal):
    """Accept the longest prefix x_1..x_i whose coin is below h_i: tokens are judged together, not one by one.

    P_i = min(1, P_{i-1} p(x_i) / q(x_i)) from P_0 = 1, and S_i is the sum of max(P_i p - q, 0) over the next token.
    h_i = S_i / (S_i + 1 - P_i), and P_i at the end (Algorithm 2). The next token is drawn from norm(max(P_i p - q, 0)),
    behind the whole sequence from p. That is Traversal on a chain. At temperature 0 it accepts what `Chain` does.
    """

    def __init__(self) -> None:
        super().__init__(draws="iid")
        self.lossless_for = frozenset({"iid", "without_replacement"})

    def check(self, children: Children) -> None:
        """PairError for a tree that branches."""
        if (most := max(map(len, children.values()))) > 1:
            raise PairError(f"verifier=block judges one child per node, not {most}; draft a chain")
