"""Is the output what the target alone would have said? Where they part, and how close the call was."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from specdec_core.models import CausalLM


@dataclass(frozen=True, slots=True)
class Divergence:
    """Where an output leaves its reference."""

    at: int
    """Index of the first token that differs, or that one of them lacks."""
    gap: float
    """The target's best logit there less the lower one of the two tokens; infinite where a token is missing."""
    largest_logit: float
    """The largest absolute value of the best logit and of that token's, of which a rounding error is a share."""


def first_divergence(output: Sequence[int], reference: Sequence[int]) -> int | None:
    """Index of the first token that differs, a missing token included; None if they are equal."""
    for index, (ours, theirs) in enumerate(zip(output, reference, strict=False)):
        if ours != theirs:
            return index
    return None if len(output) == len(reference) else min(len(output), len(reference))


def divergence(
    target: CausalLM, prompt: Sequence[int], output: Sequence[int], reference: Sequence[int]
) -> Divergence | None:
    """Where an output leaves its reference, by the target's logits behind the tokens both agree on; None if nowhere.

    A gap near the dtype's rounding (`specdec_trees.results.ties`) says that a tie was broken differently; a large one
    that something is wrong.
    """
    at = first_divergence(output, reference)
    if at is None:
        return None
    tokens = torch.tensor([*prompt, *reference[:at]], device=target.device)
    target.reset(tokens.shape[0])
    logits = target.prefill(tokens).logits[-1].float()
    apart = [*output[at : at + 1], *reference[at : at + 1]]
    best, worse = float(logits.max()), float(logits[apart].min())
    gap = best - worse if len(apart) == 2 else math.inf
    return Divergence(at, gap, max(abs(best), abs(worse)))
