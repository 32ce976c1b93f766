"""The edges of a token graph that grows: which merge edges may be, as they close no cycle. On the host."""

_GAP = 1 << 64
"""Between the places of new nodes."""


class MergeEdges:
    """Keeps live nodes acyclic: an alias makes its parent an ancestor of the node it is merged into.

    Every node has a place, before those of all nodes that it leads to. An edge to a node of a later place closes no
    cycle; for one to an earlier place the node moves before it, with those of its ancestors that stand behind it. They
    are few: of the frontier, which alone gets new edges, most ancestors were moved for another node already. Ancestors
    that a refusal came upon are kept, as bits of one number per node, and handed to its children.
    """

    def __init__(self) -> None:
        self._above, self._place, self._known, self._last = {0: list[int]()}, {0: 0}, {0: 0}, 0

    def add_child(self, parent: int, child: int) -> None:
        """A tree edge to a new node, which stands behind all others."""
        self._last += _GAP
        self._above[child], self._place[child] = [parent], self._last
        self._known[child] = self._known[parent] | 1 << parent

    def join(self, node: int, into: int) -> bool:
        """Add the edge unless it would close a cycle; whether it was added."""
        if self._place[node] >= self._place[into] and not self._moved_before(node, into):
            return False
        self._above[into].append(node)
        return True

    def _moved_before(self, node: int, into: int) -> bool:
        """Whether the node can stand before the other one, and now does."""
        if node == into or self._known[node] >> into & 1:
            return False
        limit, floor, behind, waiting = self._place[into], 0, {node}, [node]
        while waiting:
            for above in self._above[waiting.pop()]:
                if above == into:
                    self._remember(node, {into, *behind})
                    return False
                if self._place[above] < limit:
                    floor = max(floor, self._place[above])
                elif above not in behind:
                    behind.add(above)
                    waiting.append(above)
        self._spread(behind, floor, into)
        return True

    def _remember(self, node: int, ancestors: set[int]) -> None:
        """What these nodes know is known of the node as well."""
        for above in ancestors:
            self._known[node] |= self._known[above] | 1 << above

    def _spread(self, nodes: set[int], floor: int, into: int) -> None:
        """Give the nodes places between the floor and that node's, in the order in which they stand."""
        old = sorted({self._place[node] for node in nodes})
        if self._place[into] - floor <= len(old):  # no room: make all distances larger
            self._last *= _GAP
            for node in self._place:
                self._place[node] *= _GAP
            return self._spread(nodes, floor * _GAP, into)
        step = (self._place[into] - floor) // (len(old) + 1)
        new = {place: floor + step * number for number, place in enumerate(old, start=1)}
        for node in nodes:
            self._place[node] = new[self._place[node]]
        return None


class AnyButAncestors:
    """GSD's public code: a node may be joined with all but itself and its ancestors, so that cycles are there."""

    def __init__(self) -> None:
        self._lines = {0: frozenset((0,))}

    def add_child(self, parent: int, child: int) -> None:
        """A tree edge to a new node."""
        self._lines[child] = self._lines[parent] | {child}

    def join(self, node: int, into: int) -> bool:
        """Whether a child of the node may be merged into the other one."""
        return into not in self._lines[node]
