"""Draft models that give the distributions of all depths in one forward: a node's row is that of its depth."""

from abc import ABC, abstractmethod

import torch
from jaxtyping import Float, Int
from torch import Tensor

from specdec_core.drafters.base import Context
from specdec_core.errors import PairError
from specdec_core.models.causal_lm import Layers, ModelOutput
from specdec_core.models.head import Head
from specdec_core.tree import Verdict


class DepthDraft(ABC):
    """The rows of one forward, and how deep every slot stands; what is deeper than they are is uniform."""

    model: Head

    def __init__(self, model: Head, max_depth: int) -> None:
        self.model = model
        self.vocab_size, self.max_positions = model.vocab_size, model.max_positions
        self.needs_hidden: Layers = model.layers
        self.max_depth: int | None = max_depth
        self._rows = torch.zeros(0, 0)  # row d: of the children of nodes at depth d; a uniform one behind them
        self._depths = torch.zeros(1, dtype=torch.long)  # of the root, and behind it of every slot

    @property
    def device(self) -> torch.device:
        """Where the head is."""
        return self.model.device

    @abstractmethod
    def reset(self, prompt_ids: Int[Tensor, " prompt"], target: ModelOutput) -> None:
        """Take the prompt's features."""

    @abstractmethod
    def rows(self, context: Context) -> Float[Tensor, "depths vocab"]:
        """The one forward of a step: logits of the root's children and of those below; of a virtual root its own."""

    @abstractmethod
    def commit(self, slots: Int[Tensor, " kept"], verdict: Verdict, target: ModelOutput) -> None:
        """Take the features of the accepted nodes."""

    def begin(self, context: Context) -> ModelOutput:
        """The one forward of a step."""
        rows = self.rows(context)
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


def features_of(target: ModelOutput) -> Float[Tensor, "tokens features"]:
    """The target's features; PairError where it keeps none."""
    if target.hidden is None:
        raise PairError("heads read the target's hidden states; set target.keep_hidden before the prefill")
    return target.hidden
