"""What `python -m specdec_trees.compare` says, in a sentence and with exit status 2, where it cannot compare."""

from __future__ import annotations

from pathlib import Path

import pytest
from compared import REFERENCE, SMOKE, alone, alter, run, run_of, smoke_ids
from recomputed import experiments

pytestmark = pytest.mark.long

SEQUOIA = ", ".join(name.partition("/")[2] for name in experiments(REFERENCE) if name.startswith("sequoia/"))


def test_without_an_interval_there_is_no_verdict(capsys, tmp_path: Path) -> None:
    """One conversation: whatever was measured says nothing, and the check is not green."""
    before, after = (alone("dyspec/fig6", tmp_path / name) for name in ("before", "after"))
    code, out, err = run(capsys, before, after)
    assert (code, out) == (2, "")
    assert err.startswith("no cell has an interval of MAL or speedup")
    assert err.count("\n") == 1
    assert run(capsys, before, after, "--metric", "mal")[2].startswith("no cell has an interval of MAL:")
    alter(after, "runs", run_of(after, "dyspec"), lossless=lambda row: False)
    assert run(capsys, before, after)[0] == 1  # what is broken needs none


def test_a_folder_that_cannot_be_written_is_a_sentence(capsys, tmp_path: Path) -> None:
    (tmp_path / "report").write_text("in the way")
    code, _, err = run(capsys, SMOKE, SMOKE, "--out", tmp_path / "report")
    assert code == 2
    assert str(tmp_path / "report") in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("names", "said"),
    [
        ((smoke_ids()[0][:11] + "zz", smoke_ids()[0]), "neither a folder of results nor the id of a run"),
        ((smoke_ids()[0][:3], smoke_ids()[0]), "12 hex digits, or its first 4"),
        ((SMOKE, smoke_ids()[0]), "one side is a run and the other a folder"),
        (
            (SMOKE, str(REFERENCE / "sequoia" / "table4")),
            "have no cell in common; the first has autoregressive on mini",
        ),
        ((SMOKE, str(REFERENCE / "sequoia")), f"holds several ({SEQUOIA}); give the folder of one"),
        ((str(REFERENCE / "sequoia"), SMOKE), f"holds several ({SEQUOIA}); give the folder of one"),
    ],
)
def test_what_cannot_be_compared_is_a_sentence(names: tuple[str, str], said: str, capsys) -> None:
    code, out, err = run(capsys, *names, "--results", SMOKE)
    assert (code, out) == (2, "")
    assert said in err
    assert err.count("\n") == 1


@pytest.mark.parametrize("name", ["nowhere", "/nowhere", "/cafe", "/cafe0123cafe", "no/where", "no/cafe"])
def test_a_folder_that_is_missing_is_looked_for_nowhere_else(name: str, capsys) -> None:
    """Not in the folder that holds all others, even where its name could be an id."""
    code, _, err = run(capsys, name, SMOKE, "--results", SMOKE)
    assert code == 2
    assert err.startswith(f"{name} is neither a folder of results nor the id of a run")
    assert f"run in {SMOKE} (" in err if name == "nowhere" else " in " not in err
    assert err.count("\n") == 1


def test_an_unknown_id_names_the_nearest(capsys) -> None:
    known = smoke_ids()[3]
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
    sides = [alone("dyspec/fig6", tmp_path / name) for name in ("before", "after")]
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
