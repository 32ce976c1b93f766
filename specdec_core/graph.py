"""A drafted token graph: nodes below the last committed token, some of them merged into earlier ones (GSD)."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy import ndarray

LONGEST_GRAM = 5
"""Recurrence is told for n-grams up to this length (GSD, Figure 3)."""


class Kind(IntEnum):
    """What became of a candidate token."""

    LIVE = 0
    """Goes on: its own children are drafted."""
    PROB_LEAF = 1
    """Too improbable to go on (GSD, probability pruning)."""
    SIB_LEAF = 2
    """Too improbable beside its best sibling to go on (GSD, sibling pruning)."""
    ALIAS = 3
    """Redundant: goes on as an earlier node does, to which it has a merge edge."""


@dataclass(frozen=True, slots=True, eq=False)
class DraftGraph:
    """The records of one step in creation order, record 0 the root, and the tree they were unmerged to. On the host."""

    tokens: Int[ndarray, " records"]
    parents: Int[ndarray, " records"]
    """Tree edges; -1 for the root."""
    probs: Float[ndarray, " records"]
    """q(token | parent); 1 at the root."""
    kinds: Int[ndarray, " records"]
    """A `Kind` each; the root is live."""
    merged_into: Int[ndarray, " records"]
    """Merge edges: the earlier record that an alias goes on as; -1 for all others."""
    nodes: Int[ndarray, " nodes"]
    """The record that each node of the unmerged tree is, or is a copy of."""
    tree_parents: Int[ndarray, " nodes"]
    """Their parents in that tree; -1 for the root."""
    behind_merge: Bool[ndarray, " nodes"]
    """Whether the path of a node crosses a merge edge: whether it is a copy."""
    capped: bool
    """Whether the limit of verified nodes cut the unmerged tree."""
    merge_kl: Float[ndarray, " merges"] | None = None
    """KL(q after an alias on its own path || q after the record it is merged into), nats, where it was measured."""

    def count(self, kind: Kind) -> int:
        """Records of a kind, the root excluded."""
        return int((self.kinds[1:] == kind).sum())

    def told(self, accepted: Sequence[int]) -> Mapping[str, Any]:
        """What a step tells of its graph once these nodes of the unmerged tree were accepted."""
        nodes = list(accepted)
        return {
            **{f"num_{kind.name.lower()}": self.count(kind) for kind in Kind},
            "capped": self.capped,
            "num_behind_merge": int(self.behind_merge[nodes].sum()),
            "num_in_shared_subtree": int(self.in_shared_subtree[nodes].sum()),
            "recurring": self.recurring_shares(),
            "merge_kl": None if self.merge_kl is None else self.merge_kl.tolist(),
        }

    @property
    def in_shared_subtree(self) -> Bool[ndarray, " nodes"]:
        """Whether a node of the tree lies below a record that others are merged into, or is a copy of such a node."""
        targets = np.isin(self.nodes, self.merged_into[self.merged_into >= 0])
        found = self.behind_merge.copy()
        for above in _ancestors(self.tree_parents):
            found |= (above >= 0) & targets[above]
        return found

    def recurring_shares(self, longest: int = LONGEST_GRAM) -> list[float]:
        """For n = 1 to `longest`: of the records whose path has n tokens, the share whose n-gram recurs (GSD, Fig. 3).

        A path starts at the root, whose token counts; a record's n-gram, its last n tokens, recurs if it also ends at
        a record that is neither its ancestor nor its descendant. Root excluded; nan where no path is so long.
        """
        depths, grams, shares = self._depths(), np.zeros(len(self.tokens), np.int64), []
        for length in range(1, longest + 1):
            grams = self._lengthened(grams)
            inside = depths + 1 >= length
            inside[0] = False
            shares.append(float(self._recurs(grams, inside)[inside].mean()) if inside.any() else float("nan"))
        return shares

    def _depths(self) -> Int[ndarray, " records"]:
        depths = np.zeros(len(self.tokens), np.int64)
        for ancestors in _ancestors(self.parents):
            depths += ancestors >= 0
        return depths

    def _lengthened(self, grams: Int[ndarray, " records"]) -> Int[ndarray, " records"]:
        """Ids of n-grams from those of (n - 1)-grams: two are equal where the parents' and the last tokens are."""
        above = grams[np.maximum(self.parents, 0)]  # the root's own n-grams are never asked for
        return np.unique(np.stack((above, self.tokens)), axis=1, return_inverse=True)[1].reshape(-1)

    def _recurs(self, grams: Int[ndarray, " records"], inside: Bool[ndarray, " records"]) -> Bool[ndarray, " records"]:
        """Whether others outside a record's own line have its gram: all of them less ancestors and descendants."""
        others = np.bincount(grams[inside], minlength=int(grams.max()) + 1)[grams] - 1
        for ancestors in _ancestors(self.parents):
            pairs = np.flatnonzero((ancestors >= 0) & inside)
            pairs = pairs[inside[ancestors[pairs]] & (grams[ancestors[pairs]] == grams[pairs])]
            np.subtract.at(others, pairs, 1)
            np.subtract.at(others, ancestors[pairs], 1)
        return others > 0


def _ancestors(parents: Int[ndarray, " all"]) -> Iterator[Int[ndarray, " all"]]:
    """Of all records or nodes the parents, then the grandparents and so on; -1 above the root."""
    above = parents
    while (above >= 0).any():
        yield above
        above = np.where(above >= 0, parents[above], -1)
