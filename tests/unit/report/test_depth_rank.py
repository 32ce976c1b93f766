"""`bench/depth_rank` against plain counts: shares by depth and rank, what is left out, and the columns of a map."""

import numpy as np
import pytest
from drawn import axes_of, column, outputs, table_of

from specdec_trees.artifacts.outputs import NoResultsError
from specdec_trees.papers.beyond.depth_rank import COLUMNS, if_known, in_columns

RANKS = [0, 1, 0, 9, 2, 0, 0, 0]
"""Of the accepted tokens by their depth: in every other step one rank more at the first."""


def fill(cells, **given) -> str:
    cells.experiment = "bench/depth_rank"
    options = {"conversations": 8, "ranks": lambda step: [RANKS[0] + step % 2, *RANKS[1:]]}
    return cells.add("opt_tree", **options | given)


def test_shares_by_depth_and_rank_are_plain_counts(cells):
    fill(cells)
    steps, table = cells.load().steps, table_of("bench/depth_rank", cells)
    for place, metric in enumerate(("joint", "conditional")):
        shares = column(table, metric, who="depth")
        for depth, share in shares.items():
            before = len(steps) if place == 0 else (steps["num_accepted"] >= int(depth) - 1).sum()
            assert share == pytest.approx((steps["num_accepted"] >= int(depth)).sum() / before)
    reached = steps[steps["num_accepted"] >= 1]
    odd = (reached["step"] % 2 == 1).mean()
    assert column(table, "first", who="depth")["1"] == pytest.approx(1 - odd)
    assert column(table, "second", who="depth")["1"] == pytest.approx(odd)
    assert column(table, "second", who="depth")["2"] == 1
    assert column(table, "later", who="depth")["4"] == 1
    assert column(table, "later", who="depth")["1"] == 0


def test_a_map_has_all_that_was_accepted_and_a_column_for_all_later_ranks(cells):
    run_id = fill(cells)
    steps = cells.load().steps
    (axes, _) = axes_of("bench/depth_rank", cells)  # the map and its bar
    shown = axes.collections[0].get_array()
    assert shown.shape == (steps["num_accepted"].max(), COLUMNS)
    for depth in range(len(shown)):
        assert shown[depth].sum() == pytest.approx((steps["num_accepted"] > depth).mean())
    assert shown[3].nonzero()[0].tolist() == [COLUMNS - 1]  # rank 9
    assert outputs("bench/depth_rank", cells)[0].runs == (run_id,)


def test_columns_keep_every_count():
    counts = np.arange(22).reshape(2, 11)
    shown = in_columns(counts)
    assert shown.shape == (2, COLUMNS)
    assert shown[:, :7].tolist() == counts[:, :7].tolist()
    assert shown[:, 7].tolist() == [7 + 8 + 9 + 10, 18 + 19 + 20 + 21]
    assert in_columns(np.array([[3, 1]])).tolist() == [[3, 1, 0, 0, 0, 0, 0, 0]]


def test_runs_without_ranks_are_left_out(cells):
    cells.add("opt_tree", conversations=8)
    with pytest.raises(NoResultsError):
        outputs("bench/depth_rank", cells)
    assert if_known("ranks", cells.load()) == []
    cells.add("binary", conversations=8, ranks=lambda step: RANKS)
    assert {row["drafter"] for _, row in table_of("bench/depth_rank", cells).long.iterrows()} == {"binary"}
    assert len(if_known("ranks", cells.load())) == 2


def test_a_tree_that_never_accepts_a_later_child_has_no_share_of_them(cells):
    fill(cells, ranks=lambda step: [0] * 8)
    table = table_of("bench/depth_rank", cells)
    assert {*column(table, "first", who="depth").values()} == {1}
    assert {*column(table, "second", who="depth").values()} == {None}
