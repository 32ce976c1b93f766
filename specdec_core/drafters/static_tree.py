"""Trees of a fixed shape: chains, k-ary trees, sequences, EAGLE's tree, Sequoia's trees."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Int
from torch import Tensor

from specdec_core.drafters.base import Context
from specdec_core.drafters.early_stop import Stop
from specdec_core.drafters.tree_drafter import AnyDraft, Drafted, TreeDrafter
from specdec_core.models.causal_lm import ModelOutput
from specdec_core.sampling import Sampling, check_draws, draw_children
from specdec_core.shapes import TreeShape
from specdec_core.sliced_mask import SlicedMask
from specdec_core.tree import TokenTree


class _Level(NamedTuple):
    """How the nodes of one depth come from the level above; all indices are fixed by the shape."""

    width: int  # the most children that a node above has
    counts: Int[Tensor, " above"]  # how many each expanded node above has
    rows: Int[Tensor, " level"]  # which expanded node of the level above
    ranks: Int[Tensor, " level"]  # which of its children
    inner: Int[Tensor, " inner"]  # which of this level's nodes are expanded next
    parent_slots: Int[Tensor, " inner"]  # their parents' slots in the draft


class _Cut(NamedTuple):
    """The tree down to some depth, whose last level no draft has read."""

    parents: Int[Tensor, " nodes"]
    rows: Int[Tensor, " nodes"]  # of the draft's distributions; -1 where there is none
    slots: Int[Tensor, " nodes"]  # in the draft, on the host; -1 where it read none


class StaticTree(TreeDrafter):
    """A tree of given shape; only its inner nodes are read by the draft, one forward per depth that has some.

    `draws` says how a node's children are picked: its best tokens (`topk`), independent draws from q (`iid`, siblings
    may repeat a token), successive draws (`without_replacement`), or a draw from q without its best tokens, and these
    (`greedy_one`). That draw comes first, since it is judged first, and stands for the shape's last sibling. Ranks
    beyond the vocabulary and levels beyond the draft's `max_depth` are dropped. q is the draft's distribution at
    `draft_temperature` within its top `draft_top_p` of probability. Masks are views of those of the whole tree, made
    before decoding. A `stop` may end the tree behind a level; what was drafted stays, so that no distribution changes.
    Independent draws that repeat a path are `merged` into a trie (`trie`), or keep a subtree each, of which no rule can
    reach the second.
    """

    def __init__(
        self,
        *,
        draft: AnyDraft,
        shape: TreeShape,
        draws: str = "topk",
        draft_temperature: float = 1.0,
        draft_top_p: float = 1.0,
        stop: Stop | None = None,
        merged: bool = False,
    ) -> None:
        super().__init__(draft, draft_temperature)
        self.draft_sampling = Sampling(draft_temperature, draft_top_p)
        check_draws(draws)
        self.draws = self.picks = draws
        shape = shape if draws == "iid" else shape.limited(self.draft_model.vocab_size)
        shape = shape.cut(self.deepest(shape.depth))
        self.shape = shape.last_first() if draws == "greedy_one" else shape
        if not self.shape.num_drafted:
            raise ValueError("the tree shape has no nodes; use the autoregressive drafter for a bare root")
        self.stop, self.merged = stop, merged and draws == "iid"
        if self.merged and not leads(self.shape):
            raise ValueError("merged is for shapes in whose levels the nodes with children come first")
        self.reads_draft_hidden = stop is not None and stop.needs_hidden
        self._index_nodes()

    def _index_nodes(self) -> None:
        """All that follows from the shape: how levels are drafted, the tree down to every depth, and its masks."""
        device, shape = self.draft_model.device, self.shape
        inner = [node for node, count in enumerate(shape.num_children) if count]
        rows = torch.full((shape.num_drafted + 1,), -1)
        rows[inner] = torch.arange(len(inner))
        slots = (rows - 1).clamp(min=-1)  # the root has none
        self._cuts = [self._cut(depth, rows.to(device), slots) for depth in range(1, shape.depth + 1)]
        self._levels = [self._level(depth, slots.tolist()) for depth in range(1, shape.depth + 1)]
        self._above = [torch.tensor(one, device=device) for one in levels_above(shape)] if self.merged else []
        self.sliced = SlicedMask(shape.parents)
        place = {node: number for number, node in enumerate(inner)}
        self.sliced_for_draft = SlicedMask([place.get(shape.parents[node], -1) for node in inner])

    def draft_tree(self, context: Context) -> Drafted:
        """Draft level by level."""
        drafted, device = self.draft.begin(context), self.draft.device
        root = torch.full((1,), context.tokens[-1], device=device)
        return self._drafted(context, drafted, 1, [root], [torch.ones(1, device=device)])

    def _drafted(
        self, context: Context, drafted: ModelOutput, first: int, tokens: list[Tensor], edges: list[Tensor]
    ) -> Drafted:
        """Draft levels from depth `first` on below the nodes that there are; `drafted` is of those with children."""
        draft_probs = []
        for depth in range(first, self.shape.depth + 1):
            level = self._levels[depth - 1]
            q = self.draft_sampling.probs(drafted.logits)
            draft_probs.append(q)
            probs, ids = draw_children(q, level.width, self.picks, context.rng, level.counts)
            tokens.append(ids[level.rows, level.ranks])
            edges.append(probs[level.rows, level.ranks])
            if depth == self.shape.depth or self._stops(context, drafted):
                break
            drafted = self.draft.expand(tokens[-1][level.inner], level.parent_slots)
        cut = self._cuts[depth - 1]
        tree = torch.cat(tokens), cut.parents, torch.cat(edges)
        if self.picks == "topk":  # such children follow no distribution that a rule could compare with p
            return TokenTree(*tree, sliced=self.sliced), cut.slots
        drawn = torch.cat(draft_probs), cut.rows
        if self.merged:
            return TokenTree(tree[0], trie(tokens, self._above), tree[2], *drawn), cut.slots
        return TokenTree(*tree, *drawn, sliced=self.sliced), cut.slots

    def _stops(self, context: Context, drafted: ModelOutput) -> bool:
        if self.stop is None:
            return False
        with context.clock.span("decision", tokens=drafted.logits.shape[0], device=self.draft.device):
            return not self.stop.goes_on(drafted)

    def _cut(self, depth: int, rows: Tensor, slots: Tensor) -> _Cut:
        """Of the whole tree's rows and slots; at the last level there are none."""
        end, read = self.shape.levels[depth].stop, self.shape.levels[depth].start
        rows, slots = rows[:end].clone(), slots[:end].clone()
        rows[read:] = slots[read:] = -1
        return _Cut(torch.tensor(self.shape.parents[:end], device=rows.device), rows, slots)

    def _level(self, depth: int, all_slots: list[int]) -> _Level:
        above, here = self.shape.levels[depth - 1], self.shape.levels[depth]
        counts, parents, ranks = self.shape.num_children, self.shape.parents, self.shape.ranks
        row = {node: row for row, node in enumerate(node for node in above if counts[node])}
        inner = [node for node in here if counts[node]]
        slots = [all_slots[parents[node]] for node in inner]

        def index(values: list[int]) -> Tensor:
            return torch.tensor(values, dtype=torch.long, device=self.draft_model.device)

        return _Level(
            width=max(counts[node] for node in above),
            counts=index([counts[node] for node in row]),
            rows=index([row[parents[node]] for node in here]),
            ranks=index([ranks[node] for node in here]),
            inner=index([node - here.start for node in inner]),
            parent_slots=index(slots),
        )


def leads(shape: TreeShape) -> bool:
    """Whether in every level the nodes with children come first: then a repeated path's first node is read too."""
    levels = [[shape.num_children[node] > 0 for node in level] for level in shape.levels]
    return all(level == sorted(level, reverse=True) for level in levels)


def levels_above(shape: TreeShape) -> list[list[int]]:
    """Of every level below the root, which node of the level above each of its nodes is a child of."""
    return [
        [shape.parents[node] - above.start for node in level]
        for above, level in zip(shape.levels, shape.levels[1:], strict=False)
    ]


def trie(tokens: Sequence[Int[Tensor, " _"]], above: Sequence[Int[Tensor, " _"]]) -> Int[Tensor, " nodes"]:
    """Parents of the nodes of a tree, level by level, where paths that were drawn again go on below their first node.

    A node that repeats a path stays, as a leaf: a rule judges every draw. Siblings stand in draft order. `above` as of
    `levels_above`. No read from the device.
    """
    first, start = torch.zeros_like(tokens[0]), 0  # of the level above: its nodes' paths by their first nodes
    parents = [first - 1]
    for ids, places in zip(tokens[1:], above, strict=False):
        parent = first[places]
        parents.append(parent)
        start += first.shape[0]
        first = ((parent[:, None] == parent) & (ids[:, None] == ids)).int().argmax(-1) + start
    return torch.cat(parents)
