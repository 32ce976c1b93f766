"""Rounds at all nodes of a tree in one operation, for devices on which small operations cost more than large ones.

What rounds leave of p is max(p - c q - d, 0), up to its sum, with two numbers per node: a rejected child was less
probable under R than under D, so that nothing of it is left, and all else lost the same share of q. c grows by the sum
of R over what is left of q; d does so once q's support is exhausted and D is uniform. This holds for children that are
drawn as the rules demand: one outside q's support comes behind all that are inside.

Traversal's rounds (`NodeRounds`) begin with a chance a that the walk comes to the node, where those of the other rules
are sure: they set a R against D, and R in its place where a is 1.
"""

from __future__ import annotations

import importlib.util
import itertools
import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from specdec_core.sending import sent
from specdec_core.verifiers.rounds import EPS

log = logging.getLogger(__name__)
BISECTIONS = 30
"""Of the logarithm of K-SEQ's rho, which is then known to 1e-8."""
TINY = 1e-100
"""A chance below this is 0."""


@dataclass(frozen=True, slots=True)
class Families:
    """Children of all nodes, side by side in draft order."""

    order: Int[Tensor, " nodes"]
    """Nodes by parent, the root first."""
    starts: Int[Tensor, " nodes+1"]
    """Children of node i stand in `order` from `starts[i]` on, up to `starts[i + 1]`."""
    repeated: Bool[Tensor, " nodes"]
    """Whether an earlier sibling has the same token."""

    @classmethod
    def of(cls, parents: Int[Tensor, " nodes"], tokens: Int[Tensor, " nodes"]) -> Families:
        """Found on the device, without a read."""
        order = parents.argsort(stable=True)
        count = parents.shape[0]
        starts = torch.searchsorted(parents[order], torch.arange(count + 1, device=parents.device))
        keys, places = ((parents << 32) + tokens).sort(stable=True)
        repeated = torch.zeros_like(parents, dtype=torch.bool)
        return cls(order, starts, repeated.scatter_(0, places[1:], keys[1:] == keys[:-1]))


def tree_rounds(
    p: Float[Tensor, "nodes vocab"],
    q: Float[Tensor, "expanded vocab"],
    rows: Int[Tensor, " nodes"],
    tokens: Int[Tensor, " nodes"],
    uniform: Float[Tensor, " nodes"],
    families: Families,
    begins: Float[Tensor, " nodes"] | None = None,
    /,
    *,
    remove: bool,
    uniform_fallback: bool,
    k_seq: bool = False,
    sure: bool = False,
) -> tuple[Float[Tensor, " nodes"], Float[Tensor, "nodes 3"]]:
    """Of each node how probable it is that it is accepted, given that its earlier siblings were rejected; (c, d, a).

    float64; 0 behind the first child whose number in `uniform` is below its chance. `rows` are those of q by node: of
    negative ones no children are judged. `remove` and `uniform_fallback` are those of `MultiRound`. With `k_seq`
    children are judged by `KSeq`, and c is its rho. With `sure` children that q has not are there for sure. `begins`
    are chances of nodes as `NodeRounds` takes them; a is what becomes of one behind all children. No read from the
    device.
    """
    lists, how = (families.order, families.starts, families.repeated), (remove, uniform_fallback, k_seq, sure)
    accept, shares = torch.ops.specdec.tree_rounds(p, q, rows, tokens, uniform, *lists, *how, begins)
    return accept, shares


def residual(
    p: Float[Tensor, " vocab"], q: Float[Tensor, " vocab"], shares: Float[Tensor, " 3"], taken: Sequence[int] = ()
) -> Float[Tensor, " vocab"]:
    """What is left of p once all children of a node were rejected, `taken` tokens for sure; float64, normalised."""
    rest = torch.addcmul(p.double() - shares[1], q.double(), shares[0], value=-1).clamp_(min=0)
    if taken:
        others = rest.index_fill(0, sent(torch.tensor(taken), rest.device), 0.0)
        rest = torch.where(others.sum() > 0, others, rest)
    return rest / rest.sum()


def without_sure(
    q: Float[Tensor, "expanded vocab"],
    rows: Int[Tensor, " nodes"],
    parents: Int[Tensor, " nodes"],
    tokens: Int[Tensor, " nodes"],
    families: Families,
) -> Float[Tensor, "expanded+1 vocab"]:
    """The distribution that each node's first child was drawn from: `sampling.without_best` of its other children.

    No read from the device. The last row means nothing: it is that of nodes without q.
    """
    above = parents[1:]
    first = (families.order.argsort()[1:] == families.starts[above]).to(q.dtype)
    at, q = (rows[above], tokens[1:]), torch.cat((q, q.new_ones(1, q.shape[1])))
    rest, others = q.index_put(at, first * q[at]), torch.ones_like(q).index_put(at, first)
    return torch.where(rest.sum(-1, keepdim=True) == 0, others, rest)


class NodeRounds:
    """The rounds of one node on the host, child by child, each a pass over the vocabulary.

    `chance` begins as a, how probable it is that the walk comes to the node and must end there or below, given the
    drafted tokens. A child x is come to with b = min(1, a R(x) / D(x)), against D as for `MultiRound`. If all below it
    was rejected, R becomes norm(max(a R - D, 0)) and a becomes S / (S + 1 - a), S the sum of that maximum: what is left
    to the node of all that is left. Where a is 1 it stays 1, and these are the rounds of `MultiRound`.
    """

    def __init__(
        self,
        p: Float[Tensor, " vocab"],
        q: Float[Tensor, " vocab"],
        children: Int[Tensor, " children"],
        fresh: Bool[Tensor, " children"],
        chance: float,
        /,
        *,
        remove: bool,
        uniform_fallback: bool,
        sure: bool = False,
    ) -> None:
        """`fresh` marks children whose token no earlier sibling has. p and q in float64."""
        drawn = torch.where(fresh, q[children], 0.0) if remove else q[children]
        others = q.index_fill(0, children, 0.0).sum() if remove else q.sum()
        left = others + drawn.flip(0).cumsum(0).flip(0) if remove else others.expand(len(drawn))
        self._p, self._q, self._fallback, self._sure, self._seen = p, q, uniform_fallback, sure, 0
        self._taken = [
            token for token, there in zip(children.tolist(), (drawn == 0).tolist(), strict=True) if sure and there
        ]
        self._children = torch.stack((p[children], q[children], drawn, left, fresh.double()), 1).tolist()
        self.chance, self.c, self.d, self._total = chance, 0.0, 0.0, float(p.sum())

    def accept(self, place: int) -> float:
        """The b of a child; 0 where D(x) = 0. Not a number where p or q are none."""
        mass, _, _ = self._draft(place)
        chance = min(self.chance * self._wanted(place) / self._total / mass, 1.0) if mass else 0.0
        return 0.0 if chance < TINY else chance

    def reject(self, place: int) -> None:
        """Go on without that child and all below it. Where P(reject) < EPS nothing changes but D."""
        mass, more_c, more_d = self._draft(place)
        self._seen += int(self._children[place][-1])
        if not mass or not self.chance:
            return
        c, d = self.c + self._total * more_c / self.chance, self.d + self._total * more_d / self.chance
        left = self._total - self._wanted(place) if (c, d) == (self.c, self.d) else self._left(c, d)
        share = 0.0 if left < EPS * self._total else self.chance * left / self._total
        if left >= EPS * self._total:
            self.c, self.d, self._total = c, d, left
        rejected = share + (1 - self.chance)  # of a chance of 1 the share itself
        if not rejected < EPS:
            self.chance = 0.0 if share / rejected < TINY else share / rejected

    def _wanted(self, place: int) -> float:
        """R(x), not normalised."""
        wanted, drawn_from, *_ = self._children[place]
        return max(wanted - self.c * drawn_from - self.d, 0.0)

    def _left(self, c: float, d: float) -> float:
        rest = torch.add(self._p, self._q, alpha=-c)
        return float((rest.sub_(d) if d else rest).clamp_(min=0).sum())

    def _draft(self, place: int) -> tuple[float, float, float]:
        """D(x), and by how much D / R adds to c and to d; neither for a child that is there for sure."""
        *_, drawn, left, fresh = self._children[place]
        if self._sure and drawn == 0:
            return 1.0, 0.0, 0.0
        if self._fallback and left <= 0:
            unseen = max(self._p.shape[0] - self._seen, 1)
            return fresh / unseen, 0.0, 1 / unseen
        return (drawn / left, 1 / left, 0.0) if left else (0.0, 0.0, 0.0)

    def residual(self) -> Float[Tensor, " vocab"]:
        """R; float64, normalised."""
        return residual(self._p, self._q, self._p.new_tensor((self.c, self.d, self.chance)), self._taken)


def _on_host(
    p: Tensor, q: Tensor, rows: Tensor, tokens: Tensor, uniform: Tensor, order: Tensor, starts: Tensor,
    repeated: Tensor, remove: bool, uniform_fallback: bool, k_seq: bool, sure: bool,
    begins: Tensor | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """By the definition, node after node."""
    accept, shares = p.new_zeros(len(tokens), dtype=torch.float64), p.new_zeros(len(tokens), 3, dtype=torch.float64)
    bounds, known = starts.tolist(), (rows >= 0).tolist()
    chances = [1.0] * len(tokens) if begins is None else begins.tolist()
    for node, (first, end) in enumerate(itertools.pairwise(bounds)):
        if first < end and known[node] and chances[node]:
            below = order[first:end]
            node_p, node_q, given = p[node].double(), q[rows[node]].double(), (tokens[below], uniform[below])
            if k_seq:
                accept[below], shares[node] = _selection(node_p, node_q, *given)
                continue
            how = {"remove": remove, "uniform_fallback": uniform_fallback, "sure": sure}
            rounds = NodeRounds(node_p, node_q, given[0], ~repeated[below], chances[node], **how)
            accept[below] = p.new_tensor(_rounds(rounds, given[1].tolist()), dtype=torch.float64)
            shares[node] = p.new_tensor((rounds.c, rounds.d, rounds.chance), dtype=torch.float64)
    return accept, shares


def _selection(p: Tensor, q: Tensor, children: Tensor, uniform: Tensor) -> tuple[Tensor, Tensor]:
    """One node by K-SEQ, whose rho is bisected."""
    p, q, k, low, high = p / p.sum(), q / q.sum(), len(children), 0.0, math.log(len(children))
    for _ in range(BISECTIONS if k > 1 else 0):
        middle = (low + high) / 2
        rest = float((p - math.exp(middle) * q).clamp(min=0).sum())  # 1 - rho beta
        valid = rest ** (1 / k) <= 1 - (1 - rest) / math.exp(middle)
        low, high = (low, middle) if valid else (middle, high)
    accept = torch.where(q[children] > 0, p[children] / (math.exp(high) * q[children]), 0.0).clamp(max=1)
    chosen = (uniform < accept).long()
    return accept * (chosen.cumsum(0) == chosen), p.new_tensor((math.exp(high), 0.0, 1.0))


def _rounds(rounds: NodeRounds, uniform: Sequence[float]) -> list[float]:
    """Chances of a node's children up to the first that is accepted."""
    accept = [0.0] * len(uniform)
    for place, number in enumerate(uniform):
        accept[place] = rounds.accept(place)
        if number < accept[place]:
            break
        rounds.reject(place)
    return accept


_library = torch.library.Library("specdec", "DEF")
_library.define(
    "tree_rounds(Tensor p, Tensor q, Tensor rows, Tensor tokens, Tensor uniform, Tensor order, Tensor starts, "
    "Tensor repeated, bool remove, bool uniform_fallback, bool k_seq, bool sure, "
    "Tensor? begins) -> (Tensor, Tensor)"
)
_library.impl("tree_rounds", _on_host, "CPU")


def _on_gpu(*arguments: Any) -> tuple[Tensor, Tensor]:
    """In Triton; by the definition, which waits for every child, where Triton is missing or cannot compile here."""
    global _in_triton
    if _in_triton:
        try:
            from specdec_core.verifiers import tree_rounds_kernel

            return tree_rounds_kernel.tree_rounds(*arguments)
        except torch.OutOfMemoryError:
            raise
        except Exception as error:  # Triton's, the compiler's and the driver's have no type in common
            log.warning("Triton cannot judge trees here (%s); drawn trees are judged slowly", error)
            _in_triton = False
    return _on_host(*arguments)


_in_triton = importlib.util.find_spec("triton") is not None
if torch.version.cuda or torch.version.hip:
    _library.impl("tree_rounds", _on_gpu, "CUDA")
