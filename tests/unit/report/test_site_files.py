"""`python -m specdec_trees.report` without an artifact, or for some of the files alone."""

from pathlib import Path

import pytest

from specdec_trees.report.__main__ import main

pytestmark = pytest.mark.long


@pytest.fixture
def size_cells(cells):
    """Results of a figure with a table of its numbers."""
    cells.experiment = "opt_tree/fig6"
    for size in (8, 32):
        cells.add("opt_tree", params={"n": size, "delta": 0.2}, mal=2 + size / 100)
    return cells


@pytest.mark.parametrize(
    ("only", "suffixes"), [("figures", {".png", ".pdf"}), ("tables", {".md", ".tex", ".csv", ".json"})]
)
@pytest.mark.parametrize("artifact", [["opt_tree/fig6"], []], ids=["one", "all"])
def test_only_some_files_are_written(artifact, only, suffixes, size_cells, capsys, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert main([*artifact, "--results", str(size_cells.root), "--out", str(out), "--only", only]) == 0
    written = [path for path in out.rglob("*") if path.is_file()]
    assert {path.suffix for path in written} == suffixes
    said = capsys.readouterr()
    assert {str(path) for path in written} <= set(said.out.splitlines())
    assert said.err == ""


@pytest.mark.parametrize("artifact", [["opt_tree/table1"], []], ids=["one", "all"])
def test_that_nothing_is_written_is_said(artifact, table1_cells, capsys, tmp_path: Path) -> None:
    assert main([*artifact, "--results", str(table1_cells.root), "--out", str(tmp_path), "--only", "figures"]) == 0
    said = capsys.readouterr()
    assert said.out.strip() == ""
    assert said.err.startswith("nothing was written: ")
    assert said.err.endswith("has no figures\n")


@pytest.mark.parametrize("only", [[], ["--only", "tables"]])
def test_a_pair_that_nothing_was_run_on_is_a_sentence(only, table1_cells, capsys, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert main(["--results", str(table1_cells.root), "--out", str(out), "--pair", "nope", *only]) == 2
    said = capsys.readouterr()
    assert said.err == f"there are no results of pair nope in {table1_cells.root}; pairs there: tiny\n"
    assert not out.exists()


def test_a_file_that_cannot_be_read_is_told_once(table1_cells, tmp_path: Path) -> None:
    path = table1_cells.store.folder / "runs" / "run_id=broken.parquet"
    path.write_text("no parquet")
    with pytest.warns(UserWarning, match="Skipped") as told:
        assert main(["--results", str(table1_cells.root), "--out", str(tmp_path / "out")]) == 0
    assert sum(str(path) in str(one.message) for one in told) == 1


def test_results_that_are_nowhere_are_a_sentence(capsys, tmp_path: Path) -> None:
    assert main(["--results", str(tmp_path / "resluts"), "--out", str(tmp_path / "out")]) == 2
    assert capsys.readouterr().err.startswith(f"there is no folder {tmp_path / 'resluts'}; ")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("only", [[], ["--only", "tables"]])
def test_a_folder_that_cannot_be_written_is_a_sentence(only, cells, capsys, tmp_path: Path) -> None:
    cells.root.mkdir()
    (tmp_path / "out").write_text("in the way")
    assert main(["--results", str(cells.root), "--out", str(tmp_path / "out"), *only]) == 2
    assert "cannot be written" in capsys.readouterr().err


def test_a_folder_without_results_is_refused(capsys, tmp_path: Path) -> None:
    assert main(["--results", str(tmp_path), "--out", str(tmp_path / "out"), "--only", "figures"]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err == f"there are no results in {tmp_path}; give another --results, or run `make smoke` first\n"
