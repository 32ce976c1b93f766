"""Improved MCSD's Figure 6: its curves against plain numpy, what stands beside them, and what their lines are of."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from drawn import labels, lines, row_of
from matplotlib.axes import Axes
from mcsd_figure_fills import AT_ONE, FORK, HIDDEN, LARGE, LLAMA, WIDTHS, fill_fig6, fork
from recomputed import of_columns, written

from bench.artifacts import style
from bench.artifacts.outputs import NoResultsError, write_all
from bench.artifacts.tables import ABSENT, Table
from bench.artifacts.ties import BEST, TIED
from bench.papers.registry import ARTIFACTS
from bench.results.rows import StepRow

pytestmark = pytest.mark.long


def build(cells) -> tuple[list[Axes], Table]:
    figure, table = ARTIFACTS["improving_mcsd/fig6"].build("fig6", cells.load())
    assert isinstance(figure, style.Figure)
    assert isinstance(table, Table)
    assert figure.runs == table.runs
    return figure.canvas.axes, table


def of_run(frame: pd.DataFrame, run_id: str) -> pd.DataFrame:
    return frame[frame["run_id"] == run_id]


def curve(axes: Axes, index: int) -> list[tuple[float, float]]:
    look = style.of_methods(["dynamic_mcsd"] * 3)[index]
    (found,) = lines(axes, color=look["color"], marker=look["marker"])
    return [(float(x), float(y)) for x, y in found]


def reach(values: dict[str, tuple[float, float]], digits: int) -> str:
    """A ratio of sums over conversations with its interval."""
    return written(of_columns(np.array([values[name] for name in sorted(values)]), np.divide), digits)


def test_every_point_is_what_its_rows_come_to(cells) -> None:
    runs = fill_fig6(cells)
    (alpha, tokens, speedup), table = build(cells)
    results = cells.load()
    for (pair, width), run_id in runs.items():
        index, place = int(pair == LLAMA["pair"]), WIDTHS.index(width)
        row, steps, prompts = row_of(table, run_id), of_run(results.steps, run_id), of_run(results.prompts, run_id)
        accepted = {
            str(name): ((group["num_accepted"] - 1).sum(), 5 * len(group)) for name, group in steps.groupby("prompt_id")
        }
        assert row["alpha"].rstrip(" *=") == reach(accepted, 3)
        assert row[["Pair", "W", "nodes"]].tolist() == [pair, str(width), f"{6 * width}.0"]
        assert row["lossless"] == ("yes" if width == 1 else "no")
        sums = prompts.groupby("arm")[["num_decoded_tokens", "decode_s"]].sum()
        per_s = sums["num_decoded_tokens"] / sums["decode_s"]
        assert curve(alpha, index)[place] == (width, pytest.approx((steps["num_accepted"] - 1).mean() / 5))
        assert curve(tokens, index)[place] == (width, pytest.approx(per_s["method"]))
        assert curve(speedup, index)[place] == (width, pytest.approx(per_s["method"] / per_s["autoregressive"]))
        assert row["MAL"].startswith(f"{1 + 5 * curve(alpha, index)[place][1]:.2f} [")
    assert labels(alpha)[:2] == [LARGE["pair"], LLAMA["pair"]]


def test_what_the_paper_says_stands_at_its_widths(cells) -> None:
    for width in (1, 16, 24):
        fork(cells, width, chance=0.5, **LLAMA)
        fork(cells, width, chance=0.5, **LARGE)
    fork(cells, 16, chance=0.5, params={"depth": 4}, **LLAMA)
    (alpha, tokens, speedup), table = build(cells)
    assert {x for line in lines(alpha, color=style.GREY) for x, _ in line} == {12}
    assert [{x for line in lines(axes, color=style.GREY) for x, _ in line} for axes in (tokens, speedup)] == [
        {10, 21}
    ] * 2
    assert "the paper's text: drops at W = 21" in labels(speedup)
    stars = sorted(point for line in lines(alpha, marker="*") for point in line)
    assert stars == [(16, 0.74), (16, 0.95)]
    assert "the paper's Table 4: llama2_7b_chat + tinyllama_1_1b" in labels(alpha)
    published = table.frame.set_index(["Pair", "Line", "W"])["alpha published"]
    assert published.loc[LLAMA["pair"], "depth=5", "16"] == "0.74"
    assert published.drop([(LLAMA["pair"], "depth=5", "16"), (LARGE["pair"], ABSENT, "16")]).eq(ABSENT).all()
    assert "alpha converges at W = 12, speed at W = 10, and speed drops noticeably at W = 21" in " ".join(table.notes)


def test_widths_of_the_papers_that_were_not_reached_are_not_drawn(cells) -> None:
    fork(cells, 10, chance=0.5)
    axes, _ = build(cells)
    assert [{x for line in lines(one, color=style.GREY) for x, _ in line} for one in axes] == [set(), {10}, {10}]


def test_a_stand_in_is_set_against_the_first_pair(cells) -> None:
    fork(cells, 16, chance=0.5)
    _, table = build(cells)
    assert table.frame["alpha published"].tolist() == ["0.74"]
    assert "tiny (stands in for llama2_7b_chat + jf68m)" in table.title


def test_a_line_is_of_runs_that_differ_in_width_alone(cells) -> None:
    for width in (2, 4):
        fork(cells, width, chance=0.5)
        fork(cells, width, chance=0.5, params={"decision": HIDDEN})
        fork(cells, width, chance=0.5, params={"decision": HIDDEN | {"sha256": "fedcba987654"}})
    axes, table = build(cells)
    names = [f"hidden {HIDDEN['sha256']}", "hidden fedcba987654", "no decision model"]
    assert sorted(table.frame["Line"].unique()) == names
    assert [len(curve(axes[0], index)) for index in range(3)] == [2, 2, 2]
    assert sorted(labels(axes[0]))[:3] == [f"tiny, {name}" for name in names]


def test_two_rules_of_one_width_are_two_lines(cells) -> None:
    for rule in ("independent_longest", "longest_subtree"):
        fork(cells, 4, chance=0.5, verifier=rule)
    fork(cells, 1, chance=0.5)
    _, table = build(cells)
    assert dict(zip(table.frame["W"] + table.frame["Line"], table.frame["Line"], strict=True)).keys() == {
        "4rule=independent_longest",
        "4rule=longest_subtree",
        "1rule=longest_subtree",
    }


def test_sequences_from_the_root_have_no_first_token_of_the_targets(cells) -> None:
    run = fork(cells, 4, chance=0.5, params={"init": "draft"}, draws="without_replacement", lossless=True)
    axes, table = build(cells)
    steps = of_run(cells.load().steps, run)
    assert row_of(table, run)["alpha"].startswith(f"{steps['num_accepted'].mean() / 5:.3f} [")
    assert axes[0].get_xlabel() == "W: sequences of the tree"


def test_the_axis_says_which_widths_are_lossy(cells) -> None:
    fork(cells, 4, chance=0.5)
    assert build(cells)[0][0].get_xlabel() == "W: sequences of the tree (lossy)"
    fork(cells, 1, chance=0.5)
    assert build(cells)[0][0].get_xlabel() == "W: sequences of the tree (lossy but at W = 1)"


def test_the_notes_say_where_curves_are_flat(cells) -> None:
    for width, chance, speedup in ((2, 0.2, 1.9), (8, 0.9, 1.5), (16, 0.9, 1.0)):
        fork(cells, width, chance=chance, speedup=speedup, steps=12, spread=False)
    _, table = build(cells)
    said = [note for note in table.notes if "is best at" in note]
    best = next(width for width in (8, 16) if f"alpha is best at W = {width} (" in said[0])
    assert said[0].endswith(f", tied with W = {24 - best}.")
    assert "the speedup is best at W = 2 (1.9" in said[1]
    assert said[1].endswith(", tied with no other.")


def test_the_notes_name_the_widths_that_the_table_marks(cells) -> None:
    """Conversations differ by more than widths do: intervals overlap where the paired comparison tells them apart."""
    for width, more in ((1, 4), (2, 0), (4, 1), (8, 1)):
        run_id = fork(cells, width, chance=0.5, conversations=6)
        rows = cells.store.read("steps", [run_id])[[field.name for field in fields(StepRow)]].to_dict("records")
        accepted = [int(row["prompt_id"][1:]) // (1 + (more == 4)) + more * (row["step"] % 2) for row in rows]
        changed = [StepRow(**row | {"num_accepted": 1 + own}) for row, own in zip(rows, accepted, strict=True)]
        cells.store.write("steps", run_id, changed)
    _, table = build(cells)
    frame = table.frame.set_index("W")["alpha"]
    ends = {width: [float(end) for end in re.findall(r"[0-9.]+", text)] for width, text in frame.items()}
    assert ends["2"][2] > ends["4"][1], "the two intervals overlap"
    (best,), (tied,) = frame.index[frame.str.endswith(BEST)], frame.index[frame.str.endswith(TIED)]
    assert {best, tied} == {"4", "8"}
    (note,) = [note for note in table.notes if "alpha is best at" in note]
    assert note.startswith(f"tiny: alpha is best at W = {best} (")
    assert note.endswith(f", tied with W = {tied}.")


def test_times_that_are_too_noisy_have_no_best_width(cells) -> None:
    for place, width in enumerate((2, 4, 8)):
        fork(cells, width, chance=0.5, base_step_s=0.002 * 3**place)
    _, table = build(cells)
    assert "tiny: times are too noisy to say where the speedup is best (!)." in table.notes
    assert not any("the speedup is best at" in note for note in table.notes)
    assert any("alpha is best at" in note for note in table.notes), "alpha knows no time"


def test_failed_widths_are_in_the_table_alone(cells, tmp_path: Path) -> None:
    fork(cells, 4, chance=0.5)
    failed = fork(cells, 24, chance=0.5, status="oom")
    axes, table = build(cells)
    assert row_of(table, failed)[["alpha", "tokens/s", "nodes"]].tolist() == ["oom", ABSENT, ABSENT]
    assert axes[0].get_xticks().tolist() == [4]
    assert all(
        path.stat().st_size > 100
        for path in write_all(ARTIFACTS["improving_mcsd/fig6"].build("fig6", cells.load()), tmp_path)
    )


def test_there_is_no_figure_without_a_fork(cells) -> None:
    with pytest.raises(NoResultsError):
        build(cells)
    cells.add("mcsd", "mcsd", **AT_ONE | {"params": FORK | {"width": 4}})
    with pytest.raises(NoResultsError, match="dynamic_mcsd"):
        build(cells)
    fork(cells, 4, chance=0.5, status="failed")
    with pytest.raises(NoResultsError, match="failed: 1"):
        build(cells)
