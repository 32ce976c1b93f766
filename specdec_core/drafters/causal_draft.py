"""A causal language model as draft model: catch up, read tree layers, keep what was accepted."""

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from specdec_core.drafters.base import Context
from specdec_core.layout import tree_layout
from specdec_core.models.causal_lm import CausalLM, ModelOutput
from specdec_core.timing import Clock
from specdec_core.tree import Verdict

ROOM = 2048
"""Cache slots beyond the prompt, for answers and trees; the cache grows if they do not suffice."""


class CausalDraft:
    """Drafts with a `CausalLM` of the target's vocabulary. Nothing that its cache holds is read twice."""

    def __init__(self, model: CausalLM) -> None:
        self.model = model
        self.vocab_size, self.max_positions = model.vocab_size, model.max_positions
        self._clock = Clock(model.device)
        self._start = 0  # length of the cache once the root is in it: slot 0 of the tree
        self._visible = torch.zeros(0, 0, dtype=torch.bool)
        self._depths = torch.zeros(0, dtype=torch.long)

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return self.model.device

    def reset(self, prompt_ids: Int[Tensor, " prompt"], target: ModelOutput) -> None:
        """Read the prompt into the draft's own cache."""
        self.model.reset(prompt_ids.shape[0] + ROOM)
        self.model.prefill(prompt_ids.to(self.model.device))

    def begin(self, context: Context) -> ModelOutput:
        """Read the committed tokens that the cache lacks; the root always, since its row is asked for."""
        self._clock = context.clock
        self.model.cache.truncate(len(context.tokens) - 1)
        unread = torch.tensor(context.tokens[self.model.cache.length :]).to(self.device, non_blocking=True)
        with self._clock.span("draft", tokens=unread.shape[0]):
            output = self.model.extend(unread)
        self._start = self.model.cache.length
        self._visible = torch.zeros(0, 0, dtype=torch.bool, device=self.model.device)
        self._depths = torch.zeros(0, dtype=torch.long, device=self.model.device)
        return ModelOutput(output.logits[-1:], None if output.hidden is None else output.hidden[-1:])

    def expand(self, tokens: Int[Tensor, " new"], parents: Int[Tensor, " new"]) -> ModelOutput:
        """One forward over a layer of nodes; a node's mask row is its parent's and itself."""
        rows = self._grow_mask(parents)
        layout = tree_layout(
            rows,
            rows.sum(-1) - 1,
            prefix=self._start,
            max_positions=self.model.max_positions,
            dtype=self.model.dtype,
        )
        with self._clock.span("draft", tokens=tokens.shape[0]):
            return self.model(tokens, layout)

    def commit(self, slots: Int[Tensor, " kept"], verdict: Verdict, target: ModelOutput) -> None:
        """Keep the keys and values of accepted nodes."""
        self.model.cache.commit(self._start, slots)

    def _grow_mask(self, parents: Int[Tensor, " new"]) -> Bool[Tensor, "new slots"]:
        old, new = self._visible.shape[0], parents.shape[0]
        visible = torch.zeros(old + new, old + new, dtype=torch.bool, device=parents.device)
        visible[:old, :old] = self._visible
        if old:
            visible[old:, :old] = self._visible[parents.clamp(min=0)] & (parents >= 0)[:, None]
        visible[old:, old:].fill_diagonal_(True)
        self._visible = visible
        return visible[old:]
