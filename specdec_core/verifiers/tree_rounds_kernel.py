"""Rounds at all nodes of a tree in one kernel, a program for each node (`tree_rounds`)."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from specdec_core.verifiers.rounds import EPS
from specdec_core.verifiers.tree_rounds import BISECTIONS, TINY

BLOCK = 2048
"""Tokens of the vocabulary that a program reads at once."""


def tree_rounds(
    p: Tensor, q: Tensor, rows: Tensor, tokens: Tensor, uniform: Tensor, order: Tensor, starts: Tensor,
    repeated: Tensor, remove: bool, uniform_fallback: bool, k_seq: bool, sure: bool,
    begins: Tensor | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """As `specdec::tree_rounds` says."""
    nodes, vocab = p.shape
    accept, shares = p.new_zeros(nodes, dtype=torch.float64), p.new_zeros(nodes, 3, dtype=torch.float64)
    with torch.cuda.device_of(p):
        _judge[(nodes,)](
            *(p.contiguous(), q.contiguous(), rows, tokens, uniform),
            *(order, starts, repeated.to(torch.int64), uniform if begins is None else begins, accept, shares, vocab),
            EPS=EPS,
            TINY=TINY,
            WEIGHTED=begins is not None,
            SURE=sure,
            REMOVE=remove,
            FALLBACK=uniform_fallback,
            BISECTIONS=BISECTIONS if k_seq else 0,
            BLOCK=min(BLOCK, triton.next_power_of_2(vocab)),
            num_warps=8,
        )
    return accept, shares


@triton.jit
def _read(row, at, vocab):
    """Part of a distribution, in float64."""
    return tl.load(row + at, mask=at < vocab, other=0.0).to(tl.float64)


@triton.jit
def _left(p_row, q_row, c, d, vocab, BLOCK: tl.constexpr):  # noqa: N803
    """The sum of max(p - c q - d, 0)."""
    total = tl.zeros([BLOCK], tl.float64)
    for begin in range(0, vocab, BLOCK):
        at = begin + tl.arange(0, BLOCK)
        rest = _read(p_row, at, vocab) - c * _read(q_row, at, vocab) - d
        total += tl.where((rest > 0) & (at < vocab), rest, 0.0)
    return tl.sum(total, 0)


@triton.jit
def _others(q_row, tokens, order, first, end, vocab, REMOVE: tl.constexpr, BLOCK: tl.constexpr):  # noqa: N803
    """The sum of q, with REMOVE without a node's children."""
    sums = tl.zeros([BLOCK], tl.float64)
    for begin in range(0, vocab, BLOCK):
        at = begin + tl.arange(0, BLOCK)
        values = _read(q_row, at, vocab)
        if REMOVE:
            for place in range(first, end):
                values = tl.where(at == tl.load(tokens + tl.load(order + place)), 0.0, values)
        sums += values
    return tl.sum(sums, 0)


@triton.jit
def _rho(p_row, q_row, p_sum, q_sum, k, vocab, BISECTIONS: tl.constexpr, BLOCK: tl.constexpr):  # noqa: N803
    """K-SEQ's, bisected in its logarithm; 1 for other rules."""
    low, high = k * 0.0, tl.where(BISECTIONS > 0, tl.log(k), 0.0)
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        rho = tl.exp(middle)
        rest = _left(p_row, q_row, rho * p_sum / q_sum, 0.0, vocab, BLOCK) / p_sum
        root = tl.where(rest > 0, tl.exp(tl.log(tl.where(rest > 0, rest, 1.0)) / k), 0.0)
        valid = root <= 1 - (1 - rest) / rho
        low, high = tl.where(valid, low, middle), tl.where(valid, middle, high)
    return tl.exp(high)


@triton.jit
def _left_to(weight, share, usable, number, EPS: tl.constexpr, TINY: tl.constexpr):  # noqa: N803
    """The weight of a node behind a rejected child; none where `number` is none."""
    rejected = share + (1 - weight)
    left = tl.where((rejected < EPS) | (usable == 0), weight, share / rejected)
    return tl.where(number == number, tl.where(left < TINY, 0.0, left), number)


@triton.jit(do_not_specialize=["vocab"])
def _judge(
    p, q, rows, tokens, uniform, order, starts, repeated, begins, accept, shares, vocab,
    EPS: tl.constexpr, TINY: tl.constexpr, WEIGHTED: tl.constexpr, SURE: tl.constexpr,  # noqa: N803
    REMOVE: tl.constexpr, FALLBACK: tl.constexpr, BISECTIONS: tl.constexpr, BLOCK: tl.constexpr,  # noqa: N803
):  # fmt: skip
    """One node: its children in draft order up to the first that is accepted, each a pass over the vocabulary.

    WEIGHTED: by `NodeRounds`, which begin with a chance of the node.
    """
    node = tl.program_id(0).to(tl.int64)
    first, end = tl.load(starts + node), tl.load(starts + node + 1)
    row = tl.load(rows + node)
    weight = row.to(tl.float64) * 0.0 + 1.0
    if WEIGHTED:
        weight = tl.load(begins + node)
    if (first < end) & (row >= 0) & (weight != 0):
        p_row, q_row = p + node * vocab, q + row * vocab
        others = _others(q_row, tokens, order, first, end, vocab, REMOVE, BLOCK)
        total = _left(p_row, q_row, 0.0, 0.0, vocab, BLOCK)
        c, d, unseen = total * 0.0, total * 0.0, total * 0.0 + vocab
        rho = _rho(p_row, q_row, total, others, (end - first).to(tl.float64), vocab, BISECTIONS, BLOCK)
        others /= rho
        place = first
        while place < end:
            child = tl.load(order + place)
            token = tl.load(tokens + child)
            fresh = (1 - tl.load(repeated + child)).to(tl.float64)
            child_q = tl.load(q_row + token).to(tl.float64)
            left, drawn = others, child_q
            if REMOVE:
                drawn = child_q * fresh
                for later in range(place, end):
                    sibling = tl.load(order + later)
                    value = tl.load(q_row + tl.load(tokens + sibling)).to(tl.float64)
                    left += tl.where(tl.load(repeated + sibling) == 0, value, 0.0)
            grown, mass, exhausted = total / left, drawn / left, left < 0.0
            if FALLBACK:
                exhausted = left <= 0
                grown = tl.where(exhausted, total / unseen, grown)
                mass = tl.where(exhausted, fresh / unseen, mass)
            there = (child_q == 0) & SURE
            grown, mass = tl.where(there, 0.0, grown), tl.where(there, 1.0, mass)
            rest = tl.load(p_row + token).to(tl.float64) - c * child_q - d
            rest = tl.where(rest < 0, 0.0, rest)
            ratio = rest / total / mass
            if WEIGHTED:
                grown /= weight
                ratio = tl.where(ratio * weight < TINY, 0.0, ratio * weight)
            chance = tl.where(mass > 0, tl.where(ratio >= 1, 1.0, ratio), 0.0)
            tl.store(accept + child, chance)
            chosen = tl.load(uniform + child) < chance
            next_c, next_d = tl.where(exhausted, c, c + grown), tl.where(exhausted, d + grown, d)
            after = tl.where(there, total - rest, total)
            if (not (chosen | there)) & (BISECTIONS == 0):
                after = _left(p_row, q_row, next_c, next_d, vocab, BLOCK)
            adopted = (mass > 0) & (after >= EPS * total) & (BISECTIONS == 0)
            if WEIGHTED:
                share = tl.where(adopted, weight * after / total, 0.0)
                weight = tl.where(chosen, weight, _left_to(weight, share, mass > 0, left + total, EPS, TINY))
            c, d = tl.where(adopted, next_c, c), tl.where(adopted, next_d, d)
            total = tl.where(adopted, after, total)
            unseen = tl.maximum(unseen - fresh, 1.0)
            place = tl.where(chosen | (weight == 0), end, place + 1)
        tl.store(shares + 3 * node, tl.where(BISECTIONS > 0, rho, c))
        tl.store(shares + 3 * node + 1, d)
        tl.store(shares + 3 * node + 2, weight)
