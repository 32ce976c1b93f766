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
    """Too improbable beside its best sibling to go on (GSD, sibling pruning); a record in `pruning=paper` alone."""
    ALIAS = 3
    """Redundant: merged into an earlier node, from which it continues; a leaf in `pruning=code` alone."""


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
        nodes, shares = list(accepted), self.recurring_shares()
        return {
            **{f"num_{kind.name.lower()}": self.count(kind) for kind in Kind},
            "capped": self.capped,
            "num_behind_merge": int(self.behind_merge[nodes].sum()),
            "num_in_shared_subtree": int(self.in_shared_subtree[nodes].sum()),
            "num_displaced": int(self.displaced[nodes].sum()),
            "visited_children": np.bincount(self.tree_parents[1:], minlength=len(self.nodes))[[0, *nodes]].tolist(),
            "recurring": [ending for ending, _ in shares],
            "in_recurring": [part for _, part in shares],
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

    @property
    def displaced(self) -> Bool[ndarray, " nodes"]:
        """Whether the place of a node in the tree is not that of its record in the graph; an alias has its match's.

        GSD's public code counts a step that accepts such a node as a success. They are copies, and what is listed
        behind the first of them.
        """
        own = self.merged_into < 0
        places = own.cumsum() - 1
        places = np.where(own, places, places[self.merged_into])
        return places[self.nodes] != np.arange(len(self.nodes))

    def recurring_shares(self, longest: int = LONGEST_GRAM) -> list[tuple[float, float]]:
        """For n = 1 to `longest`, how many n-grams recur (GSD, Figure 3), counted in two ways. Root excluded.

        The first is the share of n-grams, the last n tokens of a record's path, that also end at a record which is
        neither ancestor nor descendant. The second is the share of records inside such an n-gram. A path starts at the
        root, whose token counts. nan where no path has n tokens.
        """
        depths, grams, shares = self._depths(), np.zeros(len(self.tokens), np.int64), []
        for length in range(1, longest + 1):
            grams = self._lengthened(grams)
            inside = depths + 1 >= length
            inside[0] = False
            recurs = self._recurs(grams, inside) & inside
            part = self._with_ancestors(recurs, length - 1)
            shares.append((_share(recurs, inside), _share(part, np.arange(len(part)) > 0)))
        return shares

    def _with_ancestors(self, records: Bool[ndarray, " records"], levels: int) -> Bool[ndarray, " records"]:
        """These records and those up to so many levels above them."""
        found, above = records.copy(), np.flatnonzero(records)
        for _ in range(levels):
            above = self.parents[above]
            above = above[above >= 0]
            found[above] = True
        return found

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


def _share(those: Bool[ndarray, " all"], among: Bool[ndarray, " all"]) -> float:
    return float(those[among].mean()) if among.any() else float("nan")


def _ancestors(parents: Int[ndarray, " all"]) -> Iterator[Int[ndarray, " all"]]:
    """Of all records or nodes the parents, then the grandparents and so on; -1 above the root."""
    above = parents
    while (above >= 0).any():
        yield above
        above = np.where(above >= 0, parents[above], -1)
