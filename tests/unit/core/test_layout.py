import torch
from doubles import random_tree
from hypothesis import given
from hypothesis import strategies as st

from specdec_core.layout import causal_layout, tree_layout


@given(st.integers(1, 30), st.integers(0, 20), st.integers(0, 1000))
def test_mask_and_positions_equal_brute_force(nodes, prefix, seed):
    tree = random_tree(nodes, 5, torch.Generator().manual_seed(seed))
    layout = tree_layout(tree.ancestor_mask, tree.depths, prefix=prefix)
    if layout.mask is None:
        assert nodes == 1
        return
    mask, parents = layout.mask[0, 0], tree.parents.tolist()
    for node in range(nodes):
        line, at = {node}, node
        while parents[at] >= 0:
            at = parents[at]
            line.add(at)
        seen = set(range(prefix)) | {prefix + ancestor for ancestor in line}
        assert {slot for slot in range(prefix + nodes) if mask[node, slot] == 0} == seen
        assert all(mask[node, slot] == -torch.inf for slot in range(prefix + nodes) if slot not in seen)
        assert layout.positions[0, node] == prefix + len(line) - 1


def test_positions_stop_at_the_models_last():
    layout = causal_layout(5, prefix=6, device=torch.device("cpu"), max_positions=8)
    assert layout.positions.tolist() == [[6, 7, 7, 7, 7]]
    assert (layout.mask[0, 0] == 0).sum(-1).tolist() == [7, 8, 9, 10, 11]
