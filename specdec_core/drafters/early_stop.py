"""When to end a tree early: the last level drafted is kept and judged, whatever is said of it."""

from typing import Protocol, runtime_checkable

from specdec_core.models.causal_lm import ModelOutput
from specdec_core.models.decision import DecisionModel


@runtime_checkable
class Stop(Protocol):
    """Asked after every drafted level but the last possible one."""

    needs_hidden: bool
    """Whether it reads the draft's hidden states."""

    def goes_on(self, drafted: ModelOutput) -> bool:
        """Whether to draft another level. `drafted` is what the level just drafted was drawn from, a row per parent."""


class EarlyStop:
    """Goes on while any token's score is above `beta` (Lu et al., 2024, section 3.3).

    A score depends on the tokens drafted so far alone, so that ending a tree changes no distribution. One read from the
    device.
    """

    def __init__(self, model: DecisionModel, beta: float = 0.4) -> None:
        self.model, self.beta = model.requires_grad_(False), beta
        self.needs_hidden = model.needs_hidden

    def goes_on(self, drafted: ModelOutput) -> bool:
        """Whether the best score is above `beta`."""
        device = drafted.logits.device
        if next(self.model.parameters()).device != device:
            self.model.to(device)
        return bool((self.model.scores(drafted) > self.beta).any())
