"""The rule that lets the target sample and looks whether the draft had guessed it."""

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor

from specdec_core.sampling import draw_tokens
from specdec_core.verifiers.base import ALL_DRAWS
from specdec_core.verifiers.rounds import ChildByChild, State


class TargetSample(ChildByChild):
    """Draw one token from p; accept the child that has it (OPT-Tree, section 4.1; "naive sampling").

    The token is drawn without looking at the children, so the output distribution is p for any draft. At temperature 0
    this is greedy verification.
    """

    lossless_for = ALL_DRAWS
    reads_q = False

    def begin(self, p: Float[Tensor, "*batch vocab"], q: Float[Tensor, "*batch vocab"], num_children: int) -> State:
        """The same rule child by child."""
        return _Remaining(p)

    def choose(
        self,
        p: Float[Tensor, " vocab"],
        q: Float[Tensor, " vocab"] | None,
        children: Int[Tensor, " children"],
        rng: Generator,
    ) -> int | Float[Tensor, " vocab"]:
        """One draw from p: the first child that has it, else the token itself as a one-hot distribution."""
        token = draw_tokens(p, 1, rng)
        found = (children == token).tolist()
        return found.index(True) if True in found else torch.zeros_like(p).index_fill_(0, token, 1.0)


class _Remaining:
    """Accept x with what p has left for it; a repeated token has nothing left."""

    def __init__(self, p: Float[Tensor, "*batch vocab"]) -> None:
        self._left = p.double() / p.double().sum(-1, keepdim=True)

    def accept(self, child: Int[Tensor, "*batch"]) -> Float[Tensor, "*batch"]:
        return self._left.gather(-1, child[..., None])[..., 0].clamp(max=1)

    def reject(self, child: Int[Tensor, "*batch"]) -> None:
        left = self._left.scatter(-1, child[..., None], 0.0)
        total = left.sum(-1, keepdim=True)
        self._left = torch.where(total > 0, left / total, self._left)

    def residual(self) -> Float[Tensor, "*batch vocab"]:
        return self._left
