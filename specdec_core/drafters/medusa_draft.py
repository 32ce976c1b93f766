"""Medusa's heads as draft model: what is proposed depends on how deep a node stands, not on its path."""

import torch
from jaxtyping import Int
from torch import Tensor

from specdec_core.drafters.base import Context
from specdec_core.errors import PairError
from specdec_core.models.causal_lm import Layers, ModelOutput
from specdec_core.models.medusa import Medusa
from specdec_core.roots import Virtual
from specdec_core.tree import Verdict


class MedusaDraft:
    """Drafts with `Medusa` (section 2.1.1). Below a pending root, children of depth d + 1 come from head d.

    The feature is the target's at the last token that it has read: of a pending root the token before it, of a virtual
    root the root, whose own children the target has predicted already and the heads those below.
    """

    def __init__(self, model: Medusa) -> None:
        self.model = model
        self.vocab_size, self.max_positions = model.vocab_size, model.max_positions
        self.needs_hidden: Layers = model.layers
        self.max_depth: int | None = len(model.heads)
        empty = torch.zeros(0, 0)
        self._feature = empty
        self._rows = empty  # row d: of the children of nodes at depth d; a uniform one behind them
        self._depths = torch.zeros(1, dtype=torch.long)  # of the root, and behind it of every slot

    @property
    def device(self) -> torch.device:
        """Where the heads are."""
        return self.model.device

    def reset(self, prompt_ids: Int[Tensor, " prompt"], target: ModelOutput) -> None:
        """Take the feature of the prompt's last token."""
        self._take(target, -1)

    def begin(self, context: Context) -> ModelOutput:
        """The one forward of a step."""
        with context.clock.span("draft", tokens=1, device=self.device):
            rows = self.model(self._feature)
        if isinstance(context.root, Virtual):
            rows = torch.cat((context.root.probs.to(rows).log()[None], rows))
        self._rows = torch.cat((rows, torch.zeros_like(rows[:1])))
        self._depths = torch.zeros(1, dtype=torch.long, device=self.device)
        return ModelOutput(self._rows[:1])

    def begin_below(self, context: Context, tokens: Int[Tensor, " first"]) -> ModelOutput:
        """The same forward, and the rows of the first level."""
        self.begin(context)
        return self.expand(tokens, torch.full_like(tokens, -1))

    def expand(self, tokens: Int[Tensor, " new"], parents: Int[Tensor, " new"]) -> ModelOutput:
        """No forward: the rows of the nodes' depths."""
        depths = self._depths[parents + 1] + 1
        self._depths = torch.cat((self._depths, depths))
        return ModelOutput(self._rows[depths.clamp(max=self._rows.shape[0] - 1)])

    def commit(self, slots: Int[Tensor, " kept"], verdict: Verdict, target: ModelOutput) -> None:
        """Take the feature of the last accepted node."""
        self._take(target, int(verdict.path[-1]))

    def _take(self, target: ModelOutput, row: int) -> None:
        if target.hidden is None:
            raise PairError("Medusa's heads read the target's hidden states; set target.keep_hidden before the prefill")
        self._feature = target.hidden[row].to(self.device, self.model.dtype)
