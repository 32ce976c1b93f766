"""How far a rule's output distribution is from the target's, step by step: for rules that do not keep it."""

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from specdec_core.drafters import Drafter
from specdec_core.models import ModelOutput
from specdec_core.sampling import NO_DRAWS, Sampling
from specdec_core.tree import TokenTree, Verdict
from specdec_trees.results.instrument_rows import VariationRow

FirstTokenProbs = Callable[[TokenTree, ModelOutput, Sampling], Tensor]
"""(drafted tree, target's output, sampling) -> the exact distribution of the step's first token, float64 [vocab]."""
TREES, SIGNS = 64, 32
"""Trees drawn for a distribution that is a mean over trees, and random signs for what chance would make of it."""


def first_token_probs(rule: object, drafter: Drafter) -> FirstTokenProbs | None:
    """A rule's own account of its distribution, if it gives one; None for drawn trees whose root is not virtual.

    The distribution for one drawn tree is not the target's under a lossless rule either: only the mean over trees is
    (`DrawnVariation`, for trees from a virtual root).
    """
    probs_of: FirstTokenProbs | None = getattr(rule, "first_token_probs", None)
    return probs_of if drafter.draws in ("topk", NO_DRAWS) or drafter.virtual_root else None


def target_probs(target: ModelOutput, sampling: Sampling) -> Float[Tensor, " vocab"]:
    """The target's own distribution of a step's first token, float64 on the host."""
    known = target.root_probs  # a virtual root's distribution, sampling settings applied already
    return (sampling.probs(target.logits[0]) if known is None else sampling.closed(known)).double().cpu()


class VariationRecorder:
    """A watch for `generate` that turns every judged tree into a row, where trees are not drawn."""

    def __init__(self, run_id: str, prompt_id: str, turn: int, probs_of: FirstTokenProbs, sampling: Sampling) -> None:
        self._turn: dict[str, Any] = {"run_id": run_id, "prompt_id": prompt_id, "turn": turn}
        self._probs_of, self._sampling = probs_of, sampling
        self.rows: list[VariationRow] = []

    def __call__(self, tree: TokenTree, target: ModelOutput, verdict: Verdict) -> None:
        """Half the L1 distance between the rule's distribution after the root and p there."""
        probs = self._probs_of(tree, target, self._sampling).double().cpu()
        distance = float((probs - target_probs(target, self._sampling)).abs().sum() / 2)
        exact: dict[str, Any] = {} if target.root_probs is None else {"num_trees": 1, "noise": 0.0}
        self.rows.append(VariationRow(**self._turn, step=len(self.rows), total_variation=distance, **exact))


class DrawnVariation:
    """A watch for many decodings of one prompt: the first token's distribution is a mean over the trees of first steps.

    The first of a tree's first tokens is a draw from the target's distribution p. Let r be the rule's for that tree:
    then D(t) = r(t) - [t is that token] has the mean E(r) - p, exactly, without p's own share of the chance. Half the
    L1 norm of the mean of D over trees estimates the total variation, and is 0 wherever the first of the first tokens
    always wins.
    """

    def __init__(self, probs_of: FirstTokenProbs, sampling: Sampling) -> None:
        self._probs_of, self._sampling = probs_of, sampling
        self._differences: list[Tensor] = []

    def __call__(self, tree: TokenTree, target: ModelOutput, verdict: Verdict) -> None:
        """One tree, drawn from a virtual root."""
        difference = self._probs_of(tree, target, self._sampling).double().cpu()
        difference[int(tree.tokens[1])] -= 1
        self._differences.append(difference)
        self._alone = int((tree.parents == 0).sum()) == 1

    @property
    def done(self) -> bool:
        """Whether further trees would change nothing: there are enough, or there is one first token, which wins."""
        return len(self._differences) >= TREES or (bool(self._differences) and self._alone)

    def row(self, run_id: str, prompt_id: str, turn: int) -> VariationRow:
        """The estimate; `noise` is what it comes to on average where every tree's D has a random sign, and mean 0."""
        drawn = torch.stack(self._differences)
        signs = torch.randint(2, (SIGNS, len(drawn)), generator=torch.Generator().manual_seed(0)).double() * 2 - 1
        return VariationRow(
            run_id=run_id,
            prompt_id=prompt_id,
            turn=turn,
            step=0,
            total_variation=float(drawn.mean(0).abs().sum() / 2),
            num_trees=len(drawn),
            noise=float((signs @ drawn).abs().sum(-1).mean() / len(drawn) / 2),
        )
