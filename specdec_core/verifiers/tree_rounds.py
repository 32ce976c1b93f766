"""Rounds at all nodes of a tree in one operation, for devices on which small operations cost more than large ones.

What rounds leave of p is max(p - c q - d, 0), up to its sum, with two numbers per node: a rejected child was less
probable under R than under D, so that nothing of it is left, and all else lost the same share of q. c grows by the sum
of R over what is left of q; d does so once q's support is exhausted and D is uniform. This holds for children that are
drawn as the rules demand: one outside q's support comes behind all that are inside.
"""

from __future__ import annotations

import importlib.util
import itertools
import logging
import math
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from specdec_core.verifiers.rounds import EPS

log = logging.getLogger(__name__)
BISECTIONS = 30
"""Of the logarithm of K-SEQ's rho, which is then known to 1e-8."""


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
    *,
    remove: bool,
    uniform_fallback: bool,
    k_seq: bool = False,
) -> tuple[Float[Tensor, " nodes"], Float[Tensor, "nodes 2"]]:
    """Of each node how probable it is that it is accepted, given that its earlier siblings were rejected, and (c, d).

    float64; 0 behind the first child whose number in `uniform` is below its chance. `rows` are those of q by node: of
    negative ones no children are judged. `remove` and `uniform_fallback` are those of `MultiRound`. With `k_seq`
    children are judged by `KSeq`, and c is its rho. No read from the device.
    """
    lists, how = (families.order, families.starts, families.repeated), (remove, uniform_fallback, k_seq)
    accept, shares = torch.ops.specdec.tree_rounds(p, q, rows, tokens, uniform, *lists, *how)
    return accept, shares


def residual(
    p: Float[Tensor, " vocab"], q: Float[Tensor, " vocab"], shares: Float[Tensor, " 2"]
) -> Float[Tensor, " vocab"]:
    """What is left of p once all children of a node were rejected; float64, normalised."""
    rest = torch.addcmul(p.double() - shares[1], q.double(), shares[0], value=-1).clamp_(min=0)
    return rest / rest.sum()


def _on_host(
    p: Tensor, q: Tensor, rows: Tensor, tokens: Tensor, uniform: Tensor, order: Tensor, starts: Tensor,
    repeated: Tensor, remove: bool, uniform_fallback: bool, k_seq: bool,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """By the definition, node after node."""
    accept, shares = p.new_zeros(len(tokens), dtype=torch.float64), p.new_zeros(len(tokens), 2, dtype=torch.float64)
    bounds, known, how = starts.tolist(), (rows >= 0).tolist(), (remove, uniform_fallback)
    for node, (first, end) in enumerate(itertools.pairwise(bounds)):
        if first < end and known[node]:
            below = order[first:end]
            node_p, node_q = p[node].double(), q[rows[node]].double()
            given = tokens[below], uniform[below], ~repeated[below]
            judged = _selection(node_p, node_q, *given[:2]) if k_seq else _rounds(node_p, node_q, *given, *how)
            accept[below], shares[node] = judged
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
    return accept * (chosen.cumsum(0) == chosen), p.new_tensor((math.exp(high), 0.0))


def _rounds(
    p: Tensor, q: Tensor, children: Tensor, uniform: Tensor, fresh: Tensor, remove: bool, uniform_fallback: bool
) -> tuple[Tensor, Tensor]:
    """One node."""
    drawn = torch.where(fresh, q[children], 0.0) if remove else q[children]
    others = q.index_fill(0, children, 0.0).sum() if remove else q.sum()
    c, d, total, seen, accept = p.new_zeros(()), p.new_zeros(()), p.sum(), 0, torch.zeros_like(drawn)
    for i, child in enumerate(children):
        left = others + drawn[i:].sum() if remove else others
        exhausted = uniform_fallback and bool(left <= 0)
        unseen = p.shape[0] - seen
        mass = fresh[i].double() / unseen if exhausted else drawn[i] / left  # D(x)
        ratio = (p[child] - c * q[child] - d).clamp(min=0) / total / mass
        accept[i] = torch.where(mass > 0, torch.where(ratio >= 1, 1.0, ratio), 0.0)
        if uniform[i] < accept[i]:
            break
        if mass > 0:
            more = total / unseen if exhausted else total / left
            next_c, next_d = (c, d + more) if exhausted else (c + more, d)
            rest = (p - next_c * q - next_d).clamp(min=0).sum()
            if rest >= EPS * total:
                c, d, total = next_c, next_d, rest
        seen += int(fresh[i])
    return accept, torch.stack((c, d))


_library = torch.library.Library("specdec", "DEF")
_library.define(
    "tree_rounds(Tensor p, Tensor q, Tensor rows, Tensor tokens, Tensor uniform, Tensor order, Tensor starts, "
    "Tensor repeated, bool remove, bool uniform_fallback, bool k_seq) -> (Tensor, Tensor)"
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
