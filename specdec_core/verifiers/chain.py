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
        """PairError for a tree that branches, but for the first tokens below a virtual root, which are not judged."""
        walker = super().walker(tree, target, sampling, rng)
        judged = 0 if target.root_probs is None else 1
        _check(max((len(below) for node, below in walker.children.items() if node >= judged), default=0))
        return walker


def _check(num_children: int) -> None:
    if num_children > 1:
        raise PairError(f"verifier=chain judges one child per node, not {num_children}; draft a chain")
