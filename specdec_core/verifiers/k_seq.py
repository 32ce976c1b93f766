"""SpecTr's K sequential selection (Sun et al., 2023, Algorithm 2)."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from specdec_core.verifiers.multi_round import InRounds
from specdec_core.verifiers.rounds import EPS, State

_STEPS, _NEAR, _TINY = 20, 1e-6, 1e-300


class KSeq(InRounds):
    """Accept each of the k children with min(1, p(x) / (rho q(x))), rho in [1, k] as small as p allows."""

    lossless_for = frozenset({"iid"})
    remove, k_seq = False, True

    def begin(self, p: Float[Tensor, "*batch vocab"], q: Float[Tensor, "*batch vocab"], num_children: int) -> State:
        """Rho depends on the number of children."""
        return _Selection(p, q, num_children)

    def chance(
        self, p: Float[Tensor, "*batch vocab"], q: Float[Tensor, "*batch vocab"], num_children: int
    ) -> Float[Tensor, "*batch"]:
        """Beta: k independent draws from q are all rejected with probability (1 - beta)^k."""
        return _Selection(p, q, num_children).overlap().sum(-1).clamp(max=1)

    def left(
        self, p: Float[Tensor, " vocab"], q: Float[Tensor, " vocab"], shares: Float[Tensor, " 3"], drawn: Sequence[int]
    ) -> Float[Tensor, " vocab"]:
        """`shares` begins with rho."""
        return _Selection(p, q, len(drawn), shares[0]).residual()


class _Selection:
    """The residual max(p - min(q, p / rho) P / beta, 0), normalised, does not depend on the rejected children."""

    def __init__(
        self,
        p: Float[Tensor, "*batch vocab"],
        q: Float[Tensor, "*batch vocab"],
        k: int,
        rho: Float[Tensor, "*batch"] | None = None,
    ) -> None:
        self._p, self._q, self._k = _normalised(p), _normalised(q), k
        self._rho = (solve_rho(self._p, self._q, k) if rho is None else rho)[..., None]
        self._rejected = 0

    def accept(self, child: Int[Tensor, "*batch"]) -> Float[Tensor, "*batch"]:
        """min(1, p(x) / (rho q(x))), whatever was rejected before."""
        wanted, drawn = (probs.gather(-1, child[..., None]) for probs in (self._p, self._q))
        return torch.where(drawn > 0, wanted / (self._rho * drawn), 0.0).clamp_(max=1)[..., 0]

    def reject(self, child: Int[Tensor, "*batch"]) -> None:
        """Nothing changes but what is known of a token that the node yields."""
        self._rejected += 1

    def overlap(self) -> Float[Tensor, "*batch vocab"]:
        """Probability that a child is drawn as x and accepted; its sum is beta."""
        return torch.minimum(self._q, self._p / self._rho)

    def residual(self) -> Float[Tensor, "*batch vocab"]:
        """Where P(reject all) < EPS it is never asked for but by rounding, and p."""
        overlap = self.overlap()
        beta = overlap.sum(-1, keepdim=True)
        share = (1 - (1 - beta) ** self._k) / beta.clamp(min=_TINY)
        rest = torch.addcmul(self._p, overlap, share, value=-1).clamp_(min=0)
        left = rest.sum(-1, keepdim=True)
        return torch.where(left < EPS, self._p, rest / left)

    def hit(self, token: Int[Tensor, "*batch"]) -> Float[Tensor, "*batch"]:
        """Of what p has left for the token behind the children before, this child's share."""
        overlap = self.overlap()
        missed = 1 - overlap.sum(-1).clamp(max=1)
        p, one = (probs.gather(-1, token[..., None])[..., 0] for probs in (self._p, overlap))
        left = p - one * sum(missed**earlier for earlier in range(self._rejected))
        return torch.where(one > 0, one * missed**self._rejected / left, 0.0).clamp_(0, 1)

    def missed(self) -> Float[Tensor, "*batch vocab"]:
        """What is drawn and not accepted."""
        return (self._q - self.overlap()).clamp_(min=0)


def solve_rho(p: Float[Tensor, "*batch vocab"], q: Float[Tensor, "*batch vocab"], k: int) -> Float[Tensor, "*batch"]:
    """The root in [1, k] of 1 - (1 - beta)^k = rho beta, where beta = sum min(q, p / rho), from above.

    Of one node with plain numbers: some reads cost less than the many small operations on all numbers.
    """
    tensors = p.dim() > 1

    def excess(log_rho: Any) -> Any:
        """1 - beta - (1 - rho beta)^(1/k): the same root, but nearly straight. Not negative where rho is valid."""
        rho: Any = log_rho.exp() if tensors else math.exp(log_rho)
        covered: Any = torch.minimum(p, q * (rho[..., None] if tensors else rho)).sum(-1)
        missed = (1 - covered).clamp_(min=0) if tensors else max(0.0, 1 - float(covered))
        return 1 - (1 - missed) / rho - missed ** (1 / k)

    if k == 1:
        return p.new_ones(p.shape[:-1])
    if tensors:
        shape = p.shape[:-1]
        return _upper_end(excess, p.new_zeros(shape), p.new_full(shape, math.log(k)), torch.where).exp()
    end: float = _upper_end(excess, 0.0, math.log(k), lambda condition, yes, no: yes if condition else no)
    return p.new_tensor(math.exp(end))


def _upper_end(excess: Callable[[Any], Any], low: Any, high: Any, where: Callable[[Any, Any, Any], Any]) -> Any:
    """Regula falsi (Illinois). Above the root the residual is not negative and the rule lossless, near to it or not."""
    at_low, at_high, before = excess(low), excess(high), None
    high, at_high = where(at_low >= 0, low, high), where(at_high > 0, at_high, 0 * at_high)
    at_low = where(at_low < 0, at_low, 0 * at_low)
    for _ in range(_STEPS):
        if not isinstance(low, Tensor) and min(high - low, at_high) < _NEAR:
            break
        middle = high - at_high * (high - low) / (at_high - at_low + _TINY)
        found = excess(middle)
        valid = found >= 0
        half = 1 + (valid == before if before is not None else 0)  # for the end that stays a second time
        at_low, at_high = where(valid, at_low / half, found), where(valid, found, at_high / half)
        low, high, before = where(valid, low, middle), where(valid, middle, high), valid
    return high


def _normalised(probs: Float[Tensor, "*batch vocab"]) -> Float[Tensor, "*batch vocab"]:
    return probs.to(torch.float64, copy=True).div_(probs.sum(-1, keepdim=True, dtype=torch.float64))
