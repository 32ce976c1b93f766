"""Which cells a published row is about, on rows and cells made up here."""

from dataclasses import replace
from typing import Any

import pandas as pd
import pytest

from specdec_trees import published
from specdec_trees.published.join import Cell, counted, covered, experiments, fits, joins

ROW: dict[str, Any] = {
    "paper": "gsd",
    "artifact": "table1",
    "target": "llama2_70b",
    "draft": "llama2_7b",
    "dataset": "xsum",
    "temperature": float("nan"),
    "method": "gsd",
    "params": "k=4;tau=2",
    "metric": "acceptance_rate",
}
CELL = Cell(
    experiment="gsd/table1",
    target="llama2_70b",
    draft="llama2_7b",
    dataset="xsum",
    temperature=0.0,
    methods={"gsd": {}, "autoregressive": {}},
    gives=frozenset({"steps", "baseline"}),
    params={"k": frozenset({"4"}), "tau": frozenset({"2"}), "top_p": frozenset({"1.0"})},
    beside=frozenset({"ssd"}),
)


def test_a_row_is_about_the_cell_of_its_setting() -> None:
    assert fits(ROW, CELL)


@pytest.mark.parametrize(
    "other",
    [
        {"artifact": "table2"},
        {"target": "llama2_7b"},
        {"draft": "llama2_13b"},
        {"draft": "none"},
        {"dataset": "gsm8k"},
        {"temperature": 0.7},
        {"method": "tsd"},
        {"params": "k=4;tau=1"},
        {"params": "k=4;theta_prob=0.2"},  # of which the cell says nothing
        {"params": "k=4;baseline=mcsd"},
        {"metric": "rouge1"},  # answers are not scored
        {"metric": "setting_k"},
    ],
)
def test_a_row_of_another_setting_is_not(other: dict[str, Any]) -> None:
    assert not fits(ROW | other, CELL)


@pytest.mark.parametrize(
    "other",
    [
        {"target": "unstated", "draft": "all", "dataset": "unspecified", "method": "all"},
        {"target": "llama2_70b|llama2_70b_chat", "dataset": "alpaca+xsum", "method": "tsd|gsd"},
        {"temperature": 0.0},
        {"params": "k=4.0;top_p=1;aggregate=max"},
        {"params": "k=3|4"},
        {"params": "baseline=ssd"},
        {"method": "autoregressive", "draft": "none", "params": ""},
        {"metric": "speedup"},
    ],
)
def test_what_a_paper_leaves_open_fits(other: dict[str, Any]) -> None:
    assert fits(ROW | other, CELL)


def test_a_speedup_needs_the_baseline() -> None:
    assert not fits(ROW | {"metric": "speedup"}, replace(CELL, gives=frozenset({"steps"})))


def test_a_table_says_which_of_several_methods_it_means_and_a_text_need_not() -> None:
    wide = replace(CELL, methods={"gsd": {"selection": "fixed"}}, params={"selection": frozenset({"fixed"})})
    assert not fits(ROW | {"params": ""}, wide)
    assert fits(ROW | {"params": "selection=fixed"}, wide)
    text = ROW | {"artifact": "section6_2", "metric": "max_speedup"}
    assert fits(text | {"params": ""}, wide)
    assert not fits(text | {"params": "selection=chosen"}, wide)


def test_params_that_the_paper_leaves_open_are_not_asked_for_by_its_tables_alone() -> None:
    tree = replace(CELL, methods={"tsd": {}}, params={"theta_sib": frozenset({"0.0"})})
    row = ROW | {"method": "tsd", "params": "theta_sib=0.3"}
    assert fits(row, tree)
    there = replace(tree, experiment="gsd/fig3")
    assert not fits(row | {"artifact": "fig3", "metric": "recurring_token_share"}, there)


def test_a_mean_over_two_decodings_needs_both() -> None:
    rows = pd.DataFrame([ROW, ROW | {"metric": "speedup", "params": "decoding=greedy+top_p_mean"}])
    drawn = replace(CELL, temperature=0.7, params=CELL.params | {"top_p": frozenset({"0.7"})})
    assert joins(rows, [CELL]).tolist() == [True, False]
    assert joins(rows, [drawn]).tolist() == [True, False]
    assert joins(rows, [CELL, drawn]).tolist() == [True, True]
    assert joins(rows, []).tolist() == [False, False]


def test_experiments_of_tables_are_their_own_and_those_of_texts_are_listed() -> None:
    assert experiments("gsd", "table10", "rouge1") == ["gsd/table10"]
    assert experiments("sequoia", "fig_text", "speedup_ratio") == ["sequoia/fig5b", "sequoia/table6"]
    assert experiments("sequoia", "theory_text", "beta") == []
    assert experiments("gsd", "table5", "setting_examples") == []


def test_a_reason_covers_the_rows_that_it_names() -> None:
    rows = published.load("sequoia")
    every = dict.fromkeys(published.unjoined().columns, "") | {"paper": "sequoia", "temperature": float("nan")}
    texts = rows["artifact"] == "claim_text"
    assert covered(rows, every | {"artifact": "claim_text"}).equals(texts)
    greedy = covered(rows, every | {"artifact": "claim_text", "temperature": 0.0})
    assert greedy.equals(texts & (rows["temperature"] == 0))
    one = covered(rows, every | {"artifact": "claim_text", "params": "system=hf_accelerate"})
    assert rows.loc[one, "value"].tolist() == [11.0]
    assert not covered(rows, every | {"paper": "gsd", "artifact": "claim_text"}).any()


def test_reasons_are_counted() -> None:
    found = counted("gsd").set_index("artifact")["rows"]
    assert found["table4"] == 2  # Medusa, on two datasets
    assert found["appendix_a"] == len(published.find("gsd", "appendix_a"))
