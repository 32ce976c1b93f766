"""Speculative sampling of a single sequence (Leviathan et al., 2023; Chen et al., 2023)."""

from jaxtyping import Float
from torch import Generator, Tensor

from specdec_core.errors import PairError
from specdec_core.models.causal_lm import ModelOutput
from specdec_core.sampling import Sampling
from specdec_core.tree import TokenTree
from specdec_core.verifiers.multi_round import InRounds
from specdec_core.verifiers.rounds import State, Walker


class Chain(InRounds):
    """Accept x with min(1, p(x) / q(x)), else draw from norm(max(p - q, 0)). Refuses nodes with several children."""

    lossless_for = frozenset({"iid", "without_replacement"})
    remove = False

    def begin(self, p: Float[Tensor, "*batch vocab"], q: Float[Tensor, "*batch vocab"], num_children: int) -> State:
        """PairError for more than one child."""
        _check(num_children)
        return super().begin(p, q, num_children)

    def walker(self, tree: TokenTree, target: ModelOutput, sampling: Sampling, rng: Generator) -> Walker:
        """PairError for a tree that branches anywhere."""
        walker = super().walker(tree, target, sampling, rng)
        _check(max(map(len, walker.children.values())))
        return walker


def _check(num_children: int) -> None:
    if num_children > 1:
        raise PairError(f"verifier=chain judges one child per node, not {num_children}; draft a chain")
