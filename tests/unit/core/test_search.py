"""Sequoia's search against exhaustive search over all ordered trees."""

from functools import cache

import numpy as np
import pytest

from specdec_core import TreeShape, shapes
from specdec_core.search import (
    Programme,
    best_kary,
    best_sequences,
    best_tree,
    choose_tree,
    expected_tokens,
    greedy_order,
    growth,
    isotonic,
)
from specdec_core.shapes import binary_bfs, chain, kary, kary_bfs, sequences

NODES = 9


@cache
def forests(nodes: int) -> tuple[tuple, ...]:
    """All ordered forests of so many nodes; a tree is the tuple of its children."""
    if not nodes:
        return ((),)
    return tuple(
        (first, *rest) for size in range(1, nodes + 1) for first in forests(size - 1) for rest in forests(nodes - size)
    )


def paths(tree: tuple, prefix: tuple[int, ...] = ()) -> list[tuple[int, ...]]:
    return [path for rank, child in enumerate(tree) for path in ((*prefix, rank), *paths(child, (*prefix, rank)))]


@cache
def all_shapes(nodes: int) -> tuple[TreeShape, ...]:
    return tuple(TreeShape.from_paths(paths(tree)) for tree in forests(nodes))


def score(shape: TreeShape, p: list[float]) -> float:
    """The sum over nodes of the product along the path."""
    return 1 + sum(np.prod([p[rank] if rank < len(p) else 0 for rank in path]) for path in shape.paths)


def exhaustive(p: list[float], n: int, depth: int | None, children: int) -> float:
    fitting = [
        shape
        for shape in all_shapes(n)
        if (depth is None or shape.depth <= depth) and max(shape.num_children) <= min(children, len(p))
    ]
    return max((score(shape, p) for shape in fitting), default=-np.inf)


def vectors() -> list[list[float]]:
    rng = np.random.default_rng(0)
    found = [(v / v.sum() * rng.uniform(0.5, 1)) for v in rng.random((6, 4))]
    found[1], found[2] = np.sort(found[1]), np.sort(found[2])[::-1]
    found[3][1] = found[4][0] = 0
    return [v.tolist() for v in found] + [[0.0, 0.0], [1.0], [0.5, 0.5]]


@pytest.mark.parametrize("p", vectors(), ids=range(9))
@pytest.mark.parametrize("depth", [None, 1, 2, 3, 8])
def test_the_programme_equals_exhaustive_search(p, depth):
    for children in (1, 2, 8):
        programme = Programme(p, NODES - 1, depth, children)
        for n in range(NODES):
            best = exhaustive(p, n, depth, children)
            assert programme.values()[n] == pytest.approx(best, abs=1e-12)
            if np.isfinite(best):
                shape = programme.tree(n)
                assert shape.num_drafted == n
                assert expected_tokens(shape, p) == pytest.approx(best, abs=1e-12) == score(shape, p)
                assert depth is None or shape.depth <= depth
            else:
                with pytest.raises(ValueError, match="no tree of"):
                    programme.tree(n)


def test_one_programme_holds_every_depth():
    p = vectors()[0]
    whole = Programme(p, 12, 6)
    for depth in range(7):
        assert np.array_equal(whole.values(depth), Programme(p, 12, depth).values())
        assert whole.tree(min(12, whole.largest(depth)), depth).depth <= depth
    assert np.allclose(Programme(p, 12, 12).values(), Programme(p, 12).values(), atol=1e-12)
    assert (np.diff(whole.values(6)) >= 0).all()


@pytest.mark.parametrize("depth", [None, 1, 3, 6])
def test_greedy_equals_the_programme_where_the_vector_falls(depth):
    p = [0.5, 0.2, 0.2, 0.05, 0.0]
    programme, total = Programme(p, 40, depth), 1.0
    nodes = list(greedy_order(p, 40, depth))
    assert len(nodes) == programme.largest()
    for n, (_, chance) in enumerate(nodes, start=1):
        total += chance
        assert total == pytest.approx(programme.values()[n], abs=1e-10)
    with pytest.raises(ValueError, match="increases"):
        list(greedy_order([0.1, 0.2], 3))


def test_closed_forms():
    p = [0.5, 0.2, 0.1]
    assert expected_tokens(shapes.chain(5), p) == pytest.approx((1 - 0.5**6) / 0.5)
    assert expected_tokens(shapes.k_sequences(3, 4), p) == pytest.approx(1 + 0.8 * (1 - 0.5**4) / 0.5)
    assert expected_tokens(shapes.kary(2, 3), p) == pytest.approx((1 - 0.7**4) / 0.3)
    assert expected_tokens(shapes.star(3), p) == pytest.approx(1.8)
    assert expected_tokens(best_tree(acceptance=p, n=12), p) >= expected_tokens(shapes.k_sequences(3, 4), p)


def test_isotonic_pools_what_rises_and_keeps_the_sum():
    assert isotonic([0.5, 0.1, 0.2, 0.05]).tolist() == pytest.approx([0.5, 0.15, 0.15, 0.05])
    assert isotonic([0.1, 0.2, 0.3]).tolist() == pytest.approx([0.2] * 3)
    counts = [
        8821,
        1553,
        587,
        278,
        172,
        95,
        58,
        55,
        34,
        28,
        18,
        16,
        9,
        12,
        14,
        5,
        6,
        3,
        7,
        5,
        3,
        4,
        2,
        2,
        5,
        2,
        2,
        3,
        5,
    ]
    counts += [2, 4, 2]
    for p in (*vectors(), [count / 12424 for count in counts]):
        assert (np.diff(isotonic(p)) <= 0).all()
        assert isotonic(p).sum() == pytest.approx(sum(p))


def test_the_best_tree_for_a_measured_vector_that_rises():
    p = [0.1, 0.6, 0.1]
    raw = best_tree(acceptance=p, n=8)
    assert expected_tokens(raw, p) == pytest.approx(exhaustive(p, 8, None, 8))
    assert best_tree(acceptance=p, n=100, depth=1).num_drafted == 3
    for wrong in ([], [0.7, 0.7], [-0.1], [float("nan")]):
        with pytest.raises(ValueError, match="acceptance"):
            best_tree(acceptance=wrong, n=3)


def test_the_size_follows_the_hardware():
    p = [0.6, 0.2, 0.1]
    flat = choose_tree(p, dict.fromkeys([1, 2, 4, 8, 16], 1.0), 0.0, range(1, 9))
    assert flat.shape.num_drafted == 15
    assert flat.speedup == pytest.approx(expected_tokens(flat.shape, p)) == flat.expected_tokens
    steep = choose_tree(p, {1: 1.0, 2: 1.1, 4: 4.0, 8: 8.0}, 0.1, range(1, 9))
    assert steep.shape.num_drafted == 1
    assert steep.speedup == pytest.approx(1.6 / 1.2)
    assert choose_tree(p, {1: 1.0, 2: 9.0}, 1.0, [1]).shape.num_drafted == 0
    by_levels = choose_tree(p, {1: 1.0, 2: 1.1}, 0.1, [1], levels=True)
    assert by_levels.speedup == pytest.approx(1.6 / 1.3)
    with pytest.raises(ValueError, match="1 token"):
        choose_tree(p, {2: 1.0}, 0.1, [1])


def test_simulated_acceptance_has_the_predicted_mean():
    """Bernoulli acceptance by position over the best tree."""
    p, rng, steps = [0.5, 0.2, 0.1], np.random.default_rng(0), 20_000
    shape = best_tree(acceptance=p, n=20)
    ids = {path: node for node, path in enumerate(((), *shape.paths))}
    lengths = []
    for _ in range(steps):
        path, length = (), 1
        while True:
            rank = int(rng.choice(4, p=[*p, 1 - sum(p)]))
            path = (*path, rank)
            if path not in ids:
                break
            length += 1
        lengths.append(length)
    error = np.std(lengths) / np.sqrt(steps)
    assert abs(np.mean(lengths) - expected_tokens(shape, p)) < 4 * error


def test_shapes_are_kept_as_json():
    for shape in (shapes.eagle25(), shapes.chain(3), TreeShape(())):
        assert TreeShape.from_json(shape.to_json(pair="tiny")) == shape
    with pytest.raises(ValueError, match="num_children"):
        TreeShape.from_json('{"num_children": [1, 1]}')


def test_structures_have_the_tokens_of_their_trees():
    vector = [0.5, 0.2, 0.1, 0.05]
    rows = {(row.structure, row.n): row for row in growth(vector, (1, 2, 7, 20))}
    for n in (1, 2, 7, 20):
        shapes_of = {
            "sequoia": best_tree(acceptance=vector, n=n),
            "sequence": chain(n),
            "binary": binary_bfs(n),
            "k_sequences": best_sequences(acceptance=vector, n=n),
            "k_ary": kary_bfs(rows["k_ary", n].num_branches, n),
        }
        for structure, shape in shapes_of.items():
            row = rows[structure, n]
            assert row.expected_tokens == pytest.approx(expected_tokens(shape, vector), abs=1e-12)
            assert (shape.num_drafted, shape.depth) == (n, row.depth)
            assert len(row.parents) == n + 1
            assert structure == "sequoia" or list(shape.parents) == row.parents  # of equally good trees there are many
        assert rows["sequoia", n].expected_tokens >= max(rows[s, n].expected_tokens for s in shapes_of) - 1e-12
        fixed = [expected_tokens(sequences(k, n), vector) for k in range(1, min(n, 4) + 1)]
        assert rows["k_sequences", n].expected_tokens == pytest.approx(max(fixed))
        bushy = [expected_tokens(kary_bfs(k, n), vector) for k in range(min(2, n), min(n, 4) + 1)]
        assert expected_tokens(best_kary(acceptance=vector, n=n), vector) == pytest.approx(max(bushy))
    assert expected_tokens(best_sequences(acceptance=vector, n=12, num_sequences=3), vector) == pytest.approx(
        1 + 0.8 * (1 - 0.5**4) / 0.5
    )


def test_the_first_nodes_of_a_k_ary_tree_in_breadth_first_order():
    assert set(kary_bfs(3, 12).paths) == set(kary(3, 2).paths)
    assert kary_bfs(2, 5).num_children == (2, 2, 1, 0, 0, 0)
    assert sequences(2, 5).paths == ((0,), (1,), (0, 0), (1, 0), (0, 0, 0))
