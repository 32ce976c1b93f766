"""DFlash's head as draft model: one block of masks a step, behind the true features of all committed tokens."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from specdec_core.drafters.base import Context
from specdec_core.drafters.cached_draft import ROOM
from specdec_core.drafters.depth_draft import DepthDraft, features_of
from specdec_core.models.causal_lm import ModelOutput
from specdec_core.models.dflash import DFlash
from specdec_core.roots import Virtual
from specdec_core.sending import sent
from specdec_core.tree import Verdict


class DFlashDraft(DepthDraft):
    """Drafts with `DFlash` (arXiv 2602.06036). Below a pending root, nodes of depth d come from the d-th mask.

    Each step reads the features of the tokens that the step before committed, but the root's: the root stands in the
    block, and its feature is read a step later. A virtual root's is known and waits as long, since the head was trained
    without it; the root's own distribution takes the place of the first mask's.
    """

    model: DFlash

    def __init__(self, model: DFlash) -> None:
        super().__init__(model, model.block_size - 1)
        self._unread = torch.zeros(0, 0)  # joined features of committed positions that the cache lacks

    def reset(self, prompt_ids: Int[Tensor, " prompt"], target: ModelOutput) -> None:
        """Read the prompt's features but for the last, which may be a virtual root's."""
        features = self.model.inward(features_of(target))
        self.model.reset(prompt_ids.shape[0] + ROOM)
        self.model.read(features[:-1])
        self._unread = features[-1:]

    def rows(self, context: Context) -> Float[Tensor, "depths vocab"]:
        """Those of the masks; of a virtual root the first is its own distribution."""
        new = len(context.tokens) - 1 - self.model.cache.length
        with context.clock.span("draft", tokens=new + self.model.block_size, device=self.device):
            rows = self.model(self._unread[:new], context.tokens[-1])
        if isinstance(context.root, Virtual):
            rows = torch.cat((context.root.probs.to(rows).log()[None], rows[1:]))
        return rows

    def commit(self, slots: Int[Tensor, " kept"], verdict: Verdict, target: ModelOutput) -> None:
        """Take the features of the root and of the accepted nodes."""
        hidden = features_of(target)
        self._unread = self.model.inward(hidden[sent(verdict.path, hidden.device)])
