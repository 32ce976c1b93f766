"""Experiments that are no artifact, such as `default` of cells run alone: a table, and a page of them."""

from pathlib import Path

import pytest

from specdec_trees.artifacts.tables import ABSENT
from specdec_trees.papers.registry import build, command, yours
from specdec_trees.report.__main__ import main
from specdec_trees.status import lines


@pytest.fixture
def own(cells):
    """A run under no name and two under a name of the user's, beside one of an artifact."""
    cells.add("binary")
    for cells.experiment, drafter in (("default", "chain4"), ("mine/first", "eagle25"), ("mine/first", "opt_tree")):
        cells.add(drafter, dataset="mini")
    return cells


def written(own, tmp_path: Path, capsys, *arguments: str) -> str:
    assert main([*arguments, "--results", str(own.root), "--out", str(tmp_path / "out")]) == 0
    return capsys.readouterr().out


def test_experiments_with_runs_that_are_no_artifact(own) -> None:
    (own.root / "calibration" / "latency").mkdir(parents=True)
    (own.root / ".hidden" / "runs").mkdir(parents=True)
    (own.root / ".hidden" / "runs" / "run_id=1.parquet").touch()
    assert yours(own.root) == ["default", "mine/first"]
    assert yours(own.root / "nowhere") == []


def test_the_status_of_your_runs_asks_for_no_plan(own, cells) -> None:
    cells.experiment = "opt_tree/table1"
    first, second, artifact, counts, _ = lines(own.root)
    assert [first.split()[0], second.split()[0]] == ["default", "mine/first"]
    assert not any("not planned" in line for line in (first, second))
    assert "not planned" in artifact
    assert counts.startswith("1 artifacts")


def test_a_run_that_failed_shows_no_size(cells) -> None:
    cells.experiment = "default"
    for drafter, ended in (("eagle2", "failed"), ("autoregressive", "ok"), ("opt_tree", "ok")):
        cells.add(drafter, status=ended, size=0 if drafter == "autoregressive" else 25)
    short, *_ = build("default", cells.root)
    assert short.frame.set_index("who")["n"].to_dict() == {"EAGLE-2": ABSENT, "autoregressive": "0", "OPT-Tree": "25"}


def test_a_row_for_each_run_and_what_they_show(own) -> None:
    short, parts = build("mine/first", own.root)
    assert short.name == "first"
    assert set(short.frame["who"]) == {"eagle25", "OPT-Tree"}
    assert parts.frame["who"].nunique() == 2
    alone, _ = build("default", own.root)
    assert alone.frame["who"].tolist() == ["chain4"]


def test_a_name_without_runs_is_still_unknown(own, capsys) -> None:
    assert main(["defualt", "--results", str(own.root)]) == 2
    assert "there is no artifact 'defualt'" in capsys.readouterr().err


def test_a_pair_that_a_run_of_yours_is_not_of(own, capsys) -> None:
    assert main(["default", "--results", str(own.root), "--pair", "other"]) == 2
    assert command("default", "other") in capsys.readouterr().err


def test_no_such_page_where_there_are_none(cells, tmp_path: Path, capsys) -> None:
    cells.add("binary")
    written(cells, tmp_path, capsys)
    assert not (tmp_path / "out" / "yours.html").exists()


def test_a_pair_of_your_runs_alone_is_known(own, tmp_path: Path, capsys) -> None:
    own.add("chain4", dataset="mini", pair="another")
    assert "yours.html" in written(own, tmp_path, capsys, "--pair", "another")
