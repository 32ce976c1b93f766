"""How far a rule's output law is from the target's, step by step: for rules that do not keep it."""

from collections.abc import Callable
from typing import Any

from torch import Tensor

from bench.instrument_records import VariationRow
from specdec_core.drafters import Drafter
from specdec_core.models import ModelOutput
from specdec_core.sampling import Sampling
from specdec_core.tree import TokenTree, Verdict

FirstTokenLaw = Callable[[TokenTree, ModelOutput, Sampling], Tensor]
"""(drafted tree, target's output, sampling) -> the exact law of the step's first token, float64 [vocab]."""


def first_token_law(rule: object, drafter: Drafter) -> FirstTokenLaw | None:
    """A rule's own account of its law, if it gives one; None for trees that are drawn.

    The law for one drawn tree is not the target's under a lossless rule either: only the mean over trees is.
    """
    law: FirstTokenLaw | None = getattr(rule, "first_token_law", None)
    return law if drafter.draws == "topk" else None


class VariationRecorder:
    """A watch for `generate` that turns every judged tree into a row."""

    def __init__(self, run_id: str, prompt_id: str, turn: int, law: FirstTokenLaw, sampling: Sampling) -> None:
        self._turn: dict[str, Any] = {"run_id": run_id, "prompt_id": prompt_id, "turn": turn}
        self._law, self._sampling = law, sampling
        self.rows: list[VariationRow] = []

    def __call__(self, tree: TokenTree, target: ModelOutput, verdict: Verdict) -> None:
        """Half the L1 distance between the rule's law after the root and p there."""
        law = self._law(tree, target, self._sampling).double().cpu()
        known = target.root_probs  # a virtual root's law, sampling settings applied already
        p = (self._sampling.probs(target.logits[0]) if known is None else self._sampling.closed(known)).double().cpu()
        distance = float((law - p).abs().sum() / 2)
        self.rows.append(VariationRow(**self._turn, step=len(self.rows), total_variation=distance))
