"""Merge edges against a search over all edges."""

import random

import pytest

from specdec_core.drafters import merge_edges
from specdec_core.drafters.merge_edges import MergeEdges


class Brute:
    """Every edge, and whether one more would close a cycle by walking all of them."""

    def __init__(self):
        self.below = {0: []}

    def add_child(self, parent, child):
        self.below[child] = []
        self.below[parent].append(child)

    def join(self, node, into):
        waiting, seen = [into], {into}
        while waiting:
            lower = waiting.pop()
            if lower == node:
                return False
            new = [below for below in self.below[lower] if below not in seen]
            waiting += new
            seen.update(new)
        self.below[node].append(into)
        return True


@pytest.mark.parametrize("gap", [2, 1 << 64], ids=["little room", "as it is"])
def test_the_same_edges_are_refused_as_by_a_search(gap, monkeypatch):
    """Any node may be joined with any other, earlier and later ones; where room lacks all places are spread anew."""
    monkeypatch.setattr(merge_edges, "_GAP", gap)
    refused = accepted = spread = 0
    for seed in range(150):
        random_numbers = random.Random(seed)
        edges, brute = MergeEdges(), Brute()
        for child in range(1, 25):
            parent = random_numbers.randrange(child)
            for one in (edges, brute):
                one.add_child(parent, child)
            for _ in range(3):
                node, into = random_numbers.randrange(child + 1), random_numbers.randrange(1, child + 1)
                found = edges.join(node, into)
                assert found == brute.join(node, into)
                refused, accepted = refused + (not found), accepted + found
        assert all(edges._place[above] < edges._place[node] for above, row in brute.below.items() for node in row)
        spread += edges._last > gap * 24
    assert min(refused, accepted) > 1000
    assert (spread > 100) == (gap == 2)
