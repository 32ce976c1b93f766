"""The two values that everything passes around: a drafted tree and the verdict on it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from specdec_core.errors import PairError
from specdec_core.grown_mask import GrownMask, jumps
from specdec_core.sending import sent
from specdec_core.sliced_mask import Part, SlicedMask

TreeMask = GrownMask | Part
"""Who sees whom in a tree: grown from its parents, or a view of what was made for all trees of its kind."""


@runtime_checkable
class Origin(Protocol):
    """What a tree was made from, on the host."""

    def told(self, accepted: Sequence[int]) -> Mapping[str, Any]:
        """What a step tells of it (`Step.facts`) once these nodes were accepted, the root not among them."""


@dataclass(frozen=True, slots=True, eq=False)
class TokenTree:
    """A tree of drafted tokens below the last committed one.

    Parents come before their children, and siblings stand in draft order.
    """

    tokens: Int[Tensor, " nodes"]
    """Token ids; node 0 is the root."""
    parents: Int[Tensor, " nodes"]
    """`parents[0] == -1`, and `parents[i] < i`."""
    edge_probs: Float[Tensor, " nodes"] | None
    """q(node | its parent) as the draft drew it; 1 at the root. None where no draft gives nodes probabilities."""
    draft_probs: Float[Tensor, "expanded vocab"] | None = None
    """q after each expanded node, as it was drawn from, for rules that compare it with p."""
    draft_rows: Int[Tensor, " nodes"] | None = None
    """Row of `draft_probs` for each node; -1 for leaves."""
    origin: Origin | None = None
    """What this tree was made from, if there is more to tell of it (a token graph)."""
    sliced: SlicedMask | None = None
    """Masks of the largest tree of which this one is the first nodes, where they were made before."""
    mask: TreeMask = field(init=False, repr=False)
    """Who sees whom."""

    def __post_init__(self) -> None:
        """Use the precomputed mask if there is one."""
        sliced = None if self.sliced is None else Part(self.sliced, self.num_nodes, self.tokens.device)
        object.__setattr__(self, "mask", sliced or GrownMask(self.parents))

    @staticmethod
    def root_only(token: int, device: torch.device) -> "TokenTree":
        """The tree of autoregressive decoding."""
        one = torch.ones(1, device=device)
        return TokenTree(torch.full((1,), token, device=device), torch.full((1,), -1, device=device), one)

    @property
    def num_nodes(self) -> int:
        """Number of nodes, root included."""
        return self.tokens.shape[0]

    @property
    def num_drafted(self) -> int:
        """Tree size n: nodes without the root."""
        return self.num_nodes - 1

    @property
    def ancestor_mask(self) -> Bool[Tensor, "nodes nodes"]:
        """Row i marks node i and its ancestors."""
        return self.mask.ancestors

    @property
    def depths(self) -> Int[Tensor, " nodes"]:
        """Edges from the root."""
        return self.mask.depths

    @property
    def required_edge_probs(self) -> Float[Tensor, " nodes"]:
        """`edge_probs`, for a rule that compares them with p. PairError where there are none."""
        if self.edge_probs is None:
            raise PairError(
                "this rule compares p with the draft's probabilities, and this drafter has none (it drafts without a "
                "model); use verifier=target_sample"
            )
        return self.edge_probs

    @property
    def path_probs(self) -> Float[Tensor, " nodes"] | None:
        """Product of edge probabilities from the root, in float64; 1 at the root. None without edge probabilities."""
        return None if self.edge_probs is None else self.along_paths(self.edge_probs.double(), torch.mul)

    def along_paths(
        self, values: Shaped[Tensor, " nodes"], combine: Callable[[Tensor, Tensor], Tensor]
    ) -> Shaped[Tensor, " nodes"]:
        """Each node's value combined with those of its ancestors; the root's must change none (0 in a sum)."""
        for jump in jumps(self.parents):
            values = combine(values, values[jump])
        return values

    @property
    def expected_acceptance(self) -> Float[Tensor, ""] | None:
        """E(A), root counted (OPT-Tree, equation 4): the sum over distinct paths. None without edge probabilities."""
        probs = self.path_probs
        return None if probs is None else probs[self.first_of_path].sum()

    @property
    def first_of_path(self) -> Bool[Tensor, " nodes"]:
        """Marks the first node of every distinct path: independent draws may repeat a token among siblings.

        Each pass merges duplicate paths one level deeper. Stop when a pass changes nothing: the first, without
        repeated siblings.
        """
        index = torch.arange(self.num_nodes, device=self.tokens.device)
        first, above, changed = index, self.parents.clamp(min=0), True
        while changed:
            places = torch.where(self.parents < 0, 0, first[above] + 1)  # the root is below nothing
            path = (places * (self.tokens.max() + 1) + self.tokens).unique(return_inverse=True)[1]
            found = index.scatter_reduce(0, path, index, "amin", include_self=False)[path]
            first, changed = found, not torch.equal(found, first)
        return first == index

    def children(self, node: int) -> Int[Tensor, " children"]:
        """Children of a node, in draft order."""
        return (self.parents == node).nonzero().flatten()

    def q_after(self, node: int) -> Float[Tensor, " vocab"] | None:
        """The draft's distribution q after an expanded node; None if the drafter keeps no distributions."""
        if self.draft_probs is None or self.draft_rows is None:
            return None
        return self.draft_probs.index_select(0, self.draft_rows[node : node + 1])[0]  # no read from the device

    def to(self, device: torch.device) -> "TokenTree":
        """The tree on another device; itself where it is there already."""
        if self.tokens.device == device:
            return self
        parts = self.tokens, self.parents, self.edge_probs, self.draft_probs, self.draft_rows
        tokens, parents, edges, probs, rows = (part if part is None else sent(part, device) for part in parts)
        assert tokens is not None
        assert parents is not None
        return TokenTree(tokens, parents, edges, probs, rows, self.origin, self.sliced)

    def without_draft_probs(self) -> "TokenTree":
        """The same tree without its largest field, to be kept for the record."""
        return TokenTree(self.tokens, self.parents, self.edge_probs, origin=self.origin, sliced=self.sliced)


@dataclass(frozen=True, slots=True, eq=False)
class Verdict:
    """What the target made of a tree: the accepted path and how decoding goes on."""

    path: Int[Tensor, " path"]
    """Accepted nodes, root first, on the host."""
    tokens: tuple[int, ...]
    """Tokens of the accepted drafted nodes: `path` without the root."""
    next_token: int | None
    """Bonus or recovered token, the next pending root; None when the next root is virtual."""
    next_probs: Float[Tensor, " vocab"] | None = None
    """Distribution of the next token (`Sampling.open_probs`), for a drafter that draws its first level from it."""

    @property
    def new_tokens(self) -> tuple[int, ...]:
        """What a step commits: the accepted tokens, and the target's own if it was drawn."""
        return self.tokens if self.next_token is None else (*self.tokens, self.next_token)
