"""What all drafters with a draft model share."""

import torch
from jaxtyping import Int
from torch import Tensor

from specdec_core.drafters.base import DraftModel
from specdec_core.drafters.causal_draft import CausalDraft
from specdec_core.models.causal_lm import CausalLM, ModelOutput
from specdec_core.tree import Verdict


class TreeDrafter:
    """Holds the draft model, and after a tree is grown the slots of its nodes, so that accepted ones are kept."""

    draws = "topk"
    virtual_root = False
    needs_hidden = False

    def __init__(self, draft: CausalLM | DraftModel, draft_temperature: float) -> None:
        if not draft_temperature > 0:
            raise ValueError(f"draft_temperature must be positive, not {draft_temperature}")
        self.draft: DraftModel = CausalDraft(draft) if isinstance(draft, CausalLM) else draft
        self.draft_temperature = draft_temperature
        self._slots: Int[Tensor, " nodes"] = torch.zeros(0, dtype=torch.long)

    @property
    def draft_model(self) -> DraftModel:
        """What it drafts with."""
        return self.draft

    def reset(self, prompt_ids: Int[Tensor, " prompt"], target: ModelOutput) -> None:
        """Begin a sequence."""
        self.draft.reset(prompt_ids, target)

    def observe(self, verdict: Verdict, target: ModelOutput) -> None:
        """Keep the accepted nodes that the draft has read; the deepest one may be a node it never read (slot -1)."""
        slots = self._slots.cpu()[verdict.path[1:]]
        self.draft.commit(slots[slots >= 0], verdict, target)
