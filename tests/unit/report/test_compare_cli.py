"""`python -m bench.compare`: its exit status, which continuous integration reads, and its sentences."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from compared import REFERENCE, alter, copied, run_of

from bench.compare.__main__ import main

SMOKE = str(REFERENCE / "smoke")


def run(capsys, *arguments: object) -> tuple[int, str, str]:
    code = main([str(argument) for argument in arguments])
    return code, *capsys.readouterr()


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
    header = {"speedup": "speedup", "mal": "MAL"}[failing]
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


def test_the_table_is_written(capsys, changed: Path, tmp_path: Path) -> None:
    code, out, _ = run(capsys, SMOKE, changed, "--out", tmp_path / "report")
    written = [tmp_path / "report" / f"compare.{suffix}" for suffix in ("md", "tex", "csv")]
    assert code == 0
    assert out.splitlines()[-3:] == [str(path) for path in written]
    assert written[0].read_text(encoding="utf-8").strip() in out


def test_a_folder_that_cannot_be_written_is_a_sentence(capsys, changed: Path, tmp_path: Path) -> None:
    (tmp_path / "report").write_text("in the way")
    code, _, err = run(capsys, SMOKE, changed, "--out", tmp_path / "report")
    assert code == 2
    assert str(tmp_path / "report") in err
    assert err.count("\n") == 1


def test_ids_may_be_shortened_and_stand_below_a_folder(capsys, changed: Path) -> None:
    run_id = run_of(changed, "sequoia")
    code, out, _ = run(capsys, run_id[:4], changed / run_id, "--results", SMOKE)
    assert code == 0
    assert f"- Runs: {run_id}." in out


def _ids() -> list[str]:
    return sorted(path.stem.removeprefix("run_id=") for path in (REFERENCE / "smoke" / "runs").iterdir())


@pytest.mark.parametrize(
    ("names", "said"),
    [
        ((_ids()[0][:11] + "zz", _ids()[0]), "neither a folder of results nor the id of a run"),
        ((_ids()[0][:3], _ids()[0]), "12 hex digits, or its first 4"),
        ((SMOKE, _ids()[0]), "one side is a run and the other a folder"),
        (
            (SMOKE, str(REFERENCE / "sequoia" / "table4")),
            "have no cell in common; the first has autoregressive on mini",
        ),
        ((SMOKE, str(REFERENCE / "sequoia")), "holds several (fig1, table4, table6); give the folder of one"),
        ((str(REFERENCE / "sequoia"), SMOKE), "holds several (fig1, table4, table6); give the folder of one"),
    ],
)
def test_what_cannot_be_compared_is_a_sentence(names: tuple[str, str], said: str, capsys) -> None:
    code, out, err = run(capsys, *names, "--results", SMOKE)
    assert (code, out) == (2, "")
    assert said in err
    assert err.count("\n") == 1


def test_an_unknown_id_names_the_nearest(capsys) -> None:
    known = _ids()[3]
    wrong = known[:-1] + ("0" if known[-1] != "0" else "1")
    code, _, err = run(capsys, wrong, known, "--results", SMOKE)
    assert code == 2
    assert f"there is no run {wrong} in {SMOKE}; the nearest ids are {known}," in err


def test_an_ambiguous_start_lists_the_ids(capsys, tmp_path: Path) -> None:
    for run_id in ("abcd00000001", "abcd00000002"):
        path = tmp_path / "some" / "runs" / f"run_id={run_id}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    code, _, err = run(capsys, "abcd0", "abcd00000001", "--results", tmp_path)
    assert code == 2
    assert "abcd0 is the start of 2 run ids: abcd00000001, abcd00000002; give more digits" in err


def test_an_empty_folder_is_a_sentence(capsys, tmp_path: Path) -> None:
    code, _, err = run(capsys, SMOKE, tmp_path)
    assert code == 2
    assert f"there are no runs in {tmp_path}" in err


def test_nothing_measured_on_both_sides_is_an_error_not_a_pass(capsys, tmp_path: Path) -> None:
    """A check that compared nothing must not be green."""
    sides = [copied("dyspec/fig6", tmp_path / name) for name in ("before", "after")]
    run_id = run_of(sides[0], "dyspec")
    alter(sides[0], "runs", run_id, status=lambda row: "failed")
    code, out, err = run(capsys, *sides)
    assert (code, out) == (2, "")
    assert "no cell ended well on both sides" in err
    alter(sides[0], "runs", run_id, status=lambda row: "ok")
    alter(sides[1], "prompts", run_id, prompt_id=lambda row: "another")
    code, _, err = run(capsys, *sides)
    assert code == 2
    assert "no conversation was decoded on both sides" in err


def test_comparing_loads_neither_torch_nor_the_algorithms() -> None:
    heavy = "{'torch', 'transformers', 'specdec_core', 'hydra'}"
    code = f"import sys, bench.compare.__main__; sys.exit(bool({heavy} & set(sys.modules)))"
    subprocess.run([sys.executable, "-c", code], check=True)
