"""From a token graph to the tree that the target verifies (Gong et al., 2024, section 5.4). On the host."""

import heapq
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy import ndarray

CAP_ORDERS = ("breadth", "path_prob")


class Unmerged(NamedTuple):
    """A tree, the root first and parents before children, siblings in draft order."""

    records: Int[ndarray, " nodes"]
    """Which record of the graph each node is, or is a copy of."""
    parents: Int[ndarray, " nodes"]
    behind_merge: Bool[ndarray, " nodes"]
    """Whether a node is a copy: whether its path crosses a merge edge."""
    capped: bool
    """Whether the cap cut something."""


def unmerge(
    parents: Int[ndarray, " records"],
    probs: Float[ndarray, " records"],
    merged_into: Int[ndarray, " records"],
    *,
    cap: int,
    depth: int | None,
    order: str = "breadth",
) -> Unmerged:
    """Copy what lies below the record that an alias is merged into, for every alias, down to `depth` (None: all).

    At most `cap` nodes besides the root: the first in breadth, or those of largest path probability (order
    `path_prob`; of equal ones the first found). `probs` are q(record | parent); the records of one parent stand
    side by side.
    """
    starts = np.bincount(parents + 1, minlength=len(parents) + 1).cumsum()  # of each record's children, and of the next
    # of every waiting node: what orders it, when it was found, path probability, record, parent, depth, is it a copy
    waiting = [(0.0, 0, 1.0, 0, -1, 0, False)]
    nodes, found = list[tuple[int, int, bool]](), 1
    while waiting and len(nodes) <= cap:
        _, _, chance, record, parent, level, copied = heapq.heappop(waiting)
        nodes.append((record, parent, copied))
        if level == depth:
            continue
        alias = bool(merged_into[record] >= 0)
        source = int(merged_into[record]) if alias else record
        first, last = starts[source : source + 2].tolist()
        for child, q in enumerate(probs[first:last].tolist(), start=first):
            rank = -chance * q if order == "path_prob" else 0.0
            heapq.heappush(waiting, (rank, found, chance * q, child, len(nodes) - 1, level + 1, copied or alias))
            found += 1
    records, above, behind = (np.array(column) for column in zip(*nodes, strict=True))
    return Unmerged(records, above, behind, bool(waiting))
