"""A causal language model as draft model: catch up, read tree layers, keep what was accepted."""

import torch
from jaxtyping import Int
from torch import Tensor

from specdec_core.drafters.base import Context
from specdec_core.drafters.cached_draft import ROOM, CachedDraft
from specdec_core.layout import Layout, tree_layout
from specdec_core.models.causal_lm import FINAL, CausalLM, ModelOutput
from specdec_core.tree import Verdict


class CausalDraft(CachedDraft):
    """Drafts with a `CausalLM` of the target's vocabulary. Nothing that its cache holds is read twice."""

    def __init__(self, model: CausalLM) -> None:
        super().__init__(model)
        self.model = model
        self.keeps_hidden = False
        """Whether the hidden states of what it reads are asked for."""

    def reset(self, prompt_ids: Int[Tensor, " prompt"], target: ModelOutput) -> None:
        """Read the prompt into the draft's own cache."""
        self.model.reset(prompt_ids.shape[0] + ROOM)
        self.model.keep_hidden = FINAL if self.keeps_hidden else ()
        self.model.prefill(prompt_ids.to(self.device))

    def begin(self, context: Context) -> ModelOutput:
        """Read the committed tokens that the cache lacks; the root always, since its row is asked for."""
        self.model.cache.truncate(len(context.tokens) - 1)
        unread = self._unread(context, self.model.cache.length)
        layout = self._sliced_layout(1 - unread.shape[0], unread.shape[0])
        with context.clock.span("draft", tokens=unread.shape[0], device=self.device):
            output = self.model.extend(unread) if layout is None else self.model(unread, layout)
        self._begin_tree(context)
        return ModelOutput(output.logits[-1:], None if output.hidden is None else output.hidden[-1:])

    def begin_below(self, context: Context, tokens: Int[Tensor, " first"]) -> ModelOutput:
        """One forward: what is unread as plain text, and behind it siblings that do not see one another."""
        self.model.cache.truncate(len(context.tokens))
        unread, start = self._unread(context, self.model.cache.length), self.model.cache.length
        known, new = unread.shape[0], tokens.shape[0]
        layout = self._sliced_layout(1 - known, known + new) or self._star_layout(known, new, start)
        with context.clock.span("draft", tokens=known + new, device=self.device):
            output = self.model(torch.cat((unread, tokens)), layout)
        self._begin_tree(context, first=new)
        return ModelOutput(output.logits[known:], None if output.hidden is None else output.hidden[known:])

    def _star_layout(self, known: int, new: int, start: int) -> Layout:
        """Of `known` tokens of the text and `new` siblings below the last of them."""
        visible = torch.ones(known + new, known + new, dtype=torch.bool, device=self.device).tril_()
        visible[known:, known:] = torch.eye(new, dtype=torch.bool, device=self.device)
        return tree_layout(
            visible, visible.sum(-1) - 1, prefix=start, max_positions=self.max_positions, dtype=self.model.dtype
        )

    def expand(self, tokens: Int[Tensor, " new"], parents: Int[Tensor, " new"]) -> ModelOutput:
        """One forward over a layer of nodes."""
        layout = self._layout(parents)
        with self._clock.span("draft", tokens=tokens.shape[0], device=self.device):
            return self.model(tokens, layout)

    def commit(self, slots: Int[Tensor, " kept"], verdict: Verdict, target: ModelOutput) -> None:
        """Keep the keys and values of accepted nodes."""
        self.model.cache.commit(self._start, slots)
