from dataclasses import replace

import pytest
import torch
from doubles import paths_of, random_q, random_tree
from hypothesis import given
from hypothesis import strategies as st

from specdec_core import TokenTree
from specdec_core.errors import PairError

trees = st.builds(
    lambda nodes, seed: random_tree(nodes, 7, torch.Generator().manual_seed(seed)),
    st.integers(1, 40),
    st.integers(0, 10_000),
)


def ancestors(tree: TokenTree, node: int) -> list[int]:
    found = [node]
    while tree.parents[found[-1]] >= 0:
        found.append(int(tree.parents[found[-1]]))
    return found


@given(trees)
def test_derived_values_equal_walking_the_parents(tree):
    for node in range(tree.num_nodes):
        line = ancestors(tree, node)
        assert tree.ancestor_mask[node].nonzero().flatten().tolist() == sorted(line)
        assert tree.depths[node] == len(line) - 1 == len(paths_of(tree)[node])
        assert tree.path_probs[node].item() == pytest.approx(
            torch.tensor([tree.edge_probs[i] for i in line]).double().prod().item(), rel=1e-6
        )


@given(trees)
def test_children_are_in_draft_order_and_complete(tree):
    children = [tree.children(node).tolist() for node in range(tree.num_nodes)]
    assert all(line == sorted(line) for line in children)
    assert sorted(node for line in children for node in line) == list(range(1, tree.num_nodes))


@given(trees)
def test_expected_acceptance_by_its_second_formula(tree):
    """Sum over nodes of (depth + 1) * path probability * (1 - sum of the children's q): equal for any edge values."""
    tree = replace(tree, tokens=torch.arange(tree.num_nodes))  # no token is repeated
    second = sum(
        (tree.depths[node] + 1) * tree.path_probs[node] * (1 - tree.edge_probs[tree.children(node)].double().sum())
        for node in range(tree.num_nodes)
    )
    assert tree.expected_acceptance.item() == pytest.approx(float(second), rel=1e-6, abs=1e-6)


def drawn_tree(num_nodes: int, vocab: int, seed: int) -> TokenTree:
    """Independent draws from distributions that hang on the path alone: repeated siblings, and repeats below them."""
    rng, probs = torch.Generator().manual_seed(seed), random_q(vocab, seed)
    tree = random_tree(num_nodes, vocab, rng)
    paths = paths_of(tree)
    edges = [1.0] + [float(probs(path[:-1])[path[-1]]) for path in paths[1:]]
    return replace(tree, edge_probs=torch.tensor(edges))


@given(st.integers(1, 40), st.integers(1, 4), st.integers(0, 10_000))
def test_expected_acceptance_counts_each_distinct_path_once(nodes, vocab, seed):
    """By walking the parents; the sum over all nodes is above depth + 1 where draws repeat."""
    tree = drawn_tree(nodes, vocab, seed)
    chances, paths, edges = {}, paths_of(tree), tree.edge_probs.double().tolist()
    for node, path in enumerate(paths):
        chances[path] = edges[node] * chances[path[:-1]] if path else 1.0
    assert tree.expected_acceptance.item() == pytest.approx(sum(chances.values()), rel=1e-9)
    assert tree.expected_acceptance.item() <= int(tree.depths.max()) + 1 + 1e-6
    assert tree.first_of_path.tolist() == [paths.index(path) == node for node, path in enumerate(paths)]


def test_repeats_below_repeats_are_one_path():
    """Root 3 -> 3, 3; below each of them 1, 1: two distinct paths of four and six nodes."""
    tree = TokenTree(
        torch.tensor([3, 3, 3, 1, 1, 1, 1]),
        torch.tensor([-1, 0, 0, 1, 1, 2, 2]),
        torch.tensor([1, 0.75, 0.75, 0.5, 0.5, 0.5, 0.5]),
    )
    assert tree.first_of_path.tolist() == [True, True, False, True, False, False, False]
    assert tree.expected_acceptance.item() == 1 + 0.75 + 0.375


def test_a_tree_without_probabilities_has_no_expected_acceptance():
    tree = TokenTree(torch.tensor([3, 3]), torch.tensor([-1, 0]), None)
    assert (tree.path_probs, tree.expected_acceptance) == (None, None)
    with pytest.raises(PairError, match="this drafter has none"):
        _ = tree.required_edge_probs
    assert tree.to(torch.device("meta")).edge_probs is None


def test_the_papers_worked_example_gives_3_07():
    """OPT-Tree, Figure 4 and Appendix B."""
    parents = torch.tensor([-1, 0, 0, 1, 1, 2, 2, 3, 3, 5])
    edges = torch.tensor([1, 0.5, 0.4, 0.8, 0.1, 0.6, 0.2, 0.5, 0.2, 0.5])
    tree = TokenTree(torch.arange(10), parents, edges)
    assert tree.num_drafted == 9
    assert tree.expected_acceptance.item() == pytest.approx(3.07)


def test_root_only():
    tree = TokenTree.root_only(5, torch.device("cpu"))
    assert (tree.num_drafted, tree.depths.tolist(), tree.expected_acceptance.item()) == (0, [0], 1.0)
