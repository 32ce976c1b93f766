"""GSD: token graphs, in which hypotheses that meet again share what follows; with its sequence and tree baselines."""

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy import ndarray
from torch import Generator, Tensor

from specdec_core.drafters.base import Context
from specdec_core.drafters.graph_growth import GraphGrowth, GraphRules, at_least_one, one_of
from specdec_core.drafters.tree_drafter import AnyDraft, Drafted, TreeDrafter
from specdec_core.drafters.unmerging import CAP_ORDERS, unmerge
from specdec_core.errors import NonFiniteLogitsError
from specdec_core.graph import DraftGraph
from specdec_core.sampling import check_draws, draft_probs, draw_children
from specdec_core.sending import sent
from specdec_core.tree import TokenTree

DRAWS = ("topk", "iid")


class TokenGraph(TreeDrafter):
    """The token graph of Gong et al. (2024), sections 4 and 5, unmerged to a tree that the target verifies.

    Every node that goes on has its `k` most probable children, less those of q below `theta_sib` times q of the best;
    candidates of q below `theta_prob` are leaves. One whose last `tau` tokens ended at an earlier node already is
    merged into it. Drafting ends when no node goes on, or after `max_steps` draft forwards. `tau` None is a token tree
    (TSD), with `k` 1 a sequence (SSD). At most `verify_cap` nodes, to depth `unmerge_depth`, are verified.

    Where the paper is ambiguous, there is a choice. `pruning=paper` keeps what is pruned beside a sibling as a leaf
    (section 4.2 says both, "marked as a leaf" and "may not be necessary to keep"). `pruning=code` follows the public
    code: improbable nodes are read until no other is left; candidates are merged before they are too improbable, into
    leaves too and into nodes that lead to them, so that the tree goes round until its limits. With `tau_as_context`,
    tau counts the tokens before the redundant one, as that code does. With `cap_order=path_prob` the most probable
    nodes are verified, not the first in breadth.

    `draws=iid` draws the tokens of a sequence, for verifier=chain; what ends it is verified like the others.
    """

    keeps_logits = False
    """Whether what the draft made of every node is kept until the tree is there."""

    def __init__(
        self,
        *,
        draft: AnyDraft,
        k: int = 4,
        tau: int | None = 2,
        theta_prob: float = 0.2,
        theta_sib: float = 0.3,
        max_steps: int = 10,
        draft_node_cap: int = 10_000,
        verify_cap: int = 100,
        unmerge_depth: int | None = 10,
        draws: str = "topk",
        draft_temperature: float = 1.0,
        pruning: str = "siblings",
        tau_as_context: bool = False,
        cap_order: str = "breadth",
    ) -> None:
        super().__init__(draft, draft_temperature)
        self.rules = GraphRules(
            theta_prob=theta_prob,
            theta_sib=theta_sib,
            tau=tau,
            tau_as_context=tau_as_context,
            max_steps=self.deepest(max_steps),
            draft_node_cap=draft_node_cap,
            pruning=pruning,
        )
        at_least_one("k", k)
        at_least_one("verify_cap", verify_cap)
        at_least_one("unmerge_depth", 1 if unmerge_depth is None else unmerge_depth)
        check_draws(draws, DRAWS)
        one_of("cap_order", cap_order, CAP_ORDERS)
        if draws == "iid" and (k > 1 or tau is not None):
            raise ValueError("TokenGraph's draws=iid is for sequences: give k=1 and tau=null, or draws=topk")
        self.k, self.draws, self.keeps_logits = k, draws, self.keeps_logits or draws == "iid"
        self.verify_cap, self.unmerge_depth, self.cap_order = verify_cap, unmerge_depth, cap_order

    def draft_tree(self, context: Context) -> Drafted:
        """Draft a layer per forward, then unmerge."""
        growth, kept = GraphGrowth(context.tokens[-1], self.rules), []
        logits = self.draft.begin(context).logits
        while True:
            kept += [logits] * self.keeps_logits
            q = draft_probs(logits, self.draft_temperature)
            tokens, parent_slots = growth.add(*self._candidates(q, context.rng))
            if not len(tokens):
                return self._tree(growth, kept)
            logits = self._read(tokens, parent_slots)

    def _candidates(self, q: Float[Tensor, "frontier vocab"], rng: Generator) -> tuple[ndarray, ndarray]:
        """Tokens and probabilities of the best children, or of the one drawn. One read from the device."""
        probs, ids = draw_children(q, min(self.k, q.shape[-1]), self.draws, rng)
        found, drawn = torch.stack((probs.double(), ids.double())).cpu().numpy()
        if not np.isfinite(found).all():
            raise NonFiniteLogitsError("the draft returned NaN or infinite logits")
        return drawn.astype(np.int64), found.astype(np.float32)

    def _read(self, tokens: Int[ndarray, " new"], parent_slots: Int[ndarray, " new"]) -> Float[Tensor, "new vocab"]:
        """One draft forward over nodes below those in the slots given; merge edges give no attention."""
        new = sent(torch.from_numpy(np.stack((tokens, parent_slots))), self.draft.device)
        return self.draft.expand(new[0], new[1]).logits

    def _tree(self, growth: GraphGrowth, kept: list[Tensor]) -> Drafted:
        """What the target verifies; the draft keeps what it has read under the very ancestors of a path."""
        graph, slots, device = self._unmerged(growth), growth.slots, self.draft.device
        told = torch.from_numpy(np.stack((graph.tokens[graph.nodes], graph.tree_parents)))
        tokens, parents = sent(told, device)
        probs = rows = None
        if self.draws == "iid":  # a sequence: q at the root comes first, then at the nodes in their order
            probs = draft_probs(torch.cat(kept), self.draft_temperature)
            rows = torch.arange(len(tokens), device=device)
            rows[len(probs) :] = -1
        edges = sent(torch.from_numpy(graph.probs[graph.nodes]), device)
        tree = TokenTree(tokens, parents, edges, probs, rows, graph)
        return tree, torch.from_numpy(np.where(graph.behind_merge, -1, slots[graph.nodes]))

    def _unmerged(self, growth: GraphGrowth) -> DraftGraph:
        tokens, parents, probs, kinds, merged_into = growth.records
        cap, depth = self.verify_cap, self.unmerge_depth
        tree = unmerge(parents, probs, merged_into, cap=cap, depth=depth, order=self.cap_order)
        return DraftGraph(tokens, parents, probs, kinds, merged_into, *tree)
