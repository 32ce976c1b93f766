from importlib.resources import files

import pytest

from specdec_trees import published

CATALOGUE = {f"{name}.csv" for name in published.CATALOGUE}


def test_every_paper_loads_with_numbers() -> None:
    stored = {path.name for path in files("specdec_trees.published").iterdir() if path.name.endswith(".csv")}
    named = {f"{paper}.csv" for paper in published.papers()}
    assert named == stored - CATALOGUE, "a paper has its own CSV"
    for paper in published.papers():
        rows = published.load(paper)
        assert (rows["paper"] == paper).all()
        assert rows["value"].notna().all()


def test_find_selects_by_columns_and_lists() -> None:
    rows = published.find(
        "opt_tree", "table1", target="llama2_7b", draft=["none", "jf68m"], metric="mal", temperature=0.0
    )
    assert dict(zip(rows["method"], rows["value"], strict=True)) == {
        "autoregressive": 1.0,
        "binary": 2.12,
        "eagle_tree": 2.47,
        "opt_tree": 2.58,
    }


def test_load_returns_a_copy() -> None:
    rows = published.load("opt_tree")
    rows["value"] = 0.0
    assert published.load("opt_tree")["value"].any()


def test_table_sizes_are_the_papers() -> None:
    rows = published.load("opt_tree")
    assert rows.groupby("artifact").size()[["table1", "table2", "table3"]].tolist() == [102, 102, 42]


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: published.load("opt_treee"), "opt_tree"),
        (lambda: published.find("opt_tree", "table1", metrik="mal"), "metric"),
    ],
)
def test_unknown_names_say_what_there_is(call, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        call()


def test_numbers_from_another_text_than_the_paper_are_told() -> None:
    rows = published.find("dyspec", "table5")
    (said,) = published.recovered("dyspec", "table5")
    assert said.startswith(
        f"Published numbers: {len(rows)} of {len(rows)} were recovered from the anonymised ICLR-2025"
    )
    assert [note[:28] for note in published.recovered("opt_tree", "table3")] == ["Published numbers: 3 of 42 w"]
    assert published.recovered("gsd", "table1") == []
