"""DySpec's Figures 6, 7 and 9: the picture of a mask, its counts, and blocks by prefix."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from doubles import random_tree
from matplotlib.colors import to_rgb

from bench.artifacts.outputs import NoResultsError, write_all
from bench.artifacts.style import Figure
from bench.artifacts.tables import Table
from bench.measure.recorders import MaskRecorder
from bench.papers.dyspec.masks import ORDERS, Mask
from bench.papers.registry import ARTIFACTS
from bench.results.rows import MaskRow
from specdec_core import Verdict
from specdec_core.models import ModelOutput
from specdec_core.node_order import block_map

pytestmark = pytest.mark.long


PATH = torch.tensor([0, 1, 2])


def mask_rows(run_id: str, nodes: int, *, prompts: int = 2, steps: int = 6) -> list[MaskRow]:
    """Random trees behind a prefix of 128 and two more tokens a step; the second step's has a node more."""
    rng, rows = torch.Generator().manual_seed(0), []
    for prompt in range(prompts):
        recorder = MaskRecorder(run_id, f"p{prompt}", 0, 128)
        for step in range(steps):
            size = nodes + (step == 1)
            recorder(random_tree(size, 7, rng), ModelOutput(torch.zeros(size, 7)), Verdict(PATH, (1, 1), 1))
        rows += recorder.rows
    return rows


def add(cells, n: int, **options: object) -> list[MaskRow]:
    run_id = cells.add("dyspec", params={"n": n}, dataset="openwebtext", **options)
    rows = mask_rows(run_id, n + 1)
    cells.store.write("masks", run_id, rows)
    return rows


def built(name: str, cells) -> tuple[Figure, Table]:
    figure, table = ARTIFACTS[f"dyspec/{name}"].build(name, cells.load())
    return figure, table


@pytest.mark.parametrize("block", [1, 8, 32])
@pytest.mark.parametrize("nodes", [1, 8, 33, 70])
def test_masks_and_blocks_from_parents_are_the_trees(nodes, block):
    tree = random_tree(nodes, 7, torch.Generator().manual_seed(nodes))
    mask = Mask(tree.parents.tolist(), block)
    assert np.array_equal(mask.visible, tree.ancestor_mask.numpy())
    assert np.array_equal(mask.blocks, block_map(tree.ancestor_mask, block).numpy())
    side = -(-nodes // block)
    assert mask.filled == mask.blocks.sum() <= mask.at_most == side * (side + 1) // 2


def test_a_picture_tells_what_is_seen_from_what_is_read_in_vain_and_what_is_skipped():
    """Two branches below the root, in blocks of 2: the lower ones do not see one another."""
    picture = Mask([-1, 0, 1, 1, 0, 4], 2).picture()
    seen, masked, empty = picture[0, 0], picture[0, 1], picture[0, 5]
    assert len({tuple(seen), tuple(masked), tuple(empty)}) == 3
    assert tuple(masked) == to_rgb("white")
    visible = np.array(
        [
            [1, 0, 2, 2, 2, 2],
            [1, 1, 2, 2, 2, 2],
            [1, 1, 1, 0, 2, 2],
            [1, 1, 0, 1, 2, 2],
            [1, 0, 2, 2, 1, 0],
            [1, 0, 2, 2, 1, 1],
        ]
    )
    for kind, colour in ((1, seen), (0, masked), (2, empty)):
        assert np.array_equal((picture == colour).all(-1), visible == kind)


def test_the_largest_tree_is_drawn_in_every_order_with_its_counts(cells):
    rows = add(cells, 69)
    cells.add("opt_tree", dataset="openwebtext")  # recorded no masks
    figure, table = built("fig7", cells)
    shown = [row for row in rows if (row.prompt_id, row.step) == ("p0", 1)]
    axes = figure.canvas.axes
    assert [row.order for row in shown] == list(ORDERS)
    assert [axis.get_title() for axis in axes] == [
        f"{ORDERS[row.order]}: {row.num_tree_blocks} of 6 blocks filled, 71 nodes" for row in shown
    ]
    for axis, row in zip(axes, shown, strict=True):
        (image,) = axis.images
        assert np.array_equal(image.get_array(), Mask(row.parents, 32).picture())
    assert table.frame["Blocks filled"].tolist() == [str(row.num_tree_blocks) for row in shown]
    assert set(table.frame["Nodes"]) == {"71"}
    assert len(set(table.runs)) == 1


def test_figure_6_sets_depth_first_against_the_heap(cells):
    add(cells, 40)
    figure, table = built("fig6", cells)
    assert table.frame["Order"].tolist() == [ORDERS["heap"], ORDERS["dfs"]]
    assert "blocks of 8 x 8" in figure.title
    assert len(figure.canvas.axes) == 2


def test_blocks_by_prefix_beside_the_papers(cells):
    """Panels by n; the paper has a value for 768 rows with the root, none for others."""
    large, small = add(cells, 767), add(cells, 40)
    figure, table = built("fig9", cells)
    assert [axis.get_title().split(", ")[2] for axis in figure.canvas.axes] == ["n = 40", "n = 767"]
    for axis, rows in zip(figure.canvas.axes, (small, large), strict=True):
        dots = {line.get_color(): line for line in axis.lines if line.get_marker() == "."}
        assert len(dots) == len(ORDERS)
        lines = [line for line in axis.lines if line.get_marker() not in (".", "None")]
        for line, order in zip(lines, ORDERS, strict=True):
            mine = [row for row in rows if row.order == order]
            points = list(zip(*dots[line.get_color()].get_data(), strict=True))
            assert points == [(row.num_prefix, row.num_blocks) for row in mine]
            early = [row.num_blocks for row in mine if row.num_prefix < 144]
            assert line.get_ydata()[0] == pytest.approx(np.mean(early))
    dashed = [
        [line.get_ydata()[0] for line in axis.lines if line.get_linestyle() == "--"] for axis in figure.canvas.axes
    ]
    assert dashed == [[], [366.12, 218.31]]
    frame = table.frame.set_index(["n", "Order"])
    assert frame.loc[("767", ORDERS["heap"]), "blocks published"] == "366.12"
    assert frame.loc[("767", ORDERS["dfs"]), "blocks published"] == "218.31"
    assert set(frame["steps"]) == {"12"}
    for rows, n in ((small, "40"), (large, "767")):
        means = {order: [row.num_tree_blocks for row in rows if row.order == order] for order in ORDERS}
        for order, values in means.items():
            found = frame.loc[(n, ORDERS[order])]
            assert float(found["tree blocks"].split()[0]) == pytest.approx(np.mean(values), abs=0.051)
            assert float(found["share"]) == pytest.approx(np.mean(values) / np.mean(means["heap"]), abs=0.005)
    assert table.runs == tuple(row.run_id for rows in (small, large) for row in rows[: len(ORDERS)])


@pytest.mark.parametrize("name", ["fig6", "fig7", "fig9"])
def test_runs_without_masks_are_one_sentence_and_those_with_are_written(name, cells, tmp_path):
    cells.add("dyspec", params={"n": 9})
    with pytest.raises(NoResultsError, match="no run recorded its masks"):
        built(name, cells)
    add(cells, 40)
    paths = write_all(built(name, cells), tmp_path)
    assert {path.suffix for path in paths} == {".png", ".pdf", ".md", ".tex", ".csv"}
