"""What all drafters with a draft model share."""

from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, cast

import torch
from jaxtyping import Int
from torch import Tensor

from specdec_core.drafters.base import Context, Drafter, DraftModel
from specdec_core.drafters.cached_draft import CachedDraft
from specdec_core.drafters.causal_draft import CausalDraft
from specdec_core.drafters.dflash_draft import DFlashDraft
from specdec_core.drafters.eagle_draft import EagleDraft
from specdec_core.drafters.medusa_draft import MedusaDraft
from specdec_core.drafters.self_draft import SelfDraft
from specdec_core.models.causal_lm import CausalLM, Layers, ModelOutput
from specdec_core.models.dflash import DFlash
from specdec_core.models.eagle import EagleHead
from specdec_core.models.head import Head
from specdec_core.models.layer_skip import LayerSkip
from specdec_core.models.medusa import Medusa
from specdec_core.models.placement import wait_for
from specdec_core.sliced_mask import SlicedMask
from specdec_core.tree import TokenTree, Verdict

AnyDraft = CausalLM | Head | DraftModel
"""What drafters take as `draft`: a loaded model, or one that drafts already."""
Drafted = tuple[TokenTree, Int[Tensor, " slots"]]
"""A tree, and for every node its slot in the draft (see `DraftModel`).

-1 is for the root, which has none, and for nodes that the draft has not read below their own ancestors.
"""


_DRAFTS: Mapping[type, Callable[[Any], Any]] = {
    LayerSkip: SelfDraft,
    CausalLM: CausalDraft,
    EagleHead: EagleDraft,
    Medusa: MedusaDraft,
    DFlash: DFlashDraft,
}
"""What drafts with a loaded model; the first that fits."""


class TreeDrafter(Drafter):
    """Holds the draft model, and after a tree is grown the slots of its nodes, so that accepted ones are kept.

    A method is a subclass with `draft_tree`.
    """

    draws = "topk"
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

    @abstractmethod
    def draft_tree(self, context: Context) -> Drafted:
        """A tree whose root is the last committed token, and the slots of its nodes."""

    @property
    def draft_model(self) -> DraftModel:
        """What it drafts with."""
        return self.draft

    @property
    def needs_hidden(self) -> Layers:
        """The layers whose features its draft model reads."""
        return self.draft.needs_hidden

    def deepest(self, depth: int) -> int:
        """`depth`, or the deepest level that its draft model can propose where that is less."""
        most = self.draft.max_depth
        return depth if most is None else min(depth, most + self.virtual_root)

    def reset(self, prompt_ids: Int[Tensor, " prompt"], target: ModelOutput) -> None:
        """Begin a sequence."""
        if isinstance(self.draft, CachedDraft):
            self.draft.slice_masks(self.sliced_for_draft, prompt_ids.shape[0])
        if isinstance(self.draft, CausalDraft):
            self.draft.keeps_hidden = self.reads_draft_hidden
        self.draft.reset(prompt_ids, target)
        wait_for(self.draft.device, target.logits.device)

    def prepare(self, room: int, device: torch.device, dtype: torch.dtype) -> None:
        """Make the masks of its trees, where their shapes are known."""
        if self.sliced is not None:
            self.sliced.prepare(room, device, dtype)

    def grow(self, context: Context) -> TokenTree:
        """Draft a tree, and keep its slots for `observe`. ValueError if there is not one for every node."""
        tree, slots = self.draft_tree(context)
        # there before it is looked at: whoever judges the tree reads from the device behind it
        together = slots.device == tree.tokens.device
        self._slots = slots.to("cpu", non_blocking=together)
        if self._slots.shape[0] != tree.num_nodes:
            raise ValueError(
                f"{type(self).__name__} gave {self._slots.shape[0]} slots for a tree of {tree.num_nodes} nodes; "
                "draft_tree must give one for every node, -1 for the root and for nodes that the draft has not read"
            )
        return tree

    def observe(self, verdict: Verdict, target: ModelOutput) -> None:
        """Keep the accepted nodes that the draft has read; the deepest one may be a node it never read (slot -1)."""
        slots = self._slots[verdict.path[1:]]
        self.draft.commit(slots[slots >= 0], verdict, target)
        wait_for(self.draft.device, target.logits.device)


def draft_model_of(model: AnyDraft) -> DraftModel:
    """A loaded model as drafters know it."""
    made = next((draft for loaded, draft in _DRAFTS.items() if isinstance(model, loaded)), None)
    return cast(DraftModel, made(model) if made else model)


def check_delta(delta: float | None) -> None:
    """ValueError for a least gain of a layer that is negative or no number; None: layers need not gain anything."""
    if delta is not None and not delta >= 0:
        raise ValueError(f"the threshold delta must not be negative, got {delta}")
