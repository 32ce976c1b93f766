import subprocess
import sys
from collections import Counter
from pathlib import Path

import pandas as pd
import pytest

from specdec_trees.artifacts.tables import ABSENT, WIDTH
from specdec_trees.papers.registry import ARTIFACTS
from specdec_trees.report.__main__ import main
from specdec_trees.results.progress import Planned


def run(capsys, *arguments: str) -> tuple[int, str, str]:
    code = main(arguments)
    return code, *capsys.readouterr()


def test_prints_a_table_within_a_terminal_then_where_the_files_are(table1_cells, capsys, tmp_path: Path) -> None:
    options = ("--results", str(table1_cells.root), "--out", str(tmp_path / "out"), "--pair", "tiny")
    code, out, err = run(capsys, "opt_tree/table1", *options)
    assert (code, err) == (0, "")
    assert out.startswith("OPT-Tree Table 1")
    written = [tmp_path / "out" / "opt_tree" / f"table1.{suffix}" for suffix in ("md", "tex", "csv", "json")]
    assert all(path.is_file() for path in written)
    assert max(map(len, out.splitlines())) <= WIDTH
    table = pd.read_csv(written[2])
    for row in table.itertuples():
        line = next(line for line in out.splitlines() if line.startswith(f"| {row.label}") and row.size_words in line)
        assert row.speedup_with_prefill in line
    cells = [cell for cell in table.filter(like="_verdict").stack().dropna() if cell != ABSENT]
    counts = Counter(cell.partition(" (")[0].partition(":")[0] for cell in cells)
    assert counts
    assert all(f"{count} {verdict}" in out for verdict, count in counts.items())
    assert str(tmp_path / "out" / "opt_tree") in out


@pytest.mark.parametrize(
    ("name", "near"), [("opt_tree/tabel1", "opt_tree/table1"), ("smok", "smoke"), ("fig6", "gsd/fig6")]
)
def test_an_unknown_name_gives_the_nearest(name: str, near: str, capsys, tmp_path: Path) -> None:
    code, out, err = run(capsys, name, "--results", str(tmp_path))
    assert (code, out) == (2, "")
    assert near in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("opt_tree/table1", "make reproduce TABLE=opt_tree/table1 PAIR=tiny"),
        ("opt_tree/fig10", "make reproduce TABLE=opt_tree/fig10 PAIR=tiny"),
        ("opt_tree/fig3", "make reproduce TABLE=opt_tree/fig3 PAIR=tiny"),
        ("bench/cnn_dm", "make bench-cnndm PAIR=tiny"),
        ("smoke", "make smoke"),
    ],
)
def test_no_results_names_the_command(name: str, command: str, capsys, tmp_path: Path) -> None:
    code, out, err = run(capsys, name, "--results", str(tmp_path))
    assert (code, out) == (2, "")
    assert f"`{command}`" in err
    assert err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_what_was_planned_is_run_as_planned(table1_cells, capsys, tmp_path: Path) -> None:
    overrides = ("limit=2", "data_dir=some folder", "pair=tiny,other")
    Planned(overrides=overrides, pairs=("tiny", "other")).write(tmp_path / "opt_tree/table1")
    start = "`specdec reproduce opt_tree/table1 limit=2 'data_dir=some folder' pair="
    for more, pair in (((), "tiny,other"), (("--pair", "other"), "other")):
        code, _, err = run(capsys, "opt_tree/table1", "--results", str(tmp_path), *more)
        assert code == 2
        assert f"{start}{pair}`" in err


def test_another_pair_has_no_results(table1_cells, capsys) -> None:
    code, _, err = run(capsys, "opt_tree/table1", "--results", str(table1_cells.root), "--pair", "llama")
    assert code == 2
    assert "for pair llama" in err
    assert "PAIR=llama" in err


def test_a_folder_that_cannot_be_written_is_a_sentence(table1_cells, capsys, tmp_path: Path) -> None:
    (tmp_path / "out").write_text("in the way")
    options = ("--results", str(table1_cells.root), "--out", str(tmp_path / "out"))
    code, _, err = run(capsys, "opt_tree/table1", *options)
    assert code == 2
    assert "cannot be written" in err


def test_every_artifact_of_the_papers_is_registered() -> None:
    figures = [f"opt_tree/fig{number}" for number in (3, 5, 6, 7, 8, 9, 10, 11)]
    assert {"smoke", *(f"opt_tree/table{number}" for number in (1, 2, 3)), *figures} <= set(ARTIFACTS)
    names = (
        *(f"table{number}" for number in range(1, 8)),
        *(f"fig{name}" for name in ("1", "2", "3", "4", "5a", "5b", "5c")),
    )
    dyspec = {f"dyspec/{name}" for name in ("table1", "table2", "table3", "table4", "fig2", "fig4", "fig5")}
    assert dyspec <= set(ARTIFACTS)
    assert {f"sequoia/{name}" for name in names} == {name for name in ARTIFACTS if name.startswith("sequoia/")}


def test_reports_load_neither_torch_nor_the_algorithms() -> None:
    heavy = "{'torch', 'transformers', 'specdec_core'}"
    code = f"import sys, specdec_trees.report.__main__; sys.exit(bool({heavy} & set(sys.modules)))"
    subprocess.run([sys.executable, "-c", code], check=True)
