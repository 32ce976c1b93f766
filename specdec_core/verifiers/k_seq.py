"""SpecTr's K sequential selection (Sun et al., 2023, Algorithm 2)."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from specdec_core.verifiers.rounds import EPS, ChildByChild, Rounds

_BISECTIONS = 50


class KSeq(ChildByChild):
    """Accept each of the k children with min(1, p(x) / (rho q(x))), rho in [1, k] as small as p allows."""

    lossless_for = frozenset({"iid"})

    def rounds(
        self, p: Float[Tensor, " vocab"], q: Float[Tensor, " vocab"], children: Int[Tensor, " children"]
    ) -> Rounds:
        """The residual max(p - min(q, p / rho) P / beta, 0), normalised, does not depend on the rejected children."""
        k = children.shape[0]
        p, q = p.double() / p.double().sum(), q.double() / q.double().sum()
        rho = _solve(p, q, k)
        wanted, drawn = p[children], q[children]
        accept = torch.where(drawn > 0, wanted / (rho * drawn), 0.0).clamp_(max=1)
        overlap = torch.minimum(q, p / rho)
        beta = overlap.sum().clamp(max=1)
        found = 1 - (1 - beta) ** k
        rest = (p - torch.where(beta > 0, overlap * (found / beta), 0.0)).clamp_(min=0)
        left = rest.sum()
        residual = torch.where(left < EPS, p, rest / left)
        return Rounds(torch.where(left < EPS, (wanted > 0) & (drawn > 0), accept), residual)


def solve_rho(p: Float[Tensor, " vocab"], q: Float[Tensor, " vocab"], k: int) -> float:
    """The root of 1 - (1 - beta)^k = rho beta in [1, k], beta = sum min(q, p / rho), from above."""
    return float(_solve(p.double(), q.double(), k))


def _solve(p: Float[Tensor, " vocab"], q: Float[Tensor, " vocab"], k: int) -> Float[Tensor, ""]:
    """Bisection without a read from the device; the upper end keeps the residual non-negative."""
    low, high = p.new_ones(()), p.new_full((), k)
    for _ in range(_BISECTIONS if k > 1 else 0):
        middle = (low + high) / 2
        beta = torch.minimum(q, p / middle).sum().clamp(max=1)
        valid = middle * beta >= 1 - (1 - beta) ** k
        low, high = torch.where(valid, low, middle), torch.where(valid, middle, high)
    return high
