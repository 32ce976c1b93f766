"""EAGLE's head as draft model: true features of committed tokens, predicted ones below the root."""

import torch
from jaxtyping import Int
from torch import Tensor

from specdec_core.drafters.base import Context
from specdec_core.drafters.cached_draft import ROOM, CachedDraft
from specdec_core.errors import PairError
from specdec_core.models.causal_lm import ModelOutput
from specdec_core.models.eagle import EagleHead
from specdec_core.sending import sent
from specdec_core.tree import Verdict


class EagleDraft(CachedDraft):
    """Drafts with an `EagleHead` (EAGLE, section 4.1; EAGLE-3, section 3).

    The token at position i + 1 is read together with the feature at position i, under position id i: a node stands one
    position before its place in the target. Committed tokens are read with the target's own features, nodes of the
    tree with those that the head predicted at their parents; what was predicted is forgotten after every step.
    """

    def __init__(self, head: EagleHead) -> None:
        super().__init__(head)
        self.head, self.needs_hidden = head, head.layers
        empty = torch.zeros(0, 0)
        self._true = empty  # features of committed positions whose pairs are still unread
        self._parents = empty  # features at all slots; the last row is the root's (-1)

    def reset(self, prompt_ids: Int[Tensor, " prompt"], target: ModelOutput) -> None:
        """Read the prompt's pairs but for the last, so that `begin` always has one to read."""
        features = self._features_of(target)
        read = max(prompt_ids.shape[0] - 2, 0)
        self.head.reset(prompt_ids.shape[0] + ROOM)
        if read:
            self.head.extend(prompt_ids[1 : read + 1].to(self.device), features[:read])
        self._true = features[read:]

    def begin(self, context: Context) -> ModelOutput:
        """Read the committed tokens that the cache lacks, each with the target's feature of the position before it."""
        unread = self._unread(context, self.head.cache.length + 1)
        if not unread.shape[0]:
            raise PairError(
                "an EAGLE head has no distribution at the virtual root of a one-token prompt; use a longer prompt"
            )
        read, known = self._true.split((unread.shape[0], self._true.shape[0] - unread.shape[0]))
        with context.clock.span("draft", tokens=unread.shape[0], device=self.device):
            output = self.head.extend(unread, read)
        self._begin_tree(context)
        assert output.hidden is not None
        self._parents = known if known.shape[0] else output.hidden[-1:]  # a virtual root's own feature is known
        return ModelOutput(output.logits[-1:], self._parents)

    def begin_below(self, context: Context, tokens: Int[Tensor, " first"]) -> ModelOutput:
        """Two forwards: the first level is read with the feature that the first one gives at the root."""
        self.begin(context)
        return self.expand(tokens, torch.full_like(tokens, -1))

    def expand(self, tokens: Int[Tensor, " new"], parents: Int[Tensor, " new"]) -> ModelOutput:
        """One forward over a layer of nodes, each with the feature predicted at its parent."""
        layout = self._layout(parents)
        features = self._parents[parents]
        with self._clock.span("draft", tokens=tokens.shape[0], device=self.device):
            output = self.head(tokens, features, layout)
        assert output.hidden is not None
        self._parents = torch.cat((self._parents[:-1], output.hidden, self._parents[-1:]))
        return output

    def commit(self, slots: Int[Tensor, " kept"], verdict: Verdict, target: ModelOutput) -> None:
        """Forget the tree: the accepted tokens will be read again, with the features that the target gave them."""
        self.head.cache.truncate(self._start)
        self._true = self._features_of(target, verdict.path)

    def _features_of(self, target: ModelOutput, path: Tensor | None = None) -> Tensor:
        """The target's features, all or those of a path, moved to the head and joined once."""
        if target.hidden is None:
            raise PairError("an EAGLE head reads the target's hidden states; set target.keep_hidden before the prefill")
        hidden = target.hidden if path is None else target.hidden[sent(path, target.hidden.device)]
        return self.head.inward(hidden)
