"""Trees of a fixed shape: chains, k-ary trees, sequences, EAGLE's tree, Sequoia's trees."""

from typing import NamedTuple

import torch
from jaxtyping import Int
from torch import Tensor

from specdec_core.drafters.base import Context
from specdec_core.drafters.tree_drafter import AnyDraft, TreeDrafter
from specdec_core.sampling import Sampling, draw_children
from specdec_core.shapes import TreeShape
from specdec_core.tree import TokenTree

DRAWS = ("topk", "iid", "without_replacement")


class _Level(NamedTuple):
    """How the nodes of one depth come from the level above; all indices are fixed by the shape."""

    width: int  # the most children that a node above has
    rows: Int[Tensor, " level"]  # which expanded node of the level above
    ranks: Int[Tensor, " level"]  # which of its children
    inner: Int[Tensor, " inner"]  # which of this level's nodes are expanded next
    parent_slots: Int[Tensor, " inner"]  # their parents' slots in the draft


class StaticTree(TreeDrafter):
    """A tree of given shape; only its inner nodes are read by the draft, one forward per depth that has some.

    `draws` says how a node's children are picked: its best tokens (`topk`), independent draws from q (`iid`, siblings
    may repeat a token), or successive draws (`without_replacement`). Ranks beyond the vocabulary are dropped. q is the
    draft's law at `draft_temperature` within its top `draft_top_p` of probability.
    """

    def __init__(
        self,
        *,
        draft: AnyDraft,
        shape: TreeShape,
        draws: str = "topk",
        draft_temperature: float = 1.0,
        draft_top_p: float = 1.0,
    ) -> None:
        super().__init__(draft, draft_temperature)
        self.draft_sampling = Sampling(draft_temperature, draft_top_p)
        if draws not in DRAWS:
            raise ValueError(f"draws must be one of {', '.join(DRAWS)}, not {draws!r}")
        self.draws = self.picks = draws
        self.shape = shape if draws == "iid" else shape.limited(self.draft_model.vocab_size)
        if not self.shape.num_drafted:
            raise ValueError("the tree shape has no nodes; use the autoregressive drafter for a bare root")
        device = self.draft_model.device
        self._parents = torch.tensor(self.shape.parents, device=device)
        inner = [node for node, count in enumerate(self.shape.num_children) if count]
        self._rows = torch.full((self.shape.num_drafted + 1,), -1, device=device)
        self._rows[inner] = torch.arange(len(inner), device=device)
        self._slots = torch.full((self.shape.num_drafted + 1,), -1)
        self._slots[inner[1:]] = torch.arange(len(inner) - 1)
        self._levels = [self._level(depth) for depth in range(1, self.shape.depth + 1)]

    def grow(self, context: Context) -> TokenTree:
        """Draft level by level."""
        logits, device = self.draft.begin(context).logits, self.draft.device
        root = torch.full((1,), context.tokens[-1], device=device)
        return self._drafted(context, logits, self._levels, [root], [torch.ones(1, device=device)])

    def _drafted(
        self, context: Context, logits: Tensor, levels: list[_Level], tokens: list[Tensor], edges: list[Tensor]
    ) -> TokenTree:
        """Draft these levels below the nodes that there are; `logits` are those of the last ones that have children."""
        laws = []
        for level in levels:
            q = self.draft_sampling.probs(logits)
            laws.append(q)
            probs, ids = draw_children(q, level.width, self.picks, context.draft_rng or context.rng)
            tokens.append(ids[level.rows, level.ranks])
            edges.append(probs[level.rows, level.ranks])
            if level.inner.shape[0]:
                logits = self.draft.expand(tokens[-1][level.inner], level.parent_slots).logits
        tree = torch.cat(tokens), self._parents, torch.cat(edges)
        if self.picks == "topk":  # such children follow no law that a rule could compare with p
            return TokenTree(*tree)
        return TokenTree(*tree, torch.cat(laws), self._rows)

    def _level(self, depth: int) -> _Level:
        above, here = self.shape.levels[depth - 1], self.shape.levels[depth]
        counts, parents, ranks = self.shape.num_children, self.shape.parents, self.shape.ranks
        row = {node: row for row, node in enumerate(node for node in above if counts[node])}
        inner = [node for node in here if counts[node]]
        slots = [int(self._slots[parents[node]]) if parents[node] else -1 for node in inner]

        def index(values: list[int]) -> Tensor:
            return torch.tensor(values, dtype=torch.long, device=self.draft_model.device)

        return _Level(
            width=max(counts[node] for node in above),
            rows=index([row[parents[node]] for node in here]),
            ranks=index([ranks[node] for node in here]),
            inner=index([node - here.start for node in inner]),
            parent_slots=index(slots),
        )
