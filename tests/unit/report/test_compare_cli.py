"""`python -m specdec_trees.compare`: its exit status, which continuous integration reads, and its sentences."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from compared import SMOKE, alter, copied, run, run_of, smoke_ids

from specdec_trees.compare.changes import METRICS

pytestmark = pytest.mark.long


@pytest.fixture
def changed(tmp_path: Path) -> Path:
    """A copy of the smoke run, to be altered."""
    return copied("smoke", tmp_path / "after" / "smoke")


def test_the_same_results_pass(capsys, changed: Path) -> None:
    code, out, err = run(capsys, SMOKE, changed)
    assert (code, err) == (0, "")
    assert out.startswith(f"### {changed} (B) against {SMOKE} (A)")
    assert "Nothing got worse" in out


@pytest.mark.parametrize(
    ("rows", "columns", "failing"),
    [
        ("prompts", {"decode_s": lambda row: row["decode_s"] * (1.3 if row["arm"] == "method" else 1)}, "speedup"),
        ("steps", {"acceptance_length": lambda row: max(1, row["acceptance_length"] - 1)}, "mal"),
    ],
)
def test_what_got_worse_fails(capsys, changed: Path, rows: str, columns: dict, failing: str) -> None:
    """A method that takes 30% longer, or accepts less: by its own metric it fails, by the other it does not."""
    run_id = run_of(changed, "opt_tree")
    alter(changed, rows, run_id, **columns)
    passing = {"speedup": "mal", "mal": "speedup"}[failing]
    code, out, _ = run(capsys, SMOKE, changed)
    assert code == 1
    header = METRICS[failing]
    assert f"Worse in B: {header} of opt_tree on mini at temperature 0 (tiny) (0." in out
    before, after = f"{SMOKE}/{run_id}", changed / run_id
    assert run(capsys, before, after, "--metric", failing)[0] == 1
    assert run(capsys, before, after, "--metric", passing)[0] == 0
    assert run(capsys, after, before)[0] == 0  # what got better passes


def test_a_run_that_fails_now_fails_the_check(capsys, changed: Path) -> None:
    alter(changed, "runs", run_of(changed, "opt_tree"), status=lambda row: "oom")
    code, out, _ = run(capsys, SMOKE, changed)
    assert code == 1
    assert "Worse in B: opt_tree on mini at temperature 0 (tiny) ended oom." in out
    assert run(capsys, changed, SMOKE)[0] == 0


@pytest.mark.parametrize(
    ("column", "value", "said"),
    [
        ("num_failed", 2, "failed in 2 conversations (A: in 0)"),
        ("lossless", False, "is lossless no more"),
    ],
)
def test_what_no_metric_shows_fails_the_check_too(column: str, value: object, said: str, capsys, changed: Path) -> None:
    """Turns that fail are in no metric, and an output of another distribution may be the faster one."""
    alter(changed, "runs", run_of(changed, "opt_tree"), **{column: lambda row: value})
    code, out, _ = run(capsys, SMOKE, changed)
    assert code == 1
    assert f"Worse in B: opt_tree on mini at temperature 0 (tiny) {said}." in out
    code, out, _ = run(capsys, changed, SMOKE)
    assert code == 0
    assert "Worse" not in out


def test_some_cells_of_a_pass_and_are_counted(capsys, changed: Path) -> None:
    """One cell was run again; those that were not are listed."""
    kept = run_of(changed, "opt_tree")
    for path in changed.glob("*/run_id=*.parquet"):
        if kept not in path.name:
            path.unlink()
    cells = len(smoke_ids())
    code, out, _ = run(capsys, SMOKE, changed)
    assert code == 0
    assert f"Nothing got worse in 1 of A's {cells} cells, by MAL or speedup." in out
    assert out.count(", run ") == cells - 1
    assert f"{cells - 1} of A's" not in run(capsys, changed, SMOKE)[1]
    assert "Nothing got worse in 1 of A's 1 cells" in run(capsys, changed, SMOKE)[1]


def test_the_table_is_written(capsys, changed: Path, tmp_path: Path) -> None:
    code, out, _ = run(capsys, SMOKE, changed, "--out", tmp_path / "report")
    written = [tmp_path / "report" / f"compare.{suffix}" for suffix in ("md", "tex", "csv", "json")]
    assert code == 0
    assert out.splitlines()[-3:] == [str(path) for path in written]
    assert written[0].read_text(encoding="utf-8").strip() in out


def test_ids_may_be_shortened_and_stand_below_a_folder(capsys, changed: Path) -> None:
    run_id = run_of(changed, "sequoia")
    code, out, _ = run(capsys, run_id[:4], changed / run_id, "--results", SMOKE)
    assert code == 0
    assert run_id in out.splitlines()[0]


def test_comparing_loads_neither_torch_nor_the_algorithms() -> None:
    heavy = "{'torch', 'transformers', 'specdec_core', 'hydra'}"
    code = f"import sys, specdec_trees.compare.__main__; sys.exit(bool({heavy} & set(sys.modules)))"
    subprocess.run([sys.executable, "-c", code], check=True)
