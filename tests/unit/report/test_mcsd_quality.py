"""Improved MCSD's Table 1: grades and their differences, what needs no judge, and the paper's numbers."""

from pathlib import Path
from typing import Any

import pytest
from mcsd_quality_fills import NAMES, RULES, add, fill, judgement

from bench.artifacts.outputs import write_all
from bench.artifacts.tables import ABSENT, Table
from bench.papers.registry import ARTIFACTS
from bench.results.rows import AUTOREGRESSIVE, METHOD, JudgementRow
from bench.results.store import Store

pytestmark = pytest.mark.long


def build(cells) -> tuple[Table, Table]:
    wide, details = ARTIFACTS["improving_mcsd/table1"].build("table1", cells.load())
    return wide, details


def row(table: Table, width: int | str, rule: str = RULES[0], **where: str) -> Any:
    frame = table.frame[(table.frame["First tokens"] == str(width)) & (table.frame["Rule"] == rule)]
    for column, value in where.items():
        frame = frame[frame[column] == value]
    (line,) = [line for _, line in frame.iterrows()]
    return line


def alone(table: Table, **where: str) -> Any:
    return row(table, "the target alone", ABSENT, **where)


def test_grades_stand_beside_the_papers(cells) -> None:
    fill(cells)
    wide, details = build(cells)
    assert wide.frame["First tokens"].tolist() == ["the target alone", "1", "2", "3", "1", "2", "3"]
    assert alone(wide)[["jf68m", "jf68m published", "tinyllama_1_1b published"]].tolist() == ["6.50", "6.29", "6.29"]
    two = row(wide, 2)
    assert two[["jf68m", "jf68m published"]].tolist() == ["5.50 (-1.00)", "5.83 (-0.43)"]
    assert two[["tinyllama_1_1b", "tinyllama_1_1b published"]].tolist() == ["5.50 (-1.00)", "5.07 (-1.22)"]
    assert row(wide, 3)["jf68m published"] == "5.69 (-0.60)"
    assert row(wide, 2, RULES[1])["jf68m published"] == row(wide, 1)["jf68m published"] == ABSENT
    full = row(details, 3, Draft="jf68m")
    assert full["score"].startswith("4.50 [4.50, 4.50]")
    assert full["score - alone"].startswith("-2.000 [-2.000")
    assert full[["score published", "score - alone published", "judged"]].tolist() == ["5.69", "-0.60", "12 of 12"]
    assert full["verdict"] == "order holds"
    assert row(details, 2, RULES[1], Draft="jf68m")["verdict"] == "not comparable: no published value"


def test_scores_in_the_wrong_order_differ_from_the_paper(cells) -> None:
    for width, score in ((2, 4.0), (3, 5.0)):
        add(cells, width, score=score)
    _, details = build(cells)
    assert row(details, 3, Draft="jf68m")["verdict"] == "differs"


def test_the_rows_of_a_run_say_whether_it_keeps_the_distribution(cells) -> None:
    fill(cells)
    for table in build(cells):
        lossless = {
            (line["First tokens"], line["Rule"]) for _, line in table.frame.iterrows() if line["lossless"] == "lossless"
        }
        assert lossless == {("the target alone", ABSENT), ("1", RULES[1])}


def test_without_a_judge_there_is_what_needs_none(cells) -> None:
    fill(cells, score=None)
    wide, details = build(cells)
    assert set(wide.frame["jf68m"]) == {"not judged"}
    two = row(wide, 2)
    assert two["jf68m variation"] == "0.050 (noise 0.010)"
    assert float(two["jf68m log-likelihood - alone"]) == pytest.approx(-0.2, abs=0.02)
    assert two["jf68m ROUGE-L"] == "0.233"
    assert two["jf68m published"] == "5.83 (-0.43)"
    full = row(details, 2, Draft="jf68m")
    assert full[["score - alone", "judged", "verdict"]].tolist() == [ABSENT, "0 of 12", "not comparable: not judged"]
    assert full["ROUGE-L alone"].startswith("0.300 [")
    assert full["log-likelihood - alone"].startswith("-0.2")
    assert "bench.judge" in " ".join(wide.notes)


def test_differences_are_paired_by_turn_and_intervals_by_conversation(cells) -> None:
    """A turn that has a grade in one arm alone counts for the mean and not for the difference."""
    run = add(cells, 2, score=None)
    grades = {("p0", 0): (2, 8), ("p0", 1): (4, 4), ("p1", 0): (6, None), ("p1", 1): (8, 9), ("p2", 0): (None, 1)}
    rows = [
        judgement({"run_id": run, "prompt_id": prompt, "turn": turn, "arm": arm}, score)
        for (prompt, turn), both in grades.items() for arm, score in zip((METHOD, AUTOREGRESSIVE), both, strict=True)
    ]  # fmt: skip
    cells.store.write("judgements", run, rows)
    wide, details = build(cells)
    assert row(wide, 2)["jf68m"] == f"{(2 + 4 + 6 + 8) / 4:.2f} ({(-6 + 0 - 1) / 3:+.2f} over 3), 4 of 12"
    assert alone(wide)["jf68m"] == f"{(8 + 4 + 9 + 1) / 4:.2f}, 4 of 12"
    assert row(details, 2, Draft="jf68m")["judged"] == "4 of 12"


def test_what_is_graded_in_part_says_so(cells) -> None:
    """The method's first two turns are graded in both arms, all others of the target alone."""
    run = add(cells, 2)
    first = ("p0", 0), ("p0", 1)
    rows = cells.load().judgements.query(f"run_id == '{run}'").replace({float("nan"): None}).to_dict("records")
    kept = [row for row in rows if row["arm"] == AUTOREGRESSIVE or (row["prompt_id"], row["turn"]) in first]
    cells.store.write("judgements", run, [JudgementRow(**row) for row in kept])
    wide, details = build(cells)
    assert row(wide, 2)["jf68m"] == "5.50 (-1.00), 2 of 12"
    assert alone(wide)["jf68m"] == "6.50"
    assert row(details, 2, Draft="jf68m")["judged"] == "2 of 12"
    assert any(note.startswith("Not all answers are graded") for note in wide.notes)
    assert "graded in both arms" in wide.legend["jf68m"]


def test_a_column_names_the_target_where_two_have_the_draft(cells) -> None:
    other = {"pair": "vicuna_7b_jf68m", "published": {"target": "vicuna_7b", "draft": "jf68m", "stand_in": False}}
    add(cells, 2)
    add(cells, 2, score=3.0, **other)
    wide, _ = build(cells)
    assert row(wide, 2)[["llama2_7b_chat + jf68m", "vicuna_7b + jf68m"]].tolist() == ["5.50 (-1.00)", "3.00 (-3.50)"]
    assert row(wide, 2)[["llama2_7b_chat + jf68m published", "vicuna_7b + jf68m published"]].tolist() == [
        *("5.83 (-0.43)", ABSENT)
    ]
    assert "tinyllama_1_1b" in wide.frame


def test_a_target_of_ours_does_not_hide_behind_the_papers(cells) -> None:
    """The paper's own pair with this draft was not run."""
    other = {"pair": "vicuna_7b_jf68m", "published": {"target": "vicuna_7b", "draft": "jf68m", "stand_in": False}}
    add(cells, 2, score=3.0, **other)
    wide, _ = build(cells)
    assert row(wide, 2)["vicuna_7b + jf68m"] == "3.00 (-3.50)"
    assert row(wide, 2)["llama2_7b_chat + jf68m published"] == "5.83 (-0.43)"


def test_runs_of_one_pair_are_told_by_what_differs(cells) -> None:
    for seed in (0, 1):
        add(cells, 2, seed=seed)
    wide, _ = build(cells)
    assert {"jf68m, seed 0", "jf68m, seed 1"} <= set(wide.frame.columns)


def test_of_several_judges_the_one_with_most_grades_is_shown(cells) -> None:
    add(cells, 2, score=3.0, judge="most")
    add(cells, 3, score=9.0, judge="few")
    add(cells, 1, score=2.0, judge="most")
    wide, _ = build(cells)
    assert [row(wide, width)["jf68m"].split()[0] for width in (1, 2, 3)] == ["2.00", "3.00", "not"]
    notes = " ".join(wide.notes)
    assert "Scores are by most (prompts 1)" in notes
    assert "Not shown: grades by few (prompts 1)." in notes


def test_notes_say_where_the_distribution_is_lost_and_what_the_paper_misprints(cells) -> None:
    add(cells, 2, fall=0.4)
    add(cells, 1, RULES[1], fall=0.0)
    notes = " ".join(build(cells)[0].notes)
    assert "Of 2 log-likelihoods 1 differ from the target's own by their 95% interval: TI-MCSD (lossy), W = 2" in notes
    assert "5.83 (-0.43) for jf68m with 2 first tokens, but 5.83 - 6.29 = -0.46" in notes
    assert "5.07" not in notes
    assert "within 0.05" in notes


def test_other_runs_are_named_and_not_shown(cells) -> None:
    add(cells, 2)
    other = add(cells, 2, params={"widths": [2, 2, 1]}, temperature=1.0)
    wide, _ = build(cells)
    assert other not in " ".join(wide.runs)
    assert any(other in note for note in wide.notes)


def test_failures_stand_in_their_cells(cells) -> None:
    add(cells, 2)
    add(cells, 3, status="oom", lossless=False)
    wide, details = build(cells)
    assert row(wide, 3)["jf68m"] == "oom"
    assert row(details, 3, Draft="jf68m")["verdict"] == "not run"


@pytest.mark.parametrize(
    "filled",
    [
        fill,
        lambda cells: None,
        lambda cells: add(cells, 2, status="oom"),
        lambda cells: add(cells, 2, pair="tiny", published={"target": "x", "draft": "y", "stand_in": True}),
        lambda cells: add(cells, 2, pair="mine", published=None, dataset="mini"),
        lambda cells: [add(cells, 2, seed=seed) for seed in (0, 1)],
        lambda cells: add(cells, 1, score=5.0, conversations=1),
    ],
)
def test_it_is_written_whatever_was_run(filled, cells, tmp_path: Path) -> None:
    filled(cells)
    outputs = build(cells)
    paths = write_all(outputs, tmp_path / "out")
    assert [path.name for path in paths if path.suffix == ".md"] == ["table1.md", "table1_details.md"]
    for table in outputs:
        assert len(table.runs) == len(table.frame)
        assert table.frame.columns.is_unique
        assert not {"nan", "None"} & set(table.frame.to_numpy().ravel())
        assert "nan" not in " ".join(table.notes)


def test_a_stand_in_takes_the_place_of_the_first_draft(cells) -> None:
    add(cells, 2, pair="tiny", published={"target": "x", "draft": "y", "stand_in": True})
    wide, _ = build(cells)
    assert row(wide, 2)["tiny (for tinyllama_1_1b) published"] == "5.07 (-1.22)"
    assert "jf68m published" in wide.frame


def test_prompts_of_other_datasets_have_no_published_scores(cells) -> None:
    add(cells, 2, dataset="alpaca")
    wide, _ = build(cells)
    assert row(wide, 2)["jf68m published"] == ABSENT
    assert alone(wide)["jf68m published"] == ABSENT


def test_the_fill_is_what_the_store_holds(cells) -> None:
    runs = fill(cells)
    assert len(runs) == len(NAMES) * 3 * 2
    store: Store = cells.store
    assert all(store.has("judgements", run) for run in runs.values())
