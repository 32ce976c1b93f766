"""Whether a cell is finished, and why not: of its row, its tables, its weights, and what is asked for."""

from pathlib import Path

import pytest
from filled import row

from specdec_trees.results.finished import BASELINE, Asked, State, state, unfinished
from specdec_trees.results.partial import Partial
from specdec_trees.results.rows import PromptRow, RunRow, StepRow
from specdec_trees.results.store import Store

RUN = "0" * 12
FULL = Asked(baseline=True, weights={"target_revision": "files:a"})


def written(root: Path, *tables: str, **columns: object) -> Store:
    """A store of one cell that has these tables beside its `runs` row."""
    store = Store(root, "e")
    for table, kind in (("prompts", PromptRow), ("steps", StepRow)):
        if table in tables:
            store.write(table, RUN, [row(kind, run_id=RUN)])
    given = {"status": "ok", "target_revision": "files:a", "autoregressive_tokens_per_s": 1.0} | columns
    store.write("runs", RUN, [row(RunRow, run_id=RUN, **given)])
    return store


def test_a_cell_with_all_that_is_asked_for_is_finished(tmp_path: Path) -> None:
    assert state(written(tmp_path, "prompts", "steps"), RUN, FULL) == State("ok")
    assert State("ok").finished


@pytest.mark.parametrize("status", ["oom", "failed", "interrupted"])
def test_a_cell_that_did_not_end_well_is_not_finished_and_nothing_else_is_asked(status: str, tmp_path: Path) -> None:
    found = state(written(tmp_path, status=status, target_revision="files:b"), RUN, FULL)
    assert found == State(status)
    assert not found.finished


def test_a_cell_without_a_row_has_no_status(tmp_path: Path) -> None:
    found = state(Store(tmp_path, "e"), RUN, Asked())
    assert found == State(None)
    assert not found.finished


@pytest.mark.parametrize("there", [(), ("prompts",), ("steps",)])
def test_what_it_lacks_is_named(there: tuple[str, ...], tmp_path: Path) -> None:
    store = written(tmp_path, *there, autoregressive_tokens_per_s=None)
    found = state(store, RUN, Asked(tables=["nodes"], baseline=True))
    missing = [table for table in ("prompts", "steps", "nodes") if table not in there]
    assert found.lacks == (*missing, BASELINE)
    assert not found.finished
    assert state(store, RUN, Asked()).lacks == tuple(missing[:-1]), "nothing that is not asked for"


def test_a_file_that_was_cut_off_is_lacking(tmp_path: Path) -> None:
    store = written(tmp_path, "prompts", "steps")
    path = store.path("steps", RUN)
    path.write_bytes(path.read_bytes()[:100])
    assert state(store, RUN, Asked()).lacks == ("steps",)


@pytest.mark.parametrize(("then", "now", "differ"), [("a", "b", True), ("a", "a", False), (None, "b", False)])
def test_other_weights_are_another_cell_unless_the_row_does_not_know(
    then: str | None, now: str, differ: bool, tmp_path: Path
) -> None:
    store = written(tmp_path, "prompts", "steps", target_revision=then)
    found = state(store, RUN, Asked(weights={"target_revision": now}))
    assert bool(found.other_weights) == differ
    assert found.finished != differ


@pytest.mark.parametrize("status", ["ok", "failed"])
def test_a_cell_that_was_begun_is_unfinished_unless_it_ended_well_somewhere(status: str, tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    (here / "e").mkdir(parents=True)
    Partial(here / "e", RUN).begin({}, None)
    written(there, "prompts", "steps", status=status)
    assert unfinished(here) == [("e", RUN)]
    assert unfinished(here, there) == [("e", RUN)] * (status != "ok")
    assert unfinished(there) == []
