"""Medusa's heads as draft model: what is proposed depends on how deep a node stands, not on its path."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from specdec_core.drafters.base import Context
from specdec_core.drafters.depth_draft import DepthDraft, features_of
from specdec_core.models.causal_lm import ModelOutput
from specdec_core.models.medusa import Medusa
from specdec_core.roots import Virtual
from specdec_core.tree import Verdict


class MedusaDraft(DepthDraft):
    """Drafts with `Medusa` (section 2.1.1). Below a pending root, children of depth d + 1 come from head d.

    The feature is the target's at the last token that it has read: of a pending root the token before it, of a virtual
    root the root, whose own children the target has predicted already and the heads those below.
    """

    model: Medusa

    def __init__(self, model: Medusa) -> None:
        super().__init__(model, len(model.heads))
        self._feature = torch.zeros(0)

    def reset(self, prompt_ids: Int[Tensor, " prompt"], target: ModelOutput) -> None:
        """Take the feature of the prompt's last token."""
        self._take(target, -1)

    def rows(self, context: Context) -> Float[Tensor, "depths vocab"]:
        """Those of the heads, of a virtual root below its own distribution."""
        with context.clock.span("draft", tokens=1, device=self.device):
            rows = self.model(self._feature)
        if isinstance(context.root, Virtual):
            rows = torch.cat((context.root.probs.to(rows).log()[None], rows))
        return rows

    def commit(self, slots: Int[Tensor, " kept"], verdict: Verdict, target: ModelOutput) -> None:
        """Take the feature of the last accepted node."""
        self._take(target, int(verdict.path[-1]))

    def _take(self, target: ModelOutput, row: int) -> None:
        self._feature = features_of(target)[row].to(self.device, self.model.dtype)
