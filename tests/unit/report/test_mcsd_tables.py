"""Improved MCSD's Tables 1 to 4: which rows they have, what is lossy, and what the paper prints beside them.

Values and intervals of the reference results are recomputed in test_recomputed_long.
"""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import mcsd_quality_fills as quality
import pandas as pd
import pytest
from drawn import column, table_of, verdicts
from mcsd_figure_fills import LARGE, LLAMA
from mcsd_quality_fills import RULES, judgement
from mcsd_table_fills import (
    AT_ONE,
    OWN_RULE,
    SUBTREES,
    VICUNA,
    chain,
    fill_dynamic,
    fill_static,
    fill_table4,
    run,
    tree,
)

from specdec_trees import published
from specdec_trees.artifacts import frame
from specdec_trees.artifacts.tables import ABSENT, Table, named_rows
from specdec_trees.artifacts.verdict import word
from specdec_trees.papers.improving_mcsd.methods import (
    alpha,
    alpha_drafted,
    draft_levels,
    first_tokens,
    lossy_mark,
    virtual,
)
from specdec_trees.results.rows import AUTOREGRESSIVE, METHOD, JudgementRow
from specdec_trees.statistics import metrics, samples

TI, ONE = "TI-MCSD (lossy)", "TI-MCSD, one first token"
HERE = {"dataset": "mt_bench", "target": "llama2_7b_chat"}


def row(params: dict[str, Any], draws: str = "", verifier: str = "multi_candidate") -> SimpleNamespace:
    return SimpleNamespace(params=params, draws=draws, verifier=verifier)


@pytest.mark.parametrize(
    ("params", "draws", "levels", "first"),
    [
        (chain(4), "without_replacement", 4, 0),
        (tree(4, 2, 2, 1), "without_replacement", 4, 0),
        ({"widths": [2, 4, 3, 1, 1]}, "targets_without_replacement", 4, 2),
        ({"widths": [1, 4]}, "target_topk", 1, 1),
        ({"width": 16, "depth": 5, "init": "target"}, "targets_without_replacement", 5, 16),
        ({"width": 16, "depth": 5, "init": "draft"}, "without_replacement", 5, 0),
        ({"n": 50, "delta": None}, "topk", 0, 0),
        ({}, "topk", 0, 0),
    ],
)
def test_levels_and_first_tokens_of_every_kind_of_tree(params, draws, levels, first) -> None:
    assert (draft_levels(row(params, draws)), first_tokens(row(params, draws))) == (levels, first)
    assert virtual(row(params, draws)) == virtual(row(params)) == (first > 0)


def test_what_is_lossy_is_told_by_the_first_tokens_and_by_the_rule() -> None:
    one, two = {"widths": [1, 4]}, {"widths": [2, 4]}
    assert lossy_mark(row(one, verifier=SUBTREES)) == lossy_mark(row(tree(4, 2))) == ""
    assert lossy_mark(row(one, verifier=OWN_RULE)) == lossy_mark(row(two, verifier=SUBTREES)) != ""


@pytest.mark.parametrize(("name", "stops"), [("ti", 0.0), ("dynamic", 0.3), ("mcsd4221", 0.0)])
def test_alpha_with_its_interval_is_that_of_the_metrics(name: str, stops: float, cells) -> None:
    run(cells, name, stops=stops)
    (one,) = named_rows(frame.load(cells.load()))
    whole, drafted = (samples.interval(of(one)) for of in (alpha, alpha_drafted))
    assert whole.value == pytest.approx(metrics.alpha(one.steps, draft_levels(one), virtual=virtual(one)))
    assert drafted.value == pytest.approx(metrics.alpha_drafted(one.steps, virtual=virtual(one)))
    assert (drafted.value > whole.value) == bool(stops)
    assert whole.low < whole.value < whole.high


# Tables 2 to 4


@pytest.mark.parametrize(("name", "some"), [("table2", "ti"), ("table3", "dynamic"), ("table4", "dynamic")])
def test_all_that_the_paper_has_stands_in_its_order(name: str, some: str, cells) -> None:
    """Once for each of its settings, with a run or without."""
    run(cells, some, **LLAMA | ({} if name == "table2" else AT_ONE))
    long = table_of(f"improving_mcsd/{name}", cells).long
    alphas = long[long["published"].notna()]
    paper = published.find("improving_mcsd", name)
    assert sorted(alphas["published"]) == sorted(paper["value"])
    assert [*alphas["dataset"].unique()] == [*paper["dataset"].unique()]
    assert (alphas["run_id"] != "").sum() == 1


def test_numbers_stand_beside_the_papers_and_nodes_are_those_of_the_draft(cells) -> None:
    """The target reads a root that is not virtual."""
    fill_static(cells, **LLAMA)
    fill_dynamic(cells, **LLAMA)
    made = table_of("improving_mcsd/table2", cells)
    printed = {"SD": 0.17, "MCSD": 0.29, "MCSD, equal budget": None, TI: 0.47, ONE: None}
    assert column(made, "alpha", "published", **HERE) == printed
    assert set(column(made, "alpha", dataset="triviaqa", target="vicuna_7b").values()) == {None}
    assert column(made, "draft_nodes", **HERE) == {"SD": 4, "MCSD": 44, "MCSD, equal budget": 80, TI: 80, ONE: 40}
    assert column(made, "verified_rows", **HERE) == {"SD": 5, "MCSD": 45, "MCSD, equal budget": 81, TI: 82, ONE: 41}
    lengths = column(made, "mal", **HERE)
    assert lengths == pytest.approx({name: 1 + 4 * one for name, one in column(made, "alpha", **HERE).items()})
    dynamic = table_of("improving_mcsd/table3", cells)
    found = [column(dynamic, key, **HERE)["Dynamic MCSD (lossy)"] for key in ("draft_nodes", "verified_rows")]
    assert found == [80, 96]


@pytest.mark.parametrize(
    ("name", "rule", "header"),
    [
        ("ti", OWN_RULE, TI),
        ("ti", SUBTREES, "TI-MCSD, MCSD rule (lossy)"),
        ("w1", SUBTREES, ONE),
        ("w1", OWN_RULE, f"{ONE} (lossy)"),
    ],
)
def test_what_does_not_keep_the_targets_distribution_is_marked(name: str, rule: str, header: str, cells) -> None:
    run_id = run(cells, name, verifier=rule, lossless=header == ONE, **LLAMA)
    shown = column(table_of("improving_mcsd/table2", cells), "lossless", run_id=run_id)
    assert shown == {header: "yes" if header == ONE else "no"}


def test_runs_of_other_configurations_are_not_shown_but_named(cells) -> None:
    shown = run(cells, "ti", **LLAMA)
    run(cells, "ti", params={"widths": [3, 4, 3, 1, 1]}, **LLAMA)
    run(cells, "ti", top_p=0.9, **LLAMA)
    run(cells, "ti", params={"widths": [2, 4, 3, 1, 1], "draft_temperature": 0.3}, **LLAMA)
    run(cells, "mcsd42211", **LLAMA)
    run(cells, "sd4", verifier="chain", **LLAMA)
    made = table_of("improving_mcsd/table2", cells)
    assert made.run_ids == {shown}
    assert any(f"(widths {widths})" in note for note in made.notes for widths in ("3x4x3x1x1", "4x2x2x1x1"))


def test_trees_that_a_decision_model_ends_have_a_row_without_the_papers_numbers(cells) -> None:
    model = {"kind": "hidden", "sha256": "0123456789ab"}
    params = {"width": 16, "depth": 5, "init": "target", "decision": model, "beta": 0.4}
    run_id = run(cells, "dynamic", params=params, **AT_ONE | LLAMA)
    made = table_of("improving_mcsd/table3", cells)
    ((label, number),) = column(made, "alpha", "published", run_id=run_id).items()
    assert ("hidden" in label, number) == (True, None)


def test_table_4_has_a_row_per_pair_and_temperature(cells) -> None:
    runs = fill_table4(cells)
    made = table_of("improving_mcsd/table4", cells)
    for pair in (LLAMA, VICUNA, LARGE):
        where = {"dataset": "mt_bench", **{key: pair["published"][key] for key in ("target", "draft")}}
        ids = [[*column(made, "alpha", "run_id", temperature=one, **where).values()] for one in (0.0, 1.0)]
        assert ids == [[runs[pair["pair"], one]] for one in (0.0, 1.0)]
    sure = {"target": "vicuna_7b", "dataset": "mt_bench", "temperature": 0.0}
    assert [*column(made, "alpha", "published", draft="tinyllama_1_1b", **sure).values()] == [0.93]


def test_a_stand_in_is_judged_by_order_and_the_papers_models_by_value(cells) -> None:
    """Levels are 4 and every token is accepted with this chance, hence alpha (c + c^2 + c^3 + c^4) / 4."""
    fill_static(cells)
    for name, chance in (("sd4", 0.42), ("mcsd4221", 0.9)):  # 0.17 and 0.29 in the paper
        run(cells, name, chance=chance, conversations=12, **LLAMA)
    made = table_of("improving_mcsd/table2", cells)
    assert word(verdicts(made, "alpha", dataset="mt_bench", pair="tiny")[TI]) == "order holds"
    words = verdicts(made, "alpha", dataset="mt_bench", pair=LLAMA["pair"])
    assert {method: word(text) for method, text in words.items()} == {
        "SD": "not resolved",  # 12 conversations do not bring an alpha within 5% of 0.17
        "MCSD": "differs",
        TI: "not run",
    }


def test_of_two_runs_the_last_that_ended_well_is_shown(cells) -> None:
    """Another seed has rows of its own; a run that failed says how where there is no other."""
    _, last = (run(cells, "ti", drafter=name, **LLAMA) for name in ("ti_mcsd", "mine"))
    run(cells, "ti", drafter="late", status="failed", **LLAMA)
    other = run(cells, "ti", seed=1, status="oom", draws="", **LLAMA)
    run(cells, "sd4", seed=1, **LLAMA)
    made = table_of("improving_mcsd/table2", cells)
    rows = made.frame.assign(run=made.runs)
    rows = rows[rows["label"] == TI]
    assert {last, other} == {*rows["run"]} - {""}
    assert rows.set_index("run").loc[other, ["alpha", "speedup"]].tolist() == ["oom", "oom"]
    assert verdicts(made, "alpha", run_id=other) == {TI: "not run"}


@pytest.mark.parametrize("facts", [("auto", "Login CPU"), ("auto", "Test CPU"), ("", "")])
def test_what_failed_before_its_models_were_loaded_stands_in_the_block_of_its_setting(facts, cells) -> None:
    """It knows neither dtype nor device, or has what the machine that failed has."""
    run(cells, "sd4", **LLAMA)
    for name in ("mcsd4221", "ti"):
        run(cells, name, status="failed", draws="", **LLAMA)
    run(cells, "ti", status="failed", draws="", **VICUNA)
    results = cells.load()
    runs = results.runs.copy()
    runs.loc[runs["status"] != "ok", ["dtype", "device_name"]] = facts
    cells.load = lambda: replace(results, runs=runs)
    made = table_of("improving_mcsd/table2", cells)
    rows = made.frame[made.frame["dataset"] == "mt_bench"].set_index(["target_words", "label"])["alpha"]
    assert rows.index.is_unique
    assert [rows["llama2_7b_chat", method] for method in ("MCSD", TI)] == ["failed", "failed"]
    assert rows["vicuna_7b"].tolist() == [ABSENT, ABSENT, "failed"]


# Table 1


def answers(cells) -> Table:
    return table_of("improving_mcsd/table1", cells)


def line(made: Table, width: int | str, rule: str = RULES[0], draft: str = "jf68m", **where: str) -> pd.Series:
    rows = made.frame[(made.frame["first"] == str(width)) & (made.frame["rule"] == rule)]
    for name, value in {"draft_words": draft, **where}.items():
        rows = rows[rows[name] == value]
    (one,) = [one for _, one in rows.iterrows()]
    return one


def alone(made: Table) -> pd.Series:
    return line(made, "the target alone", ABSENT)


def values(one: pd.Series, *columns: str) -> list[str]:
    """The numbers before the intervals, or the words."""
    return [text.partition(" [")[0] for text in one[[*columns]]]


def test_grades_stand_beside_the_papers(cells) -> None:
    quality.fill(cells)
    made = answers(cells)
    both = ("score", "score_published", "score_alone", "score_alone_published")
    assert values(alone(made), *both) == ["6.50", "6.29", ABSENT, ABSENT]
    assert values(line(made, 2), *both) == ["5.50", "5.83", "-1.000", "-0.43"]
    assert values(line(made, 2, draft="tinyllama_1_1b"), *both) == ["5.50", "5.07", "-1.000", "-1.22"]
    assert values(line(made, 2, RULES[1]), *both[1::2]) == values(line(made, 1), *both[1::2]) == [ABSENT, ABSENT]
    assert line(made, 3)[["judged", "score_verdict"]].tolist() == ["12 of 12", "order holds"]
    assert line(made, 2, RULES[1])["score_verdict"] == ""
    lossless = made.frame.loc[made.frame["lossless_words"] == "lossless", ["first", "rule"]].drop_duplicates()
    assert lossless.to_numpy().tolist() == [["the target alone", ABSENT], ["1", RULES[1]]]


def test_scores_in_the_wrong_order_differ_from_the_paper(cells) -> None:
    for width, score in ((2, 4.0), (3, 5.0)):
        quality.add(cells, width, score=score)
    assert line(answers(cells), 3)["score_verdict"].startswith("differs")


def test_without_a_judge_there_is_what_needs_none(cells) -> None:
    quality.fill(cells, score=None)
    one = line(answers(cells), 2)
    shown = values(one, "score_published", "score_alone", "judged", "variation", "noise", "rouge_l", "rouge_l_alone")
    assert shown == ["5.83", ABSENT, "0 of 12", "0.050", "0.010", "0.233", "0.300"]
    assert float(one["log_likelihood_alone"].partition(" ")[0]) == pytest.approx(-0.2, abs=0.02)


def test_differences_are_paired_by_turn_and_intervals_by_conversation(cells) -> None:
    """A turn that has a grade in one arm alone counts for the mean and not for the difference."""
    run_id = quality.add(cells, 2, score=None)
    grades = {("p0", 0): (2, 8), ("p0", 1): (4, 4), ("p1", 0): (6, None), ("p1", 1): (8, 9), ("p2", 0): (None, 1)}
    rows = [
        judgement({"run_id": run_id, "prompt_id": prompt, "turn": turn, "arm": arm}, score)
        for (prompt, turn), both in grades.items() for arm, score in zip((METHOD, AUTOREGRESSIVE), both, strict=True)
    ]  # fmt: skip
    cells.store.write("judgements", run_id, rows)
    made = answers(cells)
    shown = [text.split(" (")[0] for text in values(line(made, 2), "score", "score_alone", "judged")]
    assert shown == [f"{(2 + 4 + 6 + 8) / 4:.2f}", f"{(-6 + 0 - 1) / 3:+.3f}", "4 of 12"]
    assert alone(made)["score"].startswith(f"{(8 + 4 + 9 + 1) / 4:.2f} ")


def test_what_is_graded_in_part_says_so(cells) -> None:
    """The method's first two turns are graded in both arms, all others of the target alone."""
    run_id = quality.add(cells, 2)
    first = ("p0", 0), ("p0", 1)
    rows = cells.load().judgements.query(f"run_id == '{run_id}'").replace({float("nan"): None}).to_dict("records")
    kept = [one for one in rows if one["arm"] == AUTOREGRESSIVE or (one["prompt_id"], one["turn"]) in first]
    cells.store.write("judgements", run_id, [JudgementRow(**one) for one in kept])
    made = answers(cells)
    assert line(made, 2)["judged"] == "2 of 12"
    assert values(alone(made), "score", "judged") == ["6.50", "12 of 12"]


def test_a_target_of_ours_does_not_hide_behind_the_papers(cells) -> None:
    """The paper's own pair with this draft was not run; with it both have rows."""
    quality.add(cells, 2, score=3.0, **VICUNA)
    for ran in (False, True):
        made = answers(cells)
        assert values(line(made, 2, target_words="vicuna_7b"), "score", "score_published") == ["3.00", ABSENT]
        theirs = line(made, 2, target_words="llama2_7b_chat")
        assert (theirs["score"].startswith("5.50"), theirs["score_published"]) == (ran, "5.83")
        quality.add(cells, 2)


def test_of_several_judges_the_one_with_most_grades_is_shown(cells) -> None:
    for width, score, judge in ((2, 3.0, "most"), (3, 9.0, "few"), (1, 2.0, "most")):
        quality.add(cells, width, score=score, judge=judge)
    made = answers(cells)
    assert [line(made, width)["score"].split()[0] for width in (1, 2, 3)] == ["2.00", "3.00", "not"]


def test_other_runs_are_not_shown_and_failures_stand_in_their_cells(cells) -> None:
    quality.add(cells, 2)
    quality.add(cells, 3, status="oom", lossless=False)
    other = quality.add(cells, 2, params={"widths": [2, 2, 1]}, temperature=1.0)
    made = answers(cells)
    assert other not in made.run_ids
    assert line(made, 3)["score"] == "oom"


@pytest.mark.parametrize(
    "given",
    [
        {"pair": "mine", "published": None, "dataset": "mini"},
        {"status": "oom"},
        {"score": 5.0, "conversations": 1},
    ],
)
def test_it_is_drawn_whatever_was_run(given: dict, cells) -> None:
    for seed in (0, 1):
        quality.add(cells, 2, seed=seed, **given)
    assert not {"nan", "None"} & set(answers(cells).frame.to_numpy().ravel())


def test_stand_ins_take_the_place_of_the_first_draft_and_other_prompts_have_no_published_scores(cells) -> None:
    quality.add(cells, 2, pair="tiny", published={"target": "x", "draft": "y", "stand_in": True})
    assert line(answers(cells), 2, draft="tiny (for tinyllama_1_1b)")["score_published"] == "5.07"
    quality.add(cells, 2, dataset="alpaca")
    assert line(answers(cells), 2, dataset="alpaca")["score_published"] == ABSENT
