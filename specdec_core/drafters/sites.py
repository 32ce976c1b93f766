"""DySpec's choice among sampling sites (Xiong et al., 2024, section 4.1): the places where a node draws a child.

Site (u, k) is the k-th draw at node u, without replacement. Its value v(u, k) = f(u) (1 - S) is the probability that
the draft arrives there: f(u) is the path probability of u, S that of the k - 1 children drawn before. A value never
depends on the token that is drawn at its site, so that choosing sites by value leaves the draws what they were. Values
fall along siblings and from parent to child; rounding is not allowed to break that, and ties go to the shallower site.

Everything here is on the host, in numpy: a tree of n nodes costs a few operations on some n numbers per layer.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray

LEAST_VALUE = 1e-12
"""Sites of a smaller value are not created: 1 - S is rounding there."""


class Chosen(NamedTuple):
    """The nodes of a tree, the root and other parents first, siblings in draft order."""

    tokens: Int[ndarray, " nodes"]
    parents: Int[ndarray, " nodes"]
    edges: Float[ndarray, " nodes"]
    """q(node | its parent); 1 at the root."""
    slots: Int[ndarray, " nodes"]
    """Place in the order in which the draft read them behind the root; -1 for the root and nodes never read."""


class Sites:
    """The sites of one step: layers of candidates, and the `budget` most valuable of them down to `max_depth`.

    `floor` keeps sites of at least that value. A site that was chosen may be given up for a deeper one of more value,
    so that the choice is the one of a heap that opens one site at a time; if the choice is `settled`, layers fill the
    budget one after another.
    """

    def __init__(self, root: int, budget: int, *, max_depth: int, floor: float = 0.0, settled: bool = False) -> None:
        self.budget, self.max_depth, self.settled, self.depth = budget, max_depth, settled, 0
        self._least = max(floor, LEAST_VALUE)
        self._best, self._best_values = np.zeros(0, np.int64), np.zeros(0)
        # of every candidate, layer by layer; candidate 0 is the root
        self._tokens, self._parents, self._edges = [np.array([root])], [np.array([-1])], [np.ones(1)]
        self._slots, self._read, self._count = [np.array([-1])], 0, 1
        # of the nodes whose draws come next: candidate, path probability, value of the first site, slot
        self._layer, self._paths, self._bounds = np.zeros(1, np.int64), np.ones(1), np.ones(1)
        self._layer_slots = self._slots[0]

    def values(self, edges: Float[ndarray, "layer draws"]) -> Float[ndarray, "layer draws"]:
        """Value of the first draws at each node of the layer, given q of what was drawn; 0 behind q's support."""
        before = np.cumsum(edges, axis=1) - edges
        values = self._paths[:, None] * np.maximum(1 - before, 0)
        np.minimum(values, self._bounds[:, None], out=values)
        np.minimum.accumulate(values, axis=1, out=values)
        return np.where(edges > 0, values, 0.0)

    def wants_more(self, values: Float[ndarray, "layer draws"]) -> bool:
        """Whether a node's draws may have to go on behind these."""
        return bool((values[:, -1] >= self._least).any())

    def add(
        self,
        tokens: Int[ndarray, "layer draws"],
        edges: Float[ndarray, "layer draws"],
        values: Float[ndarray, "layer draws"],
    ) -> tuple[Int[ndarray, " next"], Int[ndarray, " next"]]:
        """Choose among the sites of a layer too; tokens and parents' slots of the nodes that the draft must read next.

        Those are the nodes whose own first site has a value that is enough to be chosen.
        """
        rows, ranks = self._candidates(values)
        found, edges = values[rows, ranks], edges[rows, ranks]
        self._merge(found)
        self.depth += 1
        paths = self._paths[rows] * edges
        bounds = np.minimum(paths, found)
        read = self._worth_reading(bounds)
        slots = np.full(len(rows), -1)
        slots[read] = self._read + np.arange(len(read))
        parent_slots = self._layer_slots[rows[read]]
        self._tokens.append(tokens[rows, ranks])
        self._parents.append(self._layer[rows])
        self._edges.append(edges)
        self._slots.append(slots)
        self._layer, self._paths, self._bounds = self._count + read, paths[read], bounds[read]
        self._layer_slots = slots[read]
        self._read, self._count = self._read + len(read), self._count + len(rows)
        return self._tokens[-1][read], parent_slots

    def chosen(self) -> Chosen:
        """The nodes of the best sites, in the order of their creation."""
        best = np.sort(np.concatenate((np.zeros(1, np.int64), self._best)))
        tokens, parents, edges, slots = (
            np.concatenate(each)[best] for each in (self._tokens, self._parents, self._edges, self._slots)
        )
        parents = np.searchsorted(best, parents)
        parents[0] = -1
        return Chosen(tokens, parents, edges, slots)

    def _candidates(self, values: ndarray) -> tuple[ndarray, ndarray]:
        """Rows and columns of the sites that may be chosen, by node and draw; no more than there is room for."""
        rows, ranks = np.nonzero(values >= self._least)
        room = self.budget - len(self._best) if self.settled else self.budget
        if len(rows) > room:
            most = np.sort(np.argsort(-values[rows, ranks], kind="stable")[:room])
            rows, ranks = rows[most], ranks[most]
        return rows, ranks

    def _worth_reading(self, bounds: Float[ndarray, " new"]) -> Int[ndarray, " next"]:
        """Which of the new nodes have a first site, of the value given, that may be among the best.

        Those sites are there whatever will be drawn at them, so that they compete before the draft has read a node.
        """
        if self.depth == self.max_depth:
            return np.zeros(0, np.int64)
        known = np.concatenate((self._best_values, bounds))
        if not self.settled and len(known) >= self.budget:
            self._least = max(self._least, -np.partition(-known, self.budget - 1)[self.budget - 1])
        return np.flatnonzero(bounds >= self._least)

    def _merge(self, found: Float[ndarray, " new"]) -> None:
        """Take the new sites among the best. Stable: of equal values the earlier site, which is not the deeper one."""
        values = np.concatenate((self._best_values, found))
        order = np.argsort(-values, kind="stable")[: self.budget]
        self._best = np.concatenate((self._best, self._count + np.arange(len(found))))[order]
        self._best_values = values[order]
        if len(order) == self.budget:  # from now on a site must be worth more than the last of them
            self._least = np.inf if self.settled else np.nextafter(self._best_values[-1], np.inf)
