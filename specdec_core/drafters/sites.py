"""DySpec's choice among sampling sites (Xiong et al., 2024, section 4.1): the places where a node draws a child.

Site (u, k) is the k-th draw at node u, without replacement. Its value v(u, k) = f(u) (1 - S) is the probability that
the draft arrives there: f(u) is the path probability of u, S that of the k - 1 children drawn before. A value never
depends on the token that is drawn at its site, so that choosing sites by value leaves the draws what they were. Values
fall along siblings and from parent to child; rounding is not allowed to break that, and a node's first site is worth a
last bit less than the node's own, so that ties go to the shallower one.

Everything here is on the host, in numpy: a tree of n nodes costs some twenty operations on about n numbers per layer,
and one sort.
"""

from heapq import heappop, heappush
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

    `floor` keeps sites of at least that value. A candidate may be left out for a deeper one of more value, so that the
    choice is the one of a heap that opens one site at a time; if the choice is `settled`, layers fill the budget one
    after another.
    """

    def __init__(self, root: int, budget: int, *, max_depth: int, floor: float = 0.0, settled: bool = False) -> None:
        self.budget, self.max_depth, self.settled, self.depth = budget, max_depth, settled, 0
        self.gain = 0.0
        """What the last layer adds to E(A), if all of it is chosen."""
        self._least, self._read, self._count = max(floor, LEAST_VALUE), 0, 1
        # of every candidate, layer by layer; candidate 0 is the root
        self._tokens, self._parents, self._edges = [np.array([root])], [np.array([-1])], [np.ones(1)]
        self._slots, self._values = [np.array([-1])], np.zeros(0)
        # of the nodes whose draws come next: candidate, path probability, value of the first site, slot
        self._layer, self._paths, self._bounds = np.zeros(1, np.int64), np.ones(1), np.ones(1)
        self._layer_slots = self._slots[0]

    def values(self, edges: Float[ndarray, "layer draws"]) -> Float[ndarray, "layer draws"]:
        """Value of the first draws at each node of the layer, given q of what was drawn; about 0 behind q's support."""
        values = np.empty_like(edges)
        values[:, 0] = self._bounds
        np.multiply(self._paths[:, None], 1 - np.cumsum(edges[:, :-1], axis=1), out=values[:, 1:])
        return np.minimum.accumulate(values, axis=1, out=values)

    def wants_more(self, values: Float[ndarray, "layer draws"]) -> bool:
        """Whether a node's draws may have to go on behind these."""
        return bool((values[:, -1] >= self._least).any())

    def add(
        self,
        tokens: Int[ndarray, "layer draws"],
        edges: Float[ndarray, "layer draws"],
        values: Float[ndarray, "layer draws"],
    ) -> tuple[Int[ndarray, " next"], Int[ndarray, " next"]]:
        """Take a layer's sites among the candidates; tokens and parents' slots of the nodes to be read next.

        Those are the nodes whose own first site has a value that is enough to be chosen.
        """
        sites = self._candidates(values.ravel())
        rows, found, edges = sites // values.shape[1], values.ravel()[sites], edges.ravel()[sites]
        self.depth += 1
        paths = self._paths[rows] * edges
        self.gain = float(paths.sum())
        bounds = np.minimum(paths, found)
        if not self.settled:  # so that of equal values the shallower site is taken
            bounds = np.nextafter(bounds, 0)
        self._values = np.concatenate((self._values, found))
        read = self._worth_reading(bounds)
        slots = np.full(len(sites), -1)
        slots[read] = np.arange(self._read, self._read + len(read))
        parent_slots = self._layer_slots[rows[read]]
        self._tokens.append(tokens.ravel()[sites])
        self._parents.append(self._layer[rows])
        self._edges.append(edges)
        self._slots.append(slots)
        self._layer, self._paths, self._bounds = self._count + read, paths[read], bounds[read]
        self._layer_slots = slots[read]
        self._read, self._count = self._read + len(read), self._count + len(sites)
        return self._tokens[-1][read], parent_slots

    def end(self) -> None:
        """Leave the last layer's nodes unread."""
        self._slots[-1] = np.full_like(self._slots[-1], -1)

    def chosen(self) -> Chosen:
        """The nodes of the best sites, in the order of their creation."""
        best = np.zeros(1 + min(self.budget, len(self._values)), np.int64)
        best[1:] = 1 + _largest(self._values, self.budget)
        tokens, parents, edges, slots = (
            np.concatenate(each)[best] for each in (self._tokens, self._parents, self._edges, self._slots)
        )
        parents = np.searchsorted(best, parents)
        parents[0] = -1
        return Chosen(tokens, parents, edges, slots)

    def _candidates(self, values: Float[ndarray, " sites"]) -> Int[ndarray, " candidates"]:
        """Sites that may be chosen, by node and draw; settled choices take no more than there is room for."""
        sites = np.flatnonzero(values >= self._least)
        if self.settled and len(sites) > self.budget - len(self._values):
            sites = sites[_largest(values[sites], self.budget - len(self._values))]
        return sites

    def _worth_reading(self, bounds: Float[ndarray, " new"]) -> Int[ndarray, " next"]:
        """Which of the new nodes have a first site, of the value given, that may be among the best.

        Those sites are there whatever will be drawn at them, so that they compete before the draft has read a node.
        """
        full = len(self._values) >= self.budget
        if self.depth == self.max_depth or (self.settled and full):
            return np.zeros(0, np.int64)
        if not self.settled:
            known = np.concatenate((self._values, bounds))
            if len(known) >= self.budget:
                last = len(known) - self.budget
                self._least = max(self._least, np.partition(known, last)[last])
        return np.flatnonzero(bounds >= self._least)


class Site(NamedTuple):
    """Where a token is to be drawn, as the heap orders sites: by value, then the shallower one, then the earlier."""

    minus_value: float
    depth: int
    """Of the node that is to be drawn."""
    order: int
    """Place among all sites in the order of their creation."""
    parent: int


class SiteHeap:
    """The sites of one step as the paper keeps them: a heap off which one is popped after another (Algorithm 1).

    A draw y at a popped (R, v) pushes v R[y] below and v (1 - R[y]) beside. Without residuals these are f(y) and
    f(u) (1 - S): the values of `Sites`, whose clamps are here too. Nodes are numbered, and read, as they are made.
    """

    def __init__(self, root: int, *, max_depth: int) -> None:
        self.max_depth, self._heap, self._created = max_depth, [Site(-1.0, 1, 0, 0)], 1
        self._nodes = [(root, -1, 1.0, -1)]  # rows of `Chosen`
        self._paths, self._drawn = [1.0], [0.0]  # of every node: f, and S of the children that it has

    @property
    def num_drafted(self) -> int:
        """Nodes made, root excluded."""
        return len(self._nodes) - 1

    def pop(self) -> Site | None:
        """The most valuable site; None where nothing is left to draw."""
        return heappop(self._heap) if self._heap else None

    def add(self, site: Site, token: int, edge: float) -> None:
        """Make the node that was drawn at a popped site with probability `edge` = q(token | parent)."""
        value, node, parent = -site.minus_value, len(self._nodes), site.parent
        path = self._paths[parent] * edge
        self._nodes.append((token, parent, edge, node - 1))
        self._paths.append(path)
        self._drawn.append(0.0)
        self._drawn[parent] += edge
        self._push(min(value, self._paths[parent] * (1 - self._drawn[parent])), site.depth, parent)
        if site.depth < self.max_depth:
            self._push(float(np.nextafter(min(value, path), 0)), site.depth + 1, node)

    def chosen(self) -> Chosen:
        """All nodes, in the order of their creation."""
        return Chosen(*map(np.array, zip(*self._nodes, strict=True)))

    def _push(self, value: float, depth: int, parent: int) -> None:
        if value >= LEAST_VALUE:
            heappush(self._heap, Site(-value, depth, self._created, parent))
            self._created += 1


def _largest(values: Float[ndarray, " items"], count: int) -> Int[ndarray, " largest"]:
    """Indices of the `count` largest values, ascending; of equal values the first are taken."""
    return np.sort(np.argsort(-values, kind="stable")[:count])
