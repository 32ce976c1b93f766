"""How far an artifact is, from its files alone; cells that experiments share; the status command."""

import pandas as pd
import pytest
from cells import config, execute

from bench import progress, status
from bench.locks import CellBusyError, held, lock
from bench.progress import ANY, SWEEP, Planned
from bench.reproduce import planned
from bench.store import Store

SHORT = ("pair=tiny", "dataset=mini", "drafter=chain4", "runtime.warmup_conversations=0", "limit=1")
CELL = (*SHORT, "decoding.max_new_tokens=4")
SWEPT = ("pair=tiny", "runtime.device=cpu", "limit=1", "decoding.max_new_tokens=4")


@pytest.fixture(scope="module")
def one_done(tmp_path_factory):
    """Results of `default` whose only cell is a chain of 4."""
    root = tmp_path_factory.mktemp("results")
    assert execute(root, *CELL) == "ok"
    return root


def plan_of(root, *drafters: str, **more) -> None:
    """A plan of cells that differ in the drafter's size."""
    from bench.configs import scientific_config
    from bench.identity import identity

    cells = tuple(identity(scientific_config(config(*CELL, *drafter.split()))) for drafter in drafters)
    Planned(overrides=(), pairs=("tiny",), cells=cells, **more).write(root / "default")


def test_a_cell_is_done_when_a_row_has_the_planned_config(one_done):
    plan_of(one_done, "drafter=chain4", "drafter=chain8")
    found = progress.read(one_done, "default")
    assert (found.planned, found.done, found.failed, found.running, found.missing) == (2, 1, 0, 0, 1)
    assert (found.state, progress.words(found)) == ("partly", "partly: 1 of 2, 1 missing")
    plan_of(one_done, "drafter=chain4")
    assert progress.words(progress.read(one_done, "default")) == "done: 1 of 1"
    plan_of(one_done, "drafter=chain4 seed=1")
    assert progress.read(one_done, "default").state == "missing"


def test_what_is_measured_first_may_have_any_value(one_done):
    plan_of(one_done, "drafter=chain4")
    plan = progress.read_plan(one_done / "default")
    (cell,) = plan.cells
    for key, value, done in (("shape", ANY, 1), ("draws", ANY, 1), ("draws", "iid", 0), ("other", ANY, 0)):
        changed = {**cell, "drafter": {**cell["drafter"], key: value}}
        Planned(overrides=(), pairs=("tiny",), cells=(changed,)).write(one_done / "default")
        assert progress.read(one_done, "default").done == done


def test_a_cell_without_what_it_should_record_is_not_done(one_done):
    plan_of(one_done, "drafter=chain4", tables=("nodes",))
    assert progress.read(one_done, "default").missing == 1


def test_other_measurements_count_by_pair(one_done):
    plan_of(one_done, measures={"latency": 1})
    assert progress.words(progress.read(one_done, "default")) == "missing: 0 of 1, 1 missing"


def test_a_held_lock_is_a_running_cell_and_looking_does_not_take_it(one_done):
    plan_of(one_done, "drafter=chain4", "drafter=chain8")
    store = Store(one_done, "default")
    with store.lock("abc"):
        assert held(store.folder) == {"abc"}
        assert progress.words(progress.read(one_done, "default")) == "running: 1 of 2, 1 running"
        with pytest.raises(CellBusyError, match="abc"), store.lock("abc"):
            pytest.fail("looking at a lock took it")
    with lock(store.folder, SWEEP, shared=True), lock(store.folder, SWEEP, shared=True):
        assert progress.read(one_done, "default").state == "running"
    assert held(store.folder) == set()


def test_a_failed_cell_says_why(tmp_path):
    assert execute(tmp_path, *CELL, "drafter=sequoia", "drafter.acceptance=[2.0]") == "failed"
    found = progress.read(tmp_path, "default")
    assert (found.planned, found.failed, found.state) == (None, 1, "failed")
    assert "acceptance" in found.detail
    assert progress.words(found).startswith("failed: not planned, 1 failed (")


def test_without_a_folder_all_is_missing(tmp_path):
    assert progress.words(progress.read(tmp_path, "opt_tree/table1")) == "missing: not planned"


def test_a_plan_of_something_else_is_no_plan(tmp_path):
    (tmp_path / "default").mkdir()
    for text in ("", "[]", "{}", '{"overrides": 3}'):
        (tmp_path / "default" / progress.FILE).write_text(text)
        assert progress.read_plan(tmp_path / "default") is None


def test_the_plan_of_an_experiment_is_what_it_runs(tmp_path):
    plan = planned("sequoia/table6", [*SWEPT, f"results_dir={tmp_path}"])
    assert plan.pairs == ("tiny",)
    drafters = [cell["drafter"] for cell in plan.cells]
    assert {"acceptance": ANY} in [{key: drafter.get(key) for key in ("acceptance",)} for drafter in drafters]
    assert len(plan.cells) == 12
    times = planned("opt_tree/fig3", [f"results_dir={tmp_path}", "pair=tiny"])
    assert (times.cells, times.measures) == ((), {"latency": 1})
    own = planned("opt_tree/fig3", [f"results_dir={tmp_path}", "pair=own"])
    assert len(own.pairs) == own.measures["latency"] == 4


def test_the_same_cell_of_another_experiment_is_taken_over(one_done, tmp_path):
    assert execute(one_done, *CELL, "name=other/table") == "skipped"
    rows = {name: Store(one_done, name).read("runs") for name in ("default", "other/table")}
    assert rows["other/table"]["experiment"].tolist() == ["other/table"]
    same = [rows[name].drop(columns="experiment") for name in rows]
    pd.testing.assert_frame_equal(*same)
    for table in ("prompts", "steps"):
        pd.testing.assert_frame_equal(*(Store(one_done, name).read(table) for name in rows))
    assert execute(one_done, *CELL, "name=third", "record_nodes=true") == "ok"  # nobody has recorded them
    assert Store(one_done, "third").has("nodes", rows["default"]["run_id"].iloc[0])
    assert execute(one_done, *CELL, "name=fourth", "force=true") == "ok"


def test_a_run_without_a_baseline_serves_nobody_who_wants_one(tmp_path):
    assert execute(tmp_path, *CELL, "runtime.baseline=false") == "ok"
    assert execute(tmp_path, *CELL, "name=other") == "ok"
    assert execute(tmp_path, *CELL, "name=third", "runtime.baseline=false") == "skipped"


def test_status_lists_every_artifact_and_names_a_missing_folder(one_done, capsys):
    assert status.main(["--results", str(one_done)]) == 0
    printed = capsys.readouterr().out
    assert "opt_tree/table1" in printed
    assert printed.splitlines()[-1].endswith("missing")
    assert status.main(["--results", str(one_done / "nowhere")]) == 2
    assert "make reproduce-all" in capsys.readouterr().err
