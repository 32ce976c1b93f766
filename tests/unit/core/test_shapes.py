import math
from collections import Counter
from itertools import pairwise, product

import pytest

from specdec_core import shapes
from specdec_core.shapes import TreeShape


def widths(shape: TreeShape) -> list[int]:
    counts = Counter(len(path) for path in shape.paths)
    return [counts[depth] for depth in range(1, shape.depth + 1)]


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        (shapes.chain(4), [1, 1, 1, 1]),
        (shapes.kary(2, 4), [2, 4, 8, 16]),
        (shapes.k_sequences(5, 8), [5] * 8),
        (shapes.branching([4, 2, 2, 1]), [4, 8, 16, 16]),
        (shapes.star(3), [3]),
        (shapes.binary_bfs(25), [2, 4, 8, 11]),
        (shapes.binary_bfs(30), [2, 4, 8, 16]),
        (shapes.eagle25(), [4, 8, 8, 3, 2]),
    ],
)
def test_nodes_per_depth(shape, expected):
    assert widths(shape) == expected
    assert shape.num_drafted == sum(expected)


def test_eagles_tree_has_15_leaves_and_5_layers_of_inner_nodes():
    shape = shapes.eagle25()
    leaves = [node for node, count in enumerate(shape.num_children) if not count]
    assert (shape.num_drafted, len(leaves), shape.depth) == (25, 15, 5)
    inner = Counter(len(((), *shape.paths)[node]) for node in range(26) if shape.num_children[node])
    assert inner == {0: 1, 1: 4, 2: 4, 3: 1, 4: 1}


@pytest.mark.parametrize("shape", [shapes.eagle25(), shapes.k_sequences(3, 4), shapes.kary(3, 3)])
def test_breadth_first_and_parents_first(shape):
    nodes = ((), *shape.paths)
    for node in range(1, len(nodes)):
        assert nodes[shape.parents[node]] == nodes[node][:-1]
        assert shape.parents[node] < node
        assert len(nodes[node]) >= len(nodes[node - 1])
    assert [node for level in shape.levels for node in level] == list(range(len(nodes)))


def test_small_vocabularies_drop_ranks_and_what_hangs_below():
    assert shapes.branching([4, 2]).limited(3).paths == shapes.branching([3, 2]).paths
    assert shapes.kary(2, 3).limited(1).paths == shapes.chain(3).paths


@pytest.mark.parametrize("paths", [[(0, 0)], [(1,)], [(0,), (0, 1)]])
def test_gaps_are_refused(paths):
    with pytest.raises(ValueError, match="the tree shape has node"):
        TreeShape.from_paths(paths)


@pytest.mark.parametrize(
    ("size", "expected"), [(44, (4, 2, 2, 1)), (84, (4, 4, 2, 1)), (8, (2, 1, 1, 1)), (3, (1,) * 3)]
)
def test_the_k_configuration_of_a_budget(size, expected):
    assert shapes.branching_within(size) == shapes.branching(expected)


@pytest.mark.parametrize("size", [1, 2, 5, 7, 16, 23, 31, 40])
def test_the_k_configuration_of_a_budget_is_the_largest_there_is(size):
    """Of all widths, by brute force."""
    levels = min(4, size)
    falling = (w for w in product(range(1, size + 1), repeat=levels) if all(a >= b for a, b in pairwise(w)))
    fitting = {w: n for w in falling if (n := sum(math.prod(w[: d + 1]) for d in range(levels))) <= size}
    found = shapes.branching_within(size)
    best = min(w for w, n in fitting.items() if n == max(fitting.values()))
    assert found == shapes.branching(best)
    assert found.num_drafted == fitting[best]


def test_a_budget_of_nothing_has_no_k_configuration():
    with pytest.raises(ValueError, match="at least 1 node, not 0"):
        shapes.branching_within(0)


def test_the_last_of_all_siblings_comes_first():
    shape = TreeShape.from_paths([(0,), (1,), (2,), (0, 0), (0, 1), (1, 0), (0, 0, 0)])
    turned = TreeShape.from_paths([(0,), (1,), (2,), (1, 0), (1, 1), (2, 0), (1, 1, 0)])
    assert shape.last_first() == turned
    for same in (shapes.chain(3), shapes.branching([3, 2, 1]), shapes.kary(2, 3)):
        assert same.last_first() == same
