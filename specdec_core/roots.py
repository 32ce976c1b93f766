"""The two kinds of root: pending, which the target has yet to read, and virtual, which it has read already."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from specdec_core.errors import NonFiniteLogitsError
from specdec_core.models.causal_lm import ModelOutput
from specdec_core.sampling import Sampling
from specdec_core.tree import Verdict


@dataclass(frozen=True, slots=True)
class Pending:
    """A root that the target reads with its tree."""

    first: ClassVar[int] = 0
    """The first node of a tree that the target reads."""

    def whole(self, scored: ModelOutput) -> ModelOutput:
        """A row for every node of a tree, from the rows of those that were read: the same."""
        return scored


@dataclass(frozen=True, slots=True, eq=False)
class Virtual:
    """A root that the target has in its cache, with the distribution of the token after it."""

    probs: Float[Tensor, " vocab"]
    """`Sampling.open_probs`: sampling settings are applied, but for temperature 0."""
    hidden: Float[Tensor, " hidden"] | None = None
    """The target's features of the root, if it keeps them."""
    first: ClassVar[int] = 1
    """The first node of a tree that the target reads."""

    def whole(self, scored: ModelOutput) -> ModelOutput:
        """A row for every node of a tree, from the rows of those that were read: the root's is known."""
        logits, hidden = torch.cat((self.probs.log()[None].to(scored.logits.dtype), scored.logits)), scored.hidden
        if hidden is not None and self.hidden is not None:
            hidden = torch.cat((self.hidden[None], hidden))
        return ModelOutput(logits, hidden, self.probs)


Root = Pending | Virtual


def root_after(verdict: Verdict, hidden: Float[Tensor, "nodes hidden"] | None) -> Root:
    """The root that a verdict leaves. `hidden` has the target's features of the judged nodes."""
    if verdict.next_probs is None:
        return Pending()
    return Virtual(verdict.next_probs, None if hidden is None else hidden[verdict.path[-1]])


def after_prompt(scored: ModelOutput, sampling: Sampling, rng: Generator, *, virtual: bool) -> Verdict:
    """The verdict of a prefill on the prompt's last token: it leaves the first new token, or its distribution.

    Raises NonFiniteLogitsError where the target returned NaN or infinite logits.
    """
    last, path = scored.logits[-1], torch.tensor([-1])
    if virtual and bool(last.max().isfinite()):
        return Verdict(path, (), None, sampling.open_probs(last))
    if virtual or (first := int(sampling.draw(last, rng))) < 0:
        raise NonFiniteLogitsError("prefill: the target returned NaN or infinite logits")
    return Verdict(path, (), first)
