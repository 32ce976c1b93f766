"""The rule that lets the target sample and looks whether the draft had guessed it."""

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor

from specdec_core.sampling import draw_tokens
from specdec_core.verifiers.base import ALL_DRAWS
from specdec_core.verifiers.rounds import ChildByChild, Rounds


class TargetSample(ChildByChild):
    """Draw one token from p; accept the child that has it (OPT-Tree, section 4.1; "naive sampling").

    The token is drawn without looking at the children, so the output law is p for any draft. At temperature 0 this is
    greedy verification.
    """

    lossless_for = ALL_DRAWS

    def rounds(
        self, p: Float[Tensor, " vocab"], q: Float[Tensor, " vocab"] | None, children: Int[Tensor, " children"]
    ) -> Rounds:
        """The same rule child by child: accept x with what p has left for it; a repeated token has nothing left."""
        residual, accept = p.double() / p.double().sum(), []
        for child in children.unbind():
            accept.append(residual[child])
            left = residual.index_fill(0, child[None], 0.0)
            total = left.sum()
            residual = torch.where(total > 0, left / total, residual)
        return Rounds(torch.stack(accept).clamp_(max=1), residual)

    def choose(
        self,
        p: Float[Tensor, " vocab"],
        q: Float[Tensor, " vocab"] | None,
        children: Int[Tensor, " children"],
        rng: Generator,
    ) -> tuple[int | None, Float[Tensor, " vocab"]]:
        """One draw from p: the first child that has it, else the token itself as a law."""
        token = draw_tokens(p, 1, rng)
        found = (children == token).tolist()
        return (found.index(True) if True in found else None), torch.zeros_like(p).index_fill_(0, token, 1.0)
