"""Is the output what the target alone would have said? Token equality, first divergence, and how close the call was."""

from collections.abc import Sequence

import torch

from specdec_core.models import CausalLM


def first_divergence(output: Sequence[int], reference: Sequence[int]) -> int | None:
    """Index of the first token that differs, a missing token included; None if they are equal."""
    for index, (ours, theirs) in enumerate(zip(output, reference, strict=False)):
        if ours != theirs:
            return index
    return None if len(output) == len(reference) else min(len(output), len(reference))


def divergence_gap(target: CausalLM, prompt_ids: Sequence[int], agreed: Sequence[int]) -> float:
    """Top-2 logit gap of the target after the tokens both outputs agree on.

    A gap near the dtype's rounding says that a tie was broken differently; a large one that something is wrong.
    """
    tokens = torch.tensor([*prompt_ids, *agreed], device=target.device)
    target.reset(tokens.shape[0])
    best = target.prefill(tokens).logits[-1].float().topk(2).values
    return float(best[0] - best[1])
