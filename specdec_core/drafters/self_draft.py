"""The target as its own draft model, some layers left out: it drafts on the target's own keys and values."""

from jaxtyping import Int
from torch import Tensor

from specdec_core.drafters.base import Context
from specdec_core.drafters.causal_draft import CausalDraft
from specdec_core.errors import PairError
from specdec_core.models.causal_lm import FINAL, ModelOutput
from specdec_core.roots import Virtual
from specdec_core.tree import Verdict


class SelfDraft(CausalDraft):
    """Drafts with a `LayerSkip` of the target (GSD, Table 1, Self SSD).

    The committed prefix stands in the shared cache already, as the whole target computed it, so that there is no
    prefill of a draft. What is drafted is appended behind it and truncated by the engine before it scores the tree.
    """

    def reset(self, prompt_ids: Int[Tensor, " prompt"], target: ModelOutput) -> None:
        """Nothing is read: the target has read the prompt."""
        if self.model.graphs:
            self.model.graphs.fit()
        self.model.keep_hidden = FINAL if self.keeps_hidden else ()

    def begin(self, context: Context) -> ModelOutput:
        """Read the root. PairError for a virtual root: its keys and values are the target's and must stay."""
        if isinstance(context.root, Virtual):
            raise PairError("a layer_skip draft would overwrite a virtual root; use a drafter that starts from a token")
        return super().begin(context)

    def commit(self, slots: Int[Tensor, " kept"], verdict: Verdict, target: ModelOutput) -> None:
        """Nothing: the target has committed the path."""
