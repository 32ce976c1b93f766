"""Target-initialised trees: the first level is drawn from the target's own distribution (Lu et al., 2024)."""

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from specdec_core.drafters.base import Context
from specdec_core.drafters.early_stop import Stop
from specdec_core.drafters.static_tree import StaticTree
from specdec_core.drafters.tree_drafter import AnyDraft, Drafted
from specdec_core.errors import PairError
from specdec_core.roots import Virtual
from specdec_core.sampling import draw_children
from specdec_core.shapes import branching
from specdec_core.tree import TokenTree


class TargetInit(StaticTree):
    """`widths[0]` tokens from the target's next-token distribution, and below each `widths[1]` children, and so on.

    The root is virtual: the target's distribution after it is known from the step before, so that no forward is wasted
    on a bonus token. Levels from the second on are the draft's, picked as `draws` says; the first is drawn without
    replacement, at temperature 0 it is the target's best tokens. Its nodes are not judged: rules for such trees
    (`IndependentLongest`, `LongestSubtree`) choose one of them by what is accepted below. Where the distribution has
    fewer tokens (top-p) the level is smaller. `edge_probs` of the first level are shares of what was drawn.
    """

    virtual_root = True

    def __init__(
        self,
        *,
        draft: AnyDraft,
        widths: Sequence[int],
        draws: str = "without_replacement",
        draft_temperature: float = 1.0,
        stop: Stop | None = None,
    ) -> None:
        if len(widths) < 2 or min(widths) < 1:
            raise ValueError(f"TargetInit's widths={list(widths)} leave nothing to draft; give two positive ones")
        shape = branching([min(widths[0], draft.vocab_size), *widths[1:]])
        super().__init__(draft=draft, shape=shape, draws=draws, draft_temperature=draft_temperature, stop=stop)
        self.draws = f"{'target' if widths[0] == 1 else 'targets'}_{draws}"
        device = self.draft.device
        self._branch = torch.tensor([path[0] for path in self.shape.paths], device=device)
        self._width = len(self.shape.levels[1])
        # the root's distribution is not the draft's
        self._cuts = [cut._replace(rows=torch.where(cut.rows > 0, cut.rows - 1, -1)) for cut in self._cuts]

    def draft_tree(self, context: Context) -> Drafted:
        """Draw the first level, then draft the others; the first draft forward reads what is unread and that level."""
        if not isinstance(context.root, Virtual):
            raise PairError(
                "TargetInit starts from the target's distribution, which the rule left out; use a rule for such trees"
            )
        p = context.root.probs.to(self.draft.device)
        picks = "topk" if context.greedy else "without_replacement"
        probs, ids = draw_children(p[None], self._width, picks, context.rng)
        tokens = [torch.full_like(ids[0, :1], context.tokens[-1]), ids[0]]
        edges = [torch.ones_like(probs[0, :1]), probs[0] / probs[0].sum()]
        tree, slots = self._drafted(context, self.draft.begin_below(context, ids[0]), 2, tokens, edges)
        if context.greedy:  # a best token may have no probability left in float32; then 0 is behind stop tokens alone
            drawn = tree.required_edge_probs
            tree = replace(tree, edge_probs=drawn.clamp(min=torch.finfo(drawn.dtype).tiny))
        return self._without_impossible(_ended(tree, context.eos_token_ids), slots, probs[0] > 0)

    def _without_impossible(
        self, tree: TokenTree, slots: Int[Tensor, " nodes"], possible: Bool[Tensor, " first"]
    ) -> Drafted:
        """Without the nodes below first tokens that the target's distribution does not have."""
        if bool(possible.all()):
            return tree, slots
        kept = torch.cat((torch.ones_like(possible[:1]), possible[self._branch[: tree.num_drafted]]))
        parents = (kept.cumsum(0) - 1)[tree.parents[kept]]
        parents[:1] = -1
        rows = None if tree.draft_rows is None else tree.draft_rows[kept]
        tree = TokenTree(tree.tokens[kept], parents, tree.required_edge_probs[kept], tree.draft_probs, rows)
        return tree, slots[kept.cpu()]


def _ended(tree: TokenTree, eos_token_ids: frozenset[int]) -> TokenTree:
    """The tree with probability 0 for what is drafted behind a stop token, where no answer goes on."""
    if not eos_token_ids:
        return tree
    # compared with numbers of the host: to upload them, a step would wait
    stops = reduce(torch.logical_or, [tree.tokens == token for token in eos_token_ids])
    stops[:1] = False  # the root is committed: an answer that goes on behind it does so
    behind = (tree.ancestor_mask & stops).sum(-1) > stops
    return replace(tree, edge_probs=tree.required_edge_probs.masked_fill(behind, 0.0))
