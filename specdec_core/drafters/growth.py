"""Growing a tree layer by layer and choosing its best nodes: what OPT-Tree and EAGLE-2 share."""

from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from specdec_core.drafters.base import Context, DraftModel
from specdec_core.sampling import INDEX_LIMIT, draft_probs, key_index, rank_keys, top_k
from specdec_core.sending import sent
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
    chosen = key_index(rank_keys(products).topk(min(n, products.shape[0]), largest=False).values)
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
        self.temperature, self.depth = temperature, 0
        if layer_size > MAX_LAYER or size > MAX_LAYER:
            raise ValueError(f"trees of more than {MAX_LAYER} nodes per layer are not supported, {size} were asked for")
        logits = draft.begin(context).logits
        device = logits.device
        self._only_best = only_best and device.type == "cpu"
        self._best = torch.zeros(0, dtype=torch.long, device=device)
        self._paths = [torch.ones(1, dtype=torch.float64, device=device)]
        self._tokens = [torch.full((1,), context.tokens[-1], device=device)]
        self._parents = [self._best.new_zeros(1)]  # rows of the layer above
        self._edges = [torch.ones(1, device=device)]
        self._read: list[int] = []  # of each layer above the last, how many nodes the draft has read: its first ones
        self._add(logits, self._paths[0])

    def progress(self) -> tuple[float, int]:
        """E_sub(size), root excluded, and how many nodes of the last layer are among the best: its first ones.

        The one read from the device per layer, for methods whose stopping rule needs it.
        """
        chosen = key_index(self._best)
        paths, index = torch.stack((torch.cat(self._paths)[chosen], chosen.view(torch.float64))).cpu()
        return float(paths.sum()), int((index.view(torch.int64) >= self._first).sum())

    def deepen(self, count: int) -> None:
        """Let the draft read the `count` best nodes of the last layer, and add the layer below them."""
        layer = self.layer
        count = min(count, layer.tokens.shape[0])
        above = sum(self._read) - self._read[-1] if self._read else -1  # the slot of the first row above, or the root's
        logits = self.draft.expand(layer.tokens[:count], layer.parents[:count] + above).logits
        self._read.append(count)
        self._add(logits, layer.paths[:count])

    def tree(self) -> tuple[TokenTree, Int[Tensor, " nodes"]]:
        """The tree of the best nodes in creation order, and their slots in the draft (-1: never read)."""
        chosen = torch.cat((key_index(self._best), self._best.new_zeros(1))).sort().values
        first_rows, slots = sent(torch.from_numpy(self._places()), chosen.device)[:, chosen]
        parents = torch.searchsorted(chosen, torch.cat(self._parents)[chosen] + first_rows)
        parents[:1] = -1
        return TokenTree(torch.cat(self._tokens)[chosen], parents, torch.cat(self._edges)[chosen]), slots

    def _places(self) -> Int[np.ndarray, "two created"]:
        """Of all nodes: creation index of the first node of the layer above, and slot in the draft (-1: not read)."""
        sizes = [tokens.shape[0] for tokens in self._tokens]
        places, first, above, used = np.full((2, sum(sizes)), -1), 1, 0, 0
        for size, read in zip(sizes[1:], [*self._read, 0], strict=True):
            places[0, first : first + size] = above
            places[1, first : first + read] = range(used, used + read)
            first, above, used = first + size, first, used + read
        return places

    def _add(self, logits: Float[Tensor, "rows vocab"], paths: Float[Tensor, " rows"]) -> None:
        full = self._only_best and self._best.shape[0] == self.size
        above = torch.cat(self._paths)[key_index(self._best[-1])] if full else None
        layer = best_children(draft_probs(logits, self.temperature), paths, self.layer_size, self.width, above)
        self.layer, self._first, self.depth = layer, sum(paths.shape[0] for paths in self._paths), self.depth + 1
        keys = torch.cat((self._best, rank_keys(layer.paths, self._first)))
        self._best = keys.topk(min(self.size, keys.shape[0]), largest=False).values
        self._paths.append(layer.paths)
        self._tokens.append(layer.tokens)
        self._parents.append(layer.parents)
        self._edges.append(layer.edges)
