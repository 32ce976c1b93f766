"""Growing a tree layer by layer and choosing its best nodes: what OPT-Tree and EAGLE-2 share."""

from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from specdec_core.drafters.base import Context, DraftModel
from specdec_core.sampling import INDEX_LIMIT, draft_probs, key_index, rank_keys, top_k
from specdec_core.tree import TokenTree

MAX_LAYER = 1024
"""Nodes per layer: 1024 parents of 1024 children each are what the index inside a key can tell apart."""


class Layer(NamedTuple):
    """Nodes of one depth, best first: path probability descending, then parent, then token id."""

    tokens: Int[Tensor, " layer"]
    parents: Int[Tensor, " layer"]  # row of the parent among the nodes that were expanded
    edges: Float[Tensor, " layer"]  # q(token | parent)
    paths: Float[Tensor, " layer"]  # product from the root, float64


def best_children(
    q: Float[Tensor, "rows vocab"],
    paths: Float[Tensor, " rows"],
    n: int,
    width: int,
    above: Float[Tensor, ""] | None = None,
) -> Layer:
    """Of the `width` best children of every given node, the n best by path probability.

    Where no node's children are bounded below n and there are few of them, they are ranked in one go: a top-k of 60
    rows costs several times the top-k of all their entries. With `above` few are left: children of no larger path
    probability may be left out. A GPU would be waited for.
    """
    bounded, places, ids = width < min(n, q.shape[-1]), None, None
    if above is not None and not bounded:
        places = _exceeding(q, above / paths)
    if places is None and (bounded or q.numel() > INDEX_LIMIT):
        q, ids = top_k(q, min(width, q.shape[-1]))
    edges, columns = q.flatten(), q.shape[-1]
    if places is None:
        products = (paths[:, None] * q).flatten()
    else:
        edges = edges[places]
        products = paths[places // columns] * edges
    chosen = key_index(rank_keys(products).topk(min(n, products.shape[0])).values)
    found = chosen if places is None else places[chosen]
    tokens = found % columns if ids is None else ids.flatten()[found]
    return Layer(tokens, found // columns, edges[chosen], products[chosen])


def _exceeding(q: Float[Tensor, "rows vocab"], least: Float[Tensor, " rows"]) -> Int[Tensor, " found"] | None:
    """Where q, flattened, is larger than its row's `least`, or about as large; None where that is too often."""
    marks = q >= (least * (1 - 1e-6)).to(q.dtype)[:, None]
    found = np.flatnonzero(marks.numpy())
    return torch.from_numpy(found) if found.shape[0] <= INDEX_LIMIT else None


class Growth:
    """One step's nodes in creation order, and the keys of the `size` best of them.

    The root has creation index 0 and stands outside the `size` best. Ties go to the earlier node, hence to the
    shallower: the best nodes are closed under parents, also where edge probabilities are exactly 1 or path
    probabilities underflow to 0 (OPT-Tree, Algorithm 1, with the tie rule it leaves open).
    """

    def __init__(
        self,
        draft: DraftModel,
        context: Context,
        *,
        size: int,
        width: int,
        layer_size: int,
        temperature: float,
        only_best: bool = False,
    ) -> None:
        """With `only_best` layers may lack nodes that can no longer be among the best."""
        self.draft, self.size, self.width, self.layer_size = draft, size, width, layer_size
        self.temperature, self.depth, self._used = temperature, 0, 0
        if layer_size > MAX_LAYER or size > MAX_LAYER:
            raise ValueError(f"trees of more than {MAX_LAYER} nodes per layer are not supported, {size} were asked for")
        logits = draft.begin(context).logits
        device = logits.device
        self._only_best = only_best and device.type == "cpu"
        self._best = torch.zeros(0, dtype=torch.long, device=device)
        self._paths = torch.ones(1, dtype=torch.float64, device=device)
        self._tokens = [torch.full((1,), context.tokens[-1], device=device)]
        self._parents = [torch.full((1,), -1, device=device)]
        self._edges = [torch.ones(1, device=device)]
        self._slots = [torch.full((1,), -1, device=device)]
        self._layer_slots = self._slots[0]
        self._add(logits, self._paths, first_parent=0)

    def progress(self) -> tuple[float, int]:
        """E_sub(size), root excluded, and how many nodes of the last layer are among the best: its first ones.

        The one read from the device per layer, for methods whose stopping rule needs it.
        """
        chosen = key_index(self._best)
        alive = (chosen >= self._first).sum().double()
        expected, count = torch.stack((self._paths[chosen].sum(), alive)).tolist()
        return expected, int(count)

    def deepen(self, count: int) -> None:
        """Let the draft read the `count` best nodes of the last layer, and add the layer below them."""
        layer = self.layer
        count = min(count, layer.tokens.shape[0])
        logits = self.draft.expand(layer.tokens[:count], self._layer_slots[layer.parents[:count]]).logits
        self._layer_slots = torch.arange(self._used, self._used + count, device=logits.device)
        self._slots[-1][:count] = self._layer_slots
        self._used += count
        self._add(logits, layer.paths[:count], first_parent=self._first)

    def tree(self) -> tuple[TokenTree, Int[Tensor, " nodes"]]:
        """The tree of the best nodes in creation order, and their slots in the draft (-1: never read)."""
        chosen = torch.cat((key_index(self._best), self._best.new_zeros(1))).sort().values
        parents = torch.searchsorted(chosen, torch.cat(self._parents)[chosen])
        parents[:1] = -1
        tree = TokenTree(torch.cat(self._tokens)[chosen], parents, torch.cat(self._edges)[chosen])
        return tree, torch.cat(self._slots)[chosen]

    def _add(self, logits: Float[Tensor, "rows vocab"], paths: Float[Tensor, " rows"], first_parent: int) -> None:
        full = self._only_best and self._best.shape[0] == self.size
        above = self._paths[key_index(self._best[-1])] if full else None
        layer = best_children(draft_probs(logits, self.temperature), paths, self.layer_size, self.width, above)
        self.layer, self._first, self.depth = layer, self._paths.shape[0], self.depth + 1
        keys = torch.cat((self._best, rank_keys(layer.paths, self._first)))
        self._best = keys.topk(min(self.size, keys.shape[0])).values
        self._paths = torch.cat((self._paths, layer.paths))
        self._tokens.append(layer.tokens)
        self._parents.append(layer.parents + first_parent)
        self._edges.append(layer.edges)
        self._slots.append(torch.full_like(layer.tokens, -1))
