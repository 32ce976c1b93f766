"""What all drafters with a draft model share."""

import torch
from jaxtyping import Int
from torch import Tensor

from specdec_core.drafters.base import DraftModel
from specdec_core.drafters.cached_draft import CachedDraft
from specdec_core.drafters.causal_draft import CausalDraft
from specdec_core.drafters.eagle_draft import EagleDraft
from specdec_core.drafters.self_draft import SelfDraft
from specdec_core.models.causal_lm import CausalLM, ModelOutput
from specdec_core.models.eagle import EagleHead
from specdec_core.models.layer_skip import LayerSkip
from specdec_core.sliced_mask import SlicedMask
from specdec_core.tree import Verdict

AnyDraft = CausalLM | EagleHead | DraftModel
"""What drafters take as `draft`: a loaded model, or one that drafts already."""


class TreeDrafter:
    """Holds the draft model, and after a tree is grown the slots of its nodes, so that accepted ones are kept."""

    draws = "topk"
    virtual_root = False
    sliced: SlicedMask | None = None
    """Masks of the largest tree that it grows, where that is known before."""
    sliced_for_draft: SlicedMask | None = None
    """Those of all that its draft may read of it."""
    reads_draft_hidden = False

    def __init__(self, draft: AnyDraft, draft_temperature: float) -> None:
        if not draft_temperature > 0:
            raise ValueError(f"draft_temperature must be positive, not {draft_temperature}")
        self.draft = draft_model_of(draft)
        self.draft_temperature = draft_temperature
        self._slots: Int[Tensor, " nodes"] = torch.zeros(0, dtype=torch.long)

    @property
    def draft_model(self) -> DraftModel:
        """What it drafts with."""
        return self.draft

    @property
    def needs_hidden(self) -> bool:
        """Whether its draft model reads the target's hidden states."""
        return self.draft.needs_hidden

    def reset(self, prompt_ids: Int[Tensor, " prompt"], target: ModelOutput) -> None:
        """Begin a sequence."""
        if isinstance(self.draft, CachedDraft):
            self.draft.slice_masks(self.sliced_for_draft, prompt_ids.shape[0])
        if isinstance(self.draft, CausalDraft):
            self.draft.keeps_hidden = self.reads_draft_hidden
        self.draft.reset(prompt_ids, target)

    def observe(self, verdict: Verdict, target: ModelOutput) -> None:
        """Keep the accepted nodes that the draft has read; the deepest one may be a node it never read (slot -1)."""
        slots = self._slots.cpu()[verdict.path[1:]]
        self.draft.commit(slots[slots >= 0], verdict, target)


def draft_model_of(model: AnyDraft) -> DraftModel:
    """A loaded model as drafters know it."""
    if isinstance(model, LayerSkip):
        return SelfDraft(model)
    if isinstance(model, CausalLM):
        return CausalDraft(model)
    return EagleDraft(model) if isinstance(model, EagleHead) else model
