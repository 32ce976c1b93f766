"""Improved MCSD's Figure 6: its curves against plain numpy, what stands beside them, and what their lines are of."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pandas as pd
import pytest
from drawn import lines, row_of
from matplotlib.axes import Axes
from mcsd_figure_fills import FORK, HIDDEN, LARGE, LLAMA, SETTING, fork

from bench.artifacts import style
from bench.artifacts.outputs import NoResultsError
from bench.artifacts.tables import ABSENT, Table
from bench.artifacts.ties import BEST, TIED, UNRANKED
from bench.papers.improving_mcsd.widths import forks
from bench.papers.registry import ARTIFACTS
from bench.results.rows import StepRow


def build(cells) -> tuple[list[Axes], Table]:
    figure, table = ARTIFACTS["improving_mcsd/fig6"].build("fig6", cells.load())
    assert isinstance(figure, style.Figure)
    assert isinstance(table, Table)
    assert figure.runs == table.runs
    return figure.canvas.axes, table


def of_run(frame: pd.DataFrame, run_id: str) -> pd.DataFrame:
    return frame[frame["run_id"] == run_id]


def column(table: Table, key: str, name: str = "value") -> pd.Series:
    rows = table.long[table.long["metric"].map(lambda metric: metric.key) == key]
    return rows.set_index(["pair", "line", "x"])[name]


def curve(axes: Axes, index: int) -> list[tuple[float, float]]:
    look = style.of_methods(["dynamic_mcsd"] * 3)[index]
    (found,) = lines(axes, color=look["color"], marker=look["marker"])
    return [(float(x), float(y)) for x, y in found]


def test_what_the_paper_says_stands_at_its_widths(cells) -> None:
    for width in (1, 16, 24):
        fork(cells, width, chance=0.5, **LLAMA)
        fork(cells, width, chance=0.5, **LARGE)
    fork(cells, 16, chance=0.5, params={"depth": 4}, **LLAMA)
    (alpha, *speeds), table = build(cells)
    assert {x for line in lines(alpha, color=style.GREY) for x, _ in line} == {12}
    assert [{x for line in lines(axes, color=style.GREY) for x, _ in line} for axes in speeds] == [{10, 21}] * 2
    assert sorted(point for line in lines(alpha, marker="*") for point in line) == [(16, 0.74), (16, 0.95)]
    published = column(table, "alpha", "published").dropna()
    assert published.to_dict() == {(LLAMA["pair"], "depth=5", 16): 0.74, (LARGE["pair"], ABSENT, 16): 0.95}


def test_a_stand_in_is_set_against_the_first_pair_and_widths_beyond_ours_are_not_drawn(cells) -> None:
    fork(cells, 10, chance=0.5)
    fork(cells, 16, chance=0.5)
    axes, table = build(cells)
    assert [{x for line in lines(one, color=style.GREY) for x, _ in line} for one in axes] == [{12}, {10}, {10}]
    assert column(table, "alpha", "published").dropna().tolist() == [0.74]


def test_a_line_is_of_runs_that_differ_in_width_alone(cells) -> None:
    for width in (2, 4):
        fork(cells, width, chance=0.5)
        fork(cells, width, chance=0.5, params={"decision": HIDDEN})
        fork(cells, width, chance=0.5, params={"decision": HIDDEN | {"sha256": "fedcba987654"}})
    axes, table = build(cells)
    names = [f"hidden {HIDDEN['sha256']}", "hidden fedcba987654", "no decision model"]
    assert sorted(table.frame["Line"].unique()) == names
    assert [len(curve(axes[0], index)) for index in range(3)] == [2, 2, 2]


def test_two_rules_of_one_width_are_two_lines_and_of_two_runs_the_last_counts(cells) -> None:
    runs: dict[Any, str] = {}
    for rule in ("independent_longest", "longest_subtree", "independent_longest"):
        runs[rule] = fork(cells, 4, chance=0.5, verifier=rule)
    fork(cells, 4, chance=0.5, status="oom")
    fork(cells, 1, chance=0.5)
    found = forks(cells.load())
    assert found[["x", "rule"]].to_numpy().tolist() == [
        [4, "independent_longest"],
        [1, "longest_subtree"],
        [4, "longest_subtree"],
    ]
    assert set(runs.values()) < set(found["run_id"])


def test_sequences_from_the_root_have_no_first_token_of_the_targets(cells) -> None:
    run = fork(cells, 4, chance=0.5, params={"init": "draft"}, draws="without_replacement", lossless=True)
    _, table = build(cells)
    steps = of_run(cells.load().steps, run)
    assert column(table, "alpha").tolist() == pytest.approx([steps["num_accepted"].mean() / 5])


def test_the_axis_says_which_widths_are_lossy(cells) -> None:
    fork(cells, 4, chance=0.5)
    assert "(lossy)" in build(cells)[0][0].get_xlabel()
    fork(cells, 1, chance=0.5)
    assert "W = 1)" in build(cells)[0][0].get_xlabel()


@pytest.mark.parametrize("busy", [False, True])
def test_the_notes_name_the_widths_that_the_table_marks(busy: bool, cells) -> None:
    """Conversations differ by more than widths do: intervals overlap where the paired comparison tells them apart."""
    for place, (width, more) in enumerate(((1, 4), (2, 0), (4, 1), (8, 1))):
        run_id = fork(cells, width, chance=0.5, conversations=6, base_step_s=0.002 * 3 ** (busy * place))
        rows = cells.store.read("steps", [run_id])[[field.name for field in fields(StepRow)]].to_dict("records")
        accepted = [int(row["prompt_id"][1:]) // (1 + (more == 4)) + more * (row["step"] % 2) for row in rows]
        changed = [StepRow(**row | {"num_accepted": 1 + own}) for row, own in zip(rows, accepted, strict=True)]
        cells.store.write("steps", run_id, changed)
    _, table = build(cells)
    intervals, marks = (column(table, "alpha", name).droplevel([0, 1]) for name in ("interval", "mark"))
    assert intervals[2].high > intervals[4].low, "the two intervals overlap"
    assert {marks[4], marks[8]} == {BEST, TIED}
    (best,) = marks.index[marks == BEST]
    assert any(f"alpha is best at W = {best:g} (" in note for note in table.notes)
    assert (column(table, "speedup", "mark") == UNRANKED).all() == busy
    assert any("the speedup is best at" in note for note in table.notes) != busy


def test_failed_widths_are_in_the_table_alone(cells) -> None:
    fork(cells, 4, chance=0.5)
    failed = fork(cells, 24, chance=0.5, status="oom")
    axes, table = build(cells)
    assert row_of(table, failed)["alpha"] == "oom"
    assert axes[0].get_xticks().tolist() == [4]


def test_there_is_no_figure_without_a_fork(cells) -> None:
    cells.add("mcsd", "mcsd", **SETTING | {"params": FORK | {"width": 4}})
    with pytest.raises(NoResultsError):
        build(cells)
    fork(cells, 4, chance=0.5, status="failed")
    with pytest.raises(NoResultsError, match="failed: 1"):
        build(cells)
