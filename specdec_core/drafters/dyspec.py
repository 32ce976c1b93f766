"""DySpec: trees that grow where the draft is likely to go, their children drawn without replacement."""

from contextlib import AbstractContextManager, nullcontext

import numpy as np
import torch
from jaxtyping import Float
from torch import Generator, Tensor

from specdec_core.drafters.base import Context
from specdec_core.drafters.sites import Chosen, SiteHeap, Sites
from specdec_core.drafters.tree_drafter import AnyDraft, Drafted, TreeDrafter, check_delta
from specdec_core.errors import NonFiniteLogitsError
from specdec_core.sampling import check_draws, draft_probs, race, top_k
from specdec_core.sending import sent
from specdec_core.tree import TokenTree

DRAWS = ("without_replacement", "topk")
_FIRST_DRAWS = 64


class DySpec(TreeDrafter):
    """The tree of the n sampling sites of largest value (Xiong et al., 2024, Algorithm 1).

    The paper pops sites off a heap and runs the draft once per node. That order is not needed. The draws of a node are
    one exponential race, and the n best sites follow from the races, in whatever order they are looked at. Here the
    draft reads a layer at a time: every node whose first site could still be among the n best. Same races, same tree,
    one forward per layer; of the nodes read some are not in the tree. `DySpecHeap` is the paper's way.

    `draws=topk` takes the draft's best tokens in place of draws, with the same values. `record_parts` measures parts of
    the time of growing, which takes a little itself: `choice` of nodes and making the tree, `sampling` of tokens.
    """

    delta: float | None = None
    """Least gain of E(A) that a layer must bring for the next one to be drafted; None: there is no such bound."""

    def __init__(
        self,
        *,
        draft: AnyDraft,
        n: int,
        max_depth: int = 32,
        draws: str = "without_replacement",
        draft_temperature: float = 0.6,
        record_parts: bool = False,
    ) -> None:
        super().__init__(draft, draft_temperature)
        if n < 1:
            raise ValueError(f"DySpec's budget n must be at least 1 node, not {n}")
        if max_depth < 1:
            raise ValueError(f"DySpec's max_depth must be at least 1, not {max_depth}")
        check_draws(draws, DRAWS)
        self.n, self.max_depth, self.draws, self.record_parts = n, self.deepest(max_depth), draws, record_parts

    def draft_tree(self, context: Context) -> Drafted:
        """Draft layer by layer, then take the best sites' nodes."""
        sites = self._sites(context.tokens[-1])
        probs: list[Tensor] = []
        logits = self.draft.begin(context).logits
        while True:
            tokens, parent_slots = self._reveal(sites, logits, probs, context)
            if not len(tokens):
                break
            if self.delta is not None and not sites.gain > self.delta:
                sites.end()
                break
            new = sent(torch.from_numpy(np.stack((tokens, parent_slots))), logits.device)
            logits = self.draft.expand(new[0], new[1]).logits
        with self._span(context, "choice"):
            return self._tree(sites.chosen(), probs)

    def _sites(self, root: int) -> Sites:
        return Sites(root, self.n, max_depth=self.max_depth)

    def _reveal(
        self, sites: Sites, logits: Float[Tensor, "layer vocab"], probs: list[Tensor], context: Context
    ) -> tuple[np.ndarray, np.ndarray]:
        """Draw at every node of a layer, as often as there may be sites to choose. One read from the device.

        Where the first draws do not suffice more of the same race are looked at, which happens in flat distributions.
        """
        with self._span(context, "sampling"):
            q = draft_probs(logits, self.draft_temperature)
            times, total = None if self.draws == "topk" else race(q, context.rng), _total(q)
        probs.append(q)
        limit = min(self.n, q.shape[-1])
        width = limit if not sites.depth else min(limit, _FIRST_DRAWS)
        while True:
            with self._span(context, "sampling"):
                edges, ids = top_k(q, width) if times is None else _first(q, times, width)
                found, drawn = torch.stack((edges / total, ids.double())).cpu().numpy()
            _check_finite(found[:, 0])
            with self._span(context, "choice"):
                values = sites.values(found)
                if width == limit or not sites.wants_more(values):
                    return sites.add(drawn.astype(np.int64), found, values)
            width = min(limit, 4 * width)

    def _span(self, context: Context, name: str) -> AbstractContextManager[None]:
        return context.clock.span(name, device=self.draft.device) if self.record_parts else nullcontext()

    def _tree(self, nodes: Chosen, probs: list[Tensor]) -> Drafted:
        device = probs[0].device
        slots = torch.from_numpy(nodes.slots)
        rows = np.where(nodes.slots >= 0, nodes.slots + 1, -1)
        rows[0] = 0  # q at the root is the first, those of other nodes follow in the order in which they were read
        told = torch.from_numpy(np.stack((nodes.tokens, nodes.parents, rows)))
        tokens, parents, draft_rows = sent(told, device)
        tree = tokens, parents, sent(torch.from_numpy(nodes.edges).float(), device)
        if self.draws == "topk":  # such children follow no distribution that a rule could compare with p
            return TokenTree(*tree), slots
        return TokenTree(*tree, torch.cat(probs), draft_rows), slots


class DySpecThreshold(DySpec):
    """Every sampling site whose value reaches `threshold`, layer by layer, at most n (Xiong et al., 2024, Algorithm 2).

    `threshold` None is 1/n. Where a layer has more sites than the budget has room for, the most valuable are taken and
    the tree ends. The printed loop runs `while v < t`, with which it would never begin; sites of v >= t are meant.

    With `delta`, which the paper has not, growth ends behind a layer that raised E(A) by no more. Layers keep their
    sites whatever comes below them. Where deeper sites displace others, as in `DySpec`, such an end would look at drawn
    tokens, and the rule would lose the target's distribution.
    """

    def __init__(
        self,
        *,
        draft: AnyDraft,
        n: int,
        threshold: float | None = None,
        max_depth: int = 32,
        draws: str = "without_replacement",
        draft_temperature: float = 0.6,
        delta: float | None = None,
        record_parts: bool = False,
    ) -> None:
        check_delta(delta)
        super().__init__(
            draft=draft,
            n=n,
            max_depth=max_depth,
            draws=draws,
            draft_temperature=draft_temperature,
            record_parts=record_parts,
        )
        if threshold is not None and not threshold > 0:
            raise ValueError(f"DySpec's threshold must be positive (or null for 1/n), not {threshold}")
        self.threshold, self.delta = 1 / n if threshold is None else threshold, delta

    def _sites(self, root: int) -> Sites:
        return Sites(root, self.n, max_depth=self.max_depth, floor=self.threshold, settled=True)


class DySpecHeap(DySpec):
    """DySpec's tree as the paper grows it, one draft forward for every node (Xiong et al., 2024, Algorithm 1).

    The most valuable site is popped off a heap, one token is drawn from what is left of its node's distribution, and
    the draft reads the new node alone. As printed it reads all of them, those that stay leaves too. Same races, same
    tree as `DySpec`; nodes stand in the order of the heap.
    """

    def draft_tree(self, context: Context) -> Drafted:
        """Draw, choose and read until the budget is spent or nothing is left to draw."""
        heap = SiteHeap(context.tokens[-1], max_depth=self.max_depth)
        left: list[_Residual] = []
        logits, site = self.draft.begin(context).logits, heap.pop()
        while site is not None and heap.num_drafted < self.n:
            with self._span(context, "sampling"):
                left.append(_Residual(draft_probs(logits, self.draft_temperature), self.draws))
                token, edge = left[site.parent].draw(context.rng)
            new = sent(torch.tensor([[token], [site.parent - 1]]), logits.device)  # slots number nodes behind the root
            with self._span(context, "choice"):
                heap.add(site, token, edge)
                site = heap.pop()
            logits = self.draft.expand(new[0], new[1]).logits
        probs = [*(residual.q for residual in left), draft_probs(logits, self.draft_temperature)]
        with self._span(context, "choice"):
            return self._tree(heap.chosen(), probs)


class _Residual:
    """R of Algorithm 1: a node's q without what was drawn, kept as a race without those that have arrived."""

    def __init__(self, q: Float[Tensor, "1 vocab"], draws: str) -> None:
        self.q, self._draws = q, draws
        self._times: Float[Tensor, " vocab"] | None = None

    def draw(self, rng: Generator) -> tuple[int, float]:
        """The next token and its probability in the whole distribution. One read from the device."""
        if self._times is None:
            self._times = (-self.q if self._draws == "topk" else race(self.q, rng))[0]
            self._total = _total(self.q)[0, 0]
        first = self._times.argmin(0, keepdim=True)
        edges = self.q[0].index_select(0, first).double() / self._total
        token, edge = torch.cat((first.double(), edges)).tolist()
        _check_finite(edge)
        self._times.index_fill_(0, first, torch.inf)
        return int(token), edge


def _total(q: Float[Tensor, "rows vocab"]) -> Float[Tensor, "rows 1"]:
    """1 but for the rounding of float32, which is as large as 1 - S in the tails of sharp distributions."""
    return q.sum(-1, keepdim=True, dtype=torch.float64)


def _check_finite(edges: np.ndarray | float) -> None:
    if not np.isfinite(edges).all():
        raise NonFiniteLogitsError("the draft returned NaN or infinite logits")


def _first(q: Tensor, times: Tensor, width: int) -> tuple[Tensor, Tensor]:
    """The first arrivals: their probabilities and ids."""
    ids = times.topk(width, dim=-1, largest=False).indices
    return q.gather(-1, ids), ids
