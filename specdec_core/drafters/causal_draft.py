"""A causal language model as draft model: catch up, read tree layers, keep what was accepted."""

from jaxtyping import Int
from torch import Tensor

from specdec_core.drafters.base import Context
from specdec_core.drafters.cached_draft import ROOM, CachedDraft
from specdec_core.models.causal_lm import CausalLM, ModelOutput
from specdec_core.tree import Verdict


class CausalDraft(CachedDraft):
    """Drafts with a `CausalLM` of the target's vocabulary. Nothing that its cache holds is read twice."""

    def __init__(self, model: CausalLM) -> None:
        super().__init__(model)
        self.model = model

    def reset(self, prompt_ids: Int[Tensor, " prompt"], target: ModelOutput) -> None:
        """Read the prompt into the draft's own cache."""
        self.model.reset(prompt_ids.shape[0] + ROOM)
        self.model.prefill(prompt_ids.to(self.device))

    def begin(self, context: Context) -> ModelOutput:
        """Read the committed tokens that the cache lacks; the root always, since its row is asked for."""
        self.model.cache.truncate(len(context.tokens) - 1)
        unread = self._unread(context, self.model.cache.length)
        with context.clock.span("draft", tokens=unread.shape[0], device=self.device):
            output = self.model.extend(unread)
        self._begin_tree(context)
        return ModelOutput(output.logits[-1:], None if output.hidden is None else output.hidden[-1:])

    def expand(self, tokens: Int[Tensor, " new"], parents: Int[Tensor, " new"]) -> ModelOutput:
        """One forward over a layer of nodes."""
        layout = self._layout(parents)
        with self._clock.span("draft", tokens=tokens.shape[0], device=self.device):
            return self.model(tokens, layout)

    def commit(self, slots: Int[Tensor, " kept"], verdict: Verdict, target: ModelOutput) -> None:
        """Keep the keys and values of accepted nodes."""
        self.model.cache.commit(self._start, slots)
