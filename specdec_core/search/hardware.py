"""Sequoia's hardware-aware choice of tree size and depth (section 3.3)."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from specdec_core.search.programme import Programme
from specdec_core.shapes import TreeShape


@dataclass(frozen=True, slots=True)
class Choice:
    """The tree with the highest predicted speedup."""

    shape: TreeShape
    expected_tokens: float
    """Per step, the root counted."""
    speedup: float
    """Predicted: tokens per second against one token per target forward."""


def choose_tree(
    acceptance: Sequence[float],
    forward_s: Mapping[int, float],
    draft_s: float,
    depths: Iterable[int],
    *,
    levels: bool = False,
    plain: bool = True,
    max_children: int | None = None,
) -> Choice:
    """Maximise expected tokens / (t(n + 1) + passes c) over measured sizes and given depths.

    `forward_s` are the target's seconds by tokens of the forward (root counted; 1 must be there), `draft_s` a draft
    forward's. A tree of depth d takes d draft forwards, or d + 1 as the paper counts (`levels`). Plain decoding is
    among the candidates unless told otherwise (`plain`). Ties go to the smaller tree, then to the shallower one.
    """
    if 1 not in forward_s:
        raise ValueError("the time of a forward of 1 token is missing: speedups are relative to it")
    sizes = sorted(tokens - 1 for tokens in forward_s if tokens > 1)
    bounds = sorted(set(depths))
    best = Choice(TreeShape(()), 1.0, 1.0 if plain else 0.0)
    if not sizes or not bounds:
        return best
    programme = Programme(acceptance, sizes[-1], bounds[-1], max_children)
    for budget in sizes:
        for bound in bounds:
            values = programme.values(bound)[: budget + 1]
            shape = programme.tree(int(np.argmax(values)), bound)
            passes = shape.depth + int(levels)
            seconds = forward_s.get(shape.num_drafted + 1, forward_s[budget + 1]) + passes * draft_s
            speedup = float(values.max()) * forward_s[1] / seconds
            if speedup > best.speedup * (1 + 1e-12):
                best = Choice(shape, float(values.max()), speedup)
    return best
