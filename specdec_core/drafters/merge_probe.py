"""An instrument for GSD's Table 5: what merging does to the draft's next distribution."""

from dataclasses import replace

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy import ndarray
from torch import Tensor

from specdec_core.drafters.graph_growth import GraphGrowth
from specdec_core.drafters.token_graph import TokenGraph
from specdec_core.drafters.tree_drafter import Drafted
from specdec_core.graph import DraftGraph, Kind


class MergeProbe(TokenGraph):
    """A `TokenGraph` that has the draft read every alias on its own path too, and compares what it says next.

    Same graph, same tree; its `DraftGraph.merge_kl` has a value per alias in creation order. The further reads are
    within the measured time, so that its times are nobody's.
    """

    keeps_logits = True

    def _tree(self, growth: GraphGrowth, kept: list[Tensor]) -> Drafted:
        (tree, in_draft), slots = super()._tree(growth, kept), growth.slots
        graph = tree.origin
        assert isinstance(graph, DraftGraph)
        aliases = np.flatnonzero(graph.kinds == Kind.ALIAS)
        firsts = graph.merged_into[aliases]
        unread = np.unique(firsts[slots[firsts] < 0])  # of the last layer
        extra = np.concatenate((aliases, unread))
        rows = slots + 1  # the root's distribution comes first
        rows[extra] = slots.max() + 2 + np.arange(len(extra))
        further = [self._read(graph.tokens[extra], slots[graph.parents[extra]])] if len(extra) else []
        kl = self._divergence(torch.cat([*kept, *further]), rows[aliases], rows[firsts])
        return replace(tree, origin=replace(graph, merge_kl=kl)), in_draft

    def _divergence(
        self, logits: Float[Tensor, "read vocab"], own: Int[ndarray, " merges"], first: Int[ndarray, " merges"]
    ) -> Float[ndarray, " merges"]:
        """KL(own || first) in nats, of distributions at the draft's temperature; a probability of 0 adds nothing."""
        logs = (logits.double() / self.draft_temperature).log_softmax(-1)
        own_logs, first_logs = (logs[torch.from_numpy(rows)] for rows in (own, first))
        gaps = torch.where(own_logs.isfinite(), own_logs - first_logs, 0.0)
        return (own_logs.exp() * gaps).sum(-1).cpu().numpy()
