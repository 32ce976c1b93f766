"""Improved MCSD's Table 1: grades and their differences, what needs no judge, and the paper's numbers."""

from typing import Any

import pandas as pd
import pytest
from mcsd_quality_fills import RULES, add, fill, judgement

from bench.artifacts.tables import ABSENT, Table
from bench.papers.registry import ARTIFACTS
from bench.results.rows import AUTOREGRESSIVE, METHOD, JudgementRow

pytestmark = pytest.mark.long
VICUNA = {"pair": "vicuna_7b_jf68m", "published": {"target": "vicuna_7b", "draft": "jf68m", "stand_in": False}}


def build(cells) -> Table:
    (table,) = ARTIFACTS["improving_mcsd/table1"].build("table1", cells.load())
    return table


def row(table: Table, width: int | str, rule: str = RULES[0], draft: str = "jf68m", **where: str) -> pd.Series:
    frame = table.frame[(table.frame["First tokens"] == str(width)) & (table.frame["Rule"] == rule)]
    for column, value in {"Draft": draft, **where}.items():
        frame = frame[frame[column] == value]
    (line,) = [line for _, line in frame.iterrows()]
    return line


def alone(table: Table, **where: str) -> pd.Series:
    return row(table, "the target alone", ABSENT, **where)


def values(line: pd.Series, *columns: str) -> list[Any]:
    """The numbers before the intervals, or the words."""
    return [text.partition(" [")[0] for text in line[[*columns]]]


def test_grades_stand_beside_the_papers(cells) -> None:
    fill(cells)
    table = build(cells)
    both = ("score", "score published", "score - alone", "score - alone published")
    assert values(alone(table), *both) == ["6.50", "6.29", ABSENT, ABSENT]
    assert values(row(table, 2), *both) == ["5.50", "5.83", "-1.000", "-0.43"]
    assert values(row(table, 2, draft="tinyllama_1_1b"), *both) == ["5.50", "5.07", "-1.000", "-1.22"]
    assert values(row(table, 3), *both) == ["4.50", "5.69", "-2.000", "-0.60"]
    assert values(row(table, 2, RULES[1]), *both[1::2]) == values(row(table, 1), *both[1::2]) == [ABSENT, ABSENT]
    assert row(table, 3)[["judged", "verdict score"]].tolist() == ["12 of 12", "order holds"]
    assert row(table, 2, RULES[1])["verdict score"] == ""


def test_scores_in_the_wrong_order_differ_from_the_paper(cells) -> None:
    for width, score in ((2, 4.0), (3, 5.0)):
        add(cells, width, score=score)
    assert row(build(cells), 3)["verdict score"] == "differs"


def test_the_rows_of_a_run_say_whether_it_keeps_the_distribution(cells) -> None:
    fill(cells)
    frame = build(cells).frame
    lossless = frame.loc[frame["lossless"] == "lossless", ["First tokens", "Rule"]].drop_duplicates()
    assert lossless.to_numpy().tolist() == [["the target alone", ABSENT], ["1", RULES[1]]]


def test_without_a_judge_there_is_what_needs_none(cells) -> None:
    fill(cells, score=None)
    line = row(build(cells), 2)
    shown = values(line, "score published", "score - alone", "judged", "variation", "noise", "ROUGE-L", "ROUGE-L alone")
    assert shown == ["5.83", ABSENT, "0 of 12", "0.050", "0.010", "0.233", "0.300"]
    assert float(line["log-likelihood - alone"].partition(" ")[0]) == pytest.approx(-0.2, abs=0.02)
    assert "verdict score" not in line


def test_differences_are_paired_by_turn_and_intervals_by_conversation(cells) -> None:
    """A turn that has a grade in one arm alone counts for the mean and not for the difference."""
    run = add(cells, 2, score=None)
    grades = {("p0", 0): (2, 8), ("p0", 1): (4, 4), ("p1", 0): (6, None), ("p1", 1): (8, 9), ("p2", 0): (None, 1)}
    rows = [
        judgement({"run_id": run, "prompt_id": prompt, "turn": turn, "arm": arm}, score)
        for (prompt, turn), both in grades.items() for arm, score in zip((METHOD, AUTOREGRESSIVE), both, strict=True)
    ]  # fmt: skip
    cells.store.write("judgements", run, rows)
    table = build(cells)
    shown = [text.split(" (")[0] for text in values(row(table, 2), "score", "score - alone", "judged")]
    assert shown == [f"{(2 + 4 + 6 + 8) / 4:.2f}", f"{(-6 + 0 - 1) / 3:+.3f}", "4 of 12"]
    assert alone(table)["score"].startswith(f"{(8 + 4 + 9 + 1) / 4:.2f} ")


def test_what_is_graded_in_part_says_so(cells) -> None:
    """The method's first two turns are graded in both arms, all others of the target alone."""
    run = add(cells, 2)
    first = ("p0", 0), ("p0", 1)
    rows = cells.load().judgements.query(f"run_id == '{run}'").replace({float("nan"): None}).to_dict("records")
    kept = [row for row in rows if row["arm"] == AUTOREGRESSIVE or (row["prompt_id"], row["turn"]) in first]
    cells.store.write("judgements", run, [JudgementRow(**row) for row in kept])
    table = build(cells)
    assert row(table, 2)["judged"] == "2 of 12"
    assert values(alone(table), "score", "judged") == ["6.50", "12 of 12"]


def test_a_target_of_ours_does_not_hide_behind_the_papers(cells) -> None:
    """The paper's own pair with this draft was not run; with it both have rows."""
    add(cells, 2, score=3.0, **VICUNA)
    for ran in (False, True):
        table = build(cells)
        assert row(table, 2, Target="vicuna_7b")["score"].startswith("3.00")
        assert row(table, 2, Target="vicuna_7b")["score published"] == ABSENT
        theirs = row(table, 2, Target="llama2_7b_chat")
        assert (theirs["score"].startswith("5.50"), theirs["score published"]) == (ran, "5.83")
        add(cells, 2)


def test_of_several_judges_the_one_with_most_grades_is_shown(cells) -> None:
    add(cells, 2, score=3.0, judge="most")
    add(cells, 3, score=9.0, judge="few")
    add(cells, 1, score=2.0, judge="most")
    table = build(cells)
    assert [row(table, width)["score"].split()[0] for width in (1, 2, 3)] == ["2.00", "3.00", "not"]


def test_notes_count_where_the_distribution_is_lost(cells) -> None:
    add(cells, 2, fall=0.4)
    add(cells, 1, RULES[1], fall=0.0)
    assert "Of 2 log-likelihoods 1 differ" in " ".join(build(cells).notes)


def test_other_runs_are_not_shown_and_failures_stand_in_their_cells(cells) -> None:
    add(cells, 2)
    add(cells, 3, status="oom", lossless=False)
    other = add(cells, 2, params={"widths": [2, 2, 1]}, temperature=1.0)
    table = build(cells)
    assert other not in " ".join(table.runs)
    assert row(table, 3)["score"] == "oom"


@pytest.mark.parametrize(
    "filled",
    [
        lambda cells: add(cells, 2, status="oom"),
        lambda cells: add(cells, 2, pair="mine", published=None, dataset="mini"),
        lambda cells: [add(cells, 2, seed=seed) for seed in (0, 1)],
        lambda cells: add(cells, 1, score=5.0, conversations=1),
    ],
)
def test_it_is_drawn_whatever_was_run(filled, cells) -> None:
    filled(cells)
    table = build(cells)
    assert len(table.runs) == len(table.frame)
    assert not {"nan", "None"} & set(table.frame.to_numpy().ravel())


def test_stand_ins_take_the_place_of_the_first_draft_and_other_prompts_have_no_published_scores(cells) -> None:
    add(cells, 2, pair="tiny", published={"target": "x", "draft": "y", "stand_in": True})
    assert row(build(cells), 2, draft="tiny (for tinyllama_1_1b)")["score published"] == "5.07"
    add(cells, 2, dataset="alpaca")
    assert row(build(cells), 2, Dataset="alpaca")["score published"] == ABSENT
