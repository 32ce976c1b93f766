"""Sliced masks: every cut equals a mask that is made from scratch."""

import pytest
import torch

from specdec_core import shapes
from specdec_core.layout import tree_layout
from specdec_core.sliced_mask import ALIGNMENT, LEAD, ROOM, SlicedMask

CPU = torch.device("cpu")


def level_major(seed):
    """Parents of a random tree, level by level; siblings need not stand together."""
    rng = torch.Generator().manual_seed(seed)
    parents, above = [-1], [0]
    for _ in range(int(torch.randint(1, 6, (), generator=rng))):
        here = list(range(len(parents), len(parents) + int(torch.randint(1, 7, (), generator=rng))))
        parents += [above[int(torch.randint(len(above), (), generator=rng))] for _ in here]
        above = here
    return tuple(parents)


FAMILIES = {
    "fork": shapes.k_sequences(3, 4).parents,
    "wide_fork": shapes.branching([16, 1, 1, 1, 1, 1]).parents,
    "expanding": shapes.branching([2, 3, 2]).parents,
    "eagle": shapes.eagle25().parents,
    "chain": shapes.chain(5).parents,
    "star": shapes.star(7).parents,
    "one_node": (-1, 0),
    **{f"random_{seed}": level_major(seed) for seed in range(6)},
}


def walked(parents, node):
    """A node and its ancestors, deepest first."""
    line = [node]
    while parents[line[-1]] >= 0:
        line.append(parents[line[-1]])
    return line


def cuts(parents):
    """First node of every level, and one behind the last."""
    depths = [len(walked(parents, node)) for node in range(len(parents))]
    assert depths == sorted(depths)
    return [depths.index(depth) for depth in range(1, depths[-1] + 1)] + [len(depths)]


def drawn(parents, first, count, prefix):
    """The mask and the positions, entry by entry: cached text, root at slot `prefix - first`, nodes behind it."""
    root = prefix - first
    mask, positions = torch.full((count, prefix + count), -torch.inf), []
    for row, node in enumerate(range(first, first + count)):
        line = walked(parents, node) if node >= 0 else []
        text = root if node >= 0 else root + node + 1
        mask[row, :text] = 0
        for seen in line:
            mask[row, root + seen] = 0
        positions.append(root + len(line) - 1 if node >= 0 else root + node)
    return mask, positions


def check(sliced, parents, first, count, prefix, *, dtype=torch.float32, max_positions=None):
    layout = sliced.layout(first, count, prefix=prefix, device=CPU, dtype=dtype, max_positions=max_positions)
    mask, positions = drawn(parents, first, count, prefix)
    if max_positions is not None:
        positions = [min(position, max_positions - 1) for position in positions]
    assert layout.positions.tolist() == [positions]
    assert (layout.mask is None) == (count == 1 and bool((mask == 0).all()))
    if layout.mask is not None:
        assert layout.mask.dtype == dtype
        assert torch.equal(layout.mask[0, 0], mask.to(dtype))
        assert layout.mask.storage_offset() % ALIGNMENT == layout.mask.stride(-2) % ALIGNMENT == 0
        assert layout.mask.stride(-1) == 1
    return layout


def cut_layouts(parents):
    """First node and count of everything that is ever read: levels, trees cut behind a level, a token of the text."""
    ends = cuts(parents)
    for depth, end in enumerate(ends[1:]):
        yield ends[depth], end - ends[depth]
        yield from ((first, end - first) for first in (-LEAD, 0, 1))
    yield from ((-LEAD, 1), (-LEAD, 2), (0, 1))


@pytest.mark.parametrize("name", FAMILIES)
def test_every_cut_equals_a_mask_made_from_scratch(name):
    parents = FAMILIES[name]
    sliced = SlicedMask(parents)
    for end in cuts(parents)[1:]:
        lines = [walked(parents, node) for node in range(end)]
        seen = [[ancestor in line for ancestor in range(end)] for line in lines]
        assert sliced.ancestors(end, CPU).tolist() == seen
        assert sliced.depths(end, CPU).tolist() == [len(line) - 1 for line in lines]
    for first, count in cut_layouts(parents):
        for prefix in (len(parents) + extra for extra in (LEAD, 5, 40)):
            check(sliced, parents, first, count, prefix)


@pytest.mark.parametrize("name", FAMILIES)
def test_layouts_equal_those_of_a_tree_that_is_laid_out_anew(name):
    """The lead token is a root above the root."""
    parents = FAMILIES[name]
    sliced = SlicedMask(parents)
    longer = [-1, *(parent + 1 for parent in parents)]
    visible = torch.tensor(
        [[seen in walked(longer, node) for seen in range(len(longer))] for node in range(len(longer))]
    )
    for first, count in cut_layouts(parents):
        rows = visible[first + 1 : first + 1 + count, : first + 1 + count]
        prefix = 50 + first
        anew = tree_layout(rows, rows.sum(-1) - 1, prefix=prefix - first - 1, max_positions=52)
        ours = sliced.layout(first, count, prefix=prefix, device=CPU, dtype=torch.float32, max_positions=52)
        assert torch.equal(ours.positions, anew.positions)
        if ours.mask is None:
            assert anew.mask is None or not anew.mask.any()
        else:
            assert torch.equal(ours.mask, anew.mask)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_masks_are_made_anew_where_the_columns_run_out_and_not_before(dtype):
    """Every residue of the root's place, up over the room twice and back, in any dtype."""
    parents = FAMILIES["expanding"]
    sliced, storages = SlicedMask(parents), {}
    around = [*range(16, 25), *range(ROOM - 9, ROOM + 18), *range(2 * ROOM + 10, 2 * ROOM + 30), 4 * ROOM + 41, 17]
    for root in around:
        for first, count in ((0, len(parents)), (1, len(parents) - 1), (-LEAD, LEAD + 3), (3, 6)):
            layout = check(sliced, parents, first, count, root + first, dtype=dtype)
            room = storages.setdefault(root % ALIGNMENT, [])
            storage = layout.mask.untyped_storage().data_ptr()
            if storage not in (found for found, _ in room):
                room.append((storage, layout))
    assert len(storages) == ALIGNMENT
    assert {len(room) for room in storages.values()} == {3, 4}, "one for each multiple of the room that was reached"


def test_a_cold_mask_far_behind_its_room():
    for root in (3 * ROOM, 3 * ROOM + 5):
        check(SlicedMask(FAMILIES["fork"]), FAMILIES["fork"], 0, len(FAMILIES["fork"]), root)


@pytest.mark.parametrize("bound", [1, 12, 20, 22, 1000])
def test_positions_stop_at_the_models_last(bound):
    for first, count in cut_layouts(FAMILIES["expanding"]):
        check(SlicedMask(FAMILIES["expanding"]), FAMILIES["expanding"], first, count, 20 + first, max_positions=bound)


def test_dtypes_do_not_share_masks_and_views_share_their_storage():
    parents = FAMILIES["fork"]
    sliced = SlicedMask(parents)
    one, other, double = (check(sliced, parents, 1, count, 33, dtype=dtype).mask for count, dtype in (
        (3, torch.float32), (9, torch.float32), (9, torch.float64),
    ))  # fmt: skip
    assert one.untyped_storage().data_ptr() == other.untyped_storage().data_ptr()
    assert one.untyped_storage().data_ptr() != double.untyped_storage().data_ptr()
    assert (
        sliced.ancestors(4, CPU).untyped_storage().data_ptr() == sliced.ancestors(9, CPU).untyped_storage().data_ptr()
    )
    assert sliced.depths(4, CPU).untyped_storage().data_ptr() == sliced.depths(9, CPU).untyped_storage().data_ptr()


@pytest.mark.parametrize("first", [-LEAD - 1, -LEAD - 7])
def test_more_text_before_the_root_is_refused(first):
    with pytest.raises(ValueError, match=f"begins at node {-LEAD} or behind it, not at {first}"):
        SlicedMask(FAMILIES["fork"]).layout(first, 9, prefix=40, device=CPU, dtype=torch.float32)
