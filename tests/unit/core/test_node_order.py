"""Node orders against recursion and heaps, blocks against counting and against the paper."""

import heapq
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from doubles import paths_of, random_tree
from hypothesis import given
from hypothesis import strategies as st

from specdec_core import TokenTree
from specdec_core.node_order import NODE_ORDERS, block_count, block_map, heap_order, node_order, placed, reordered
from specdec_trees import published

trees = st.builds(
    lambda nodes, seed: random_tree(nodes, 7, torch.Generator().manual_seed(seed)),
    st.integers(1, 40),
    st.integers(0, 10_000),
)


def recursive_tree(nodes: int, rng: torch.Generator) -> TokenTree:
    """Every node's parent is uniform among the nodes before it."""
    parents = (torch.rand(nodes, generator=rng) * torch.arange(nodes)).long()
    parents[0] = -1
    return TokenTree(torch.zeros(nodes, dtype=torch.long), parents, torch.ones(nodes))


def preorder(tree: TokenTree, heavy: bool) -> list[int]:
    def size(node: int) -> int:
        return 1 + sum(map(size, tree.children(node).tolist()))

    def walk(node: int) -> Iterator[int]:
        yield node
        children = tree.children(node).tolist()
        for child in sorted(children, key=size, reverse=True) if heavy else children:
            yield from walk(child)

    return list(walk(0))


@given(trees)
def test_preorders_equal_recursion(tree):
    assert node_order(tree, "creation").tolist() == list(range(tree.num_nodes))
    assert node_order(tree, "dfs").tolist() == preorder(tree, heavy=False)
    assert node_order(tree, "heavy_path").tolist() == preorder(tree, heavy=True)


def drawn(tree: TokenTree, seed: int) -> TokenTree:
    """The same tree with edges that siblings could have: together they are less than 1."""
    rng, edges = np.random.default_rng(seed), torch.ones(tree.num_nodes, dtype=torch.double)
    for node in range(tree.num_nodes):
        children = tree.children(node)
        edges[children] = torch.from_numpy(rng.dirichlet(np.ones(len(children) + 1)))[:-1]
    return TokenTree(tree.tokens, tree.parents, edges)


def popped(tree: TokenTree) -> list[int]:
    """Algorithm 1 on the tree's own draws: what is popped opens its own first site and its next sibling's."""
    children = [tree.children(node).tolist() for node in range(tree.num_nodes)]
    paths, parents = tree.path_probs.tolist(), tree.parents.tolist()
    sites, order = [(-1.0, 0)], []
    while sites:
        value, node = heapq.heappop(sites)
        order.append(node)
        if children[node]:
            heapq.heappush(sites, (-paths[node], children[node][0]))
        later = [child for child in children[parents[node]] if child > node] if node else []
        if later:
            heapq.heappush(sites, (value + paths[node], later[0]))
    return order


@given(trees, st.integers(0, 1000))
def test_the_heap_takes_the_best_site_next(tree, seed):
    tree = drawn(tree, seed)
    assert heap_order(tree).tolist() == popped(tree)


@given(trees)
def test_orders_are_topological_and_keep_the_paths(tree):
    tree = TokenTree(
        tree.tokens, tree.parents, tree.edge_probs, torch.eye(tree.num_nodes), torch.arange(tree.num_nodes)
    )
    for order in (*(node_order(tree, name) for name in NODE_ORDERS), heap_order(tree)):
        assert order.sort().values.tolist() == list(range(tree.num_nodes))
        moved = reordered(tree, order)
        assert moved.parents[0] == -1
        assert (moved.parents[1:] >= 0).all()
        assert (moved.parents < torch.arange(tree.num_nodes)).all()
        assert paths_of(moved) == [paths_of(tree)[node] for node in order.tolist()]
        assert torch.equal(moved.ancestor_mask, tree.ancestor_mask[order][:, order])
        assert torch.equal(moved.edge_probs, tree.edge_probs[order])
        rows_of_q = [moved.q_after(node).tolist() for node in range(tree.num_nodes)]
        assert rows_of_q == [tree.q_after(node).tolist() for node in order.tolist()]


@given(trees)
def test_a_placed_tree_finds_its_way_back(tree):
    deepest = int(tree.depths.argmax())
    path = tree.ancestor_mask[deepest].nonzero().flatten()
    for name in NODE_ORDERS:
        fed = placed(tree, name)
        assert torch.equal(fed.restored(fed.tree.tokens), tree.tokens)
        assert torch.equal(fed.restored(fed.tree.edge_probs[:, None].expand(-1, 2))[:, 1], tree.edge_probs)
        assert fed.tree.tokens[fed.slots(path)].tolist() == tree.tokens[path].tolist()
        assert fed.slots(path).tolist() == sorted(fed.slots(path).tolist())


def test_nothing_is_computed_where_nothing_moves():
    tree = random_tree(9, 7, torch.Generator().manual_seed(0))
    rows, path = torch.rand(9, 2), torch.tensor([0, 1])
    for fed in (placed(tree, "creation"), placed(TokenTree.root_only(3, torch.device("cpu")), "dfs")):
        assert fed.places is None
        assert fed.restored(rows) is rows
        assert fed.slots(path) is path
    assert placed(tree, "creation").tree is tree


@given(trees, st.sampled_from([1, 3, 8, 32]), st.sampled_from([None, 0, 1, 7, 8, 31, 45]))
def test_blocks_equal_counting(tree, block, prefix):
    """Prefixes that end on the edge of a block and within one."""
    before = prefix or 0
    columns = [[*range(before), *(before + row.nonzero().flatten()).tolist()] for row in tree.ancestor_mask]
    seen = {(row // block, column // block) for row, found in enumerate(columns) for column in found}
    assert int(block_count(tree.ancestor_mask, block, prefix)) == len(seen)
    if not before:
        assert {tuple(place) for place in block_map(tree.ancestor_mask, block).nonzero().tolist()} == seen


@pytest.mark.parametrize("nodes", [1, 31, 32, 33, 100])
@pytest.mark.parametrize("name", NODE_ORDERS)
def test_a_chain_fills_the_triangle_in_every_order(name, nodes):
    index = torch.arange(nodes)
    tree = placed(TokenTree(index, index - 1, torch.ones(nodes)), name).tree
    side = -(-nodes // 32)
    assert int(block_count(tree.ancestor_mask, 32)) == side * (side + 1) // 2


@pytest.mark.parametrize("size", [256, 512, 1024, 2048])
def test_random_trees_have_the_papers_blocks(size):
    """DySpec, Table 5: of 10 trees by the digits of its means; ours are 20, so that both have a sampling error."""
    rng = torch.Generator().manual_seed(0)
    sample = [recursive_tree(size, rng) for _ in range(20)]
    found = {
        name: torch.tensor([float(block_count(placed(tree, name).tree.ancestor_mask, 32)) for tree in sample])
        for name in NODE_ORDERS
    }
    rows = published.find("dyspec", "table5", metric="num_blocks").set_index("params")["value"]
    for name, moved in (("creation", "false"), ("dfs", "true")):
        error = float(found[name].std()) * (1 / 20 + 1 / 10) ** 0.5
        printed = rows[f"size={size};reorder={moved};block=32"]
        assert float(found[name].mean()) == pytest.approx(printed, abs=4 * error + 1e-6), name
    assert found["heavy_path"].mean() < found["dfs"].mean() < found["creation"].mean()
