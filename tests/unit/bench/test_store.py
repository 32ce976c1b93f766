"""Results of an experiment: finished cells, kills in the middle, two processes at one cell, the newest run of each."""

import dataclasses
import os
import signal
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from filled import row

import specdec_trees.results.store
from specdec_trees.check.folder import check
from specdec_trees.compare.sides import find
from specdec_trees.papers.registry import yours
from specdec_trees.results.kept_rows import LatencyRow
from specdec_trees.results.locks import CellBusyError
from specdec_trees.results.merging import merge
from specdec_trees.results.partial import cells
from specdec_trees.results.progress import Planned
from specdec_trees.results.rows import NodeRow, PromptRow, RunRow, StepRow, schema
from specdec_trees.results.store import Store, StoreError, experiments, load, run_id

CHECKOUT = Path(specdec_trees.results.store.__file__).parents[1]


def child(code, folder):
    """A process with a store on the folder, running some code."""
    start = (
        "import sys, os, signal\nfrom specdec_trees.results.store import *\nfrom specdec_trees.results.rows import *\n"
    )
    start += "from pathlib import Path\nstore = Store(Path(sys.argv[1]), 'e')\n"
    environment = os.environ | {"PYTHONPATH": str(CHECKOUT)}
    return subprocess.Popen(
        [sys.executable, "-c", start + code, str(folder)], stdout=subprocess.PIPE, text=True, env=environment
    )


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path, "e")


def test_run_id_names_the_science_and_nothing_else(monkeypatch):
    first = run_id({"pair": "tiny", "drafter": {"n": 50, "delta": 0.5}})
    assert first == run_id({"drafter": {"delta": 0.5, "n": 50}, "pair": "tiny"})
    assert first != run_id({"pair": "tiny", "drafter": {"n": 60, "delta": 0.5}})
    assert len(first) == 12
    assert int(first, 16) >= 0
    monkeypatch.setattr("specdec_trees.results.store.SCHEMA_VERSION", 999)
    assert first != run_id({"pair": "tiny", "drafter": {"n": 50, "delta": 0.5}})


def test_run_id_is_stable_across_releases():
    assert run_id({"pair": "tiny", "seed": 0}) == "00722e4c867b"


def test_read_takes_the_cells_asked_for(store):
    for name in ("a1", "b2", "c3"):
        store.write("steps", name, [row(StepRow, run_id=name)])
    assert store.read("steps", ["c3", "a1", "a1", "zz"])["run_id"].tolist() == ["c3", "a1"]


def test_read_of_all_looks_at_every_parquet_file_that_is_not_hidden(store):
    store.write("steps", "a1", [row(StepRow, run_id="a1")])
    for name in (".half.parquet", "notes.txt", "export.parquet"):
        (store.folder / "steps" / name).write_text("not rows")
    with pytest.warns(UserWarning, match="export.parquet") as caught:
        assert store.read("steps")["run_id"].tolist() == ["a1"]
    assert len(caught) == 1


def test_writing_again_replaces(store):
    store.write("runs", "a1", [row(RunRow, run_id="a1", status="failed")])
    assert store.status("a1") == "failed"
    store.write("runs", "a1", [row(RunRow, run_id="a1", status="ok")])
    assert store.status("a1") == "ok"
    assert len(store.read("runs")) == 1
    for _ in range(2):
        store.forget("a1")
    assert store.status("a1") is None


def test_rows_that_break_the_contract_leave_the_old_file(store):
    store.write("runs", "a1", [row(RunRow, run_id="a1", status="ok")])
    with pytest.raises(ValueError, match="b2"):
        store.write("runs", "a1", [row(RunRow, run_id="b2")])
    with pytest.raises(pa.ArrowInvalid, match="status"):
        store.write("runs", "a1", [row(RunRow, run_id="a1", status=None)])
    assert store.status("a1") == "ok"
    assert [path.name for path in (store.folder / "runs").iterdir()] == ["run_id=a1.parquet"]


def test_a_damaged_mark_means_that_the_cell_is_not_finished(store):
    store.write("runs", "a1", [row(RunRow, run_id="a1", status="ok")])
    path = store.folder / "runs" / "run_id=a1.parquet"
    path.write_bytes(path.read_bytes()[:200])
    with pytest.warns(UserWarning, match="run again"):
        assert store.status("a1") is None


def test_a_kill_in_the_middle_of_writing_loses_nothing(store, tmp_path):
    store.write("latency", "a1", [row(LatencyRow, run_id="a1", num_tokens=1)])
    fields = dataclasses.asdict(row(LatencyRow, run_id="a1", num_tokens=2))
    killed = child(
        "os.fsync = lambda descriptor: os.kill(os.getpid(), signal.SIGKILL)\n"
        f"store.write('latency', 'a1', [LatencyRow(**{fields!r})])\n",
        tmp_path,
    )
    assert killed.wait(60) == -signal.SIGKILL
    left = {path.name for path in (store.folder / "latency").iterdir()}
    assert len(left) == 2, "the killed process left its temporary file"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert store.read("latency")["num_tokens"].tolist() == [1]
        store.write("latency", "a1", [row(LatencyRow, run_id="a1", num_tokens=3)])
        assert store.read("latency")["num_tokens"].tolist() == [3]


def test_a_cell_is_run_once_at_a_time_and_freed_by_a_kill(store, tmp_path):
    holder = child(
        "with store.lock('a1'):\n    print('held', flush=True)\n    sys.stdin.read()\n    signal.pause()", tmp_path
    )
    assert holder.stdout.readline() == "held\n"
    with pytest.raises(CellBusyError, match="a1"), store.lock("a1"):
        pytest.fail("two processes hold one cell")
    with store.lock("b2"):
        pass
    holder.kill()
    holder.wait(60)
    holder.stdout.close()
    with store.lock("a1"):
        pass


def test_an_error_in_the_cell_frees_it_and_is_not_renamed(store):
    with pytest.raises(FileNotFoundError), store.lock("a1"):
        raise FileNotFoundError
    with store.lock("a1"):
        pass
    assert store.read("runs").empty


@pytest.mark.parametrize("blocked", ["e", "e/steps"])
def test_a_folder_that_is_a_file_is_one_sentence(tmp_path, blocked):
    path = tmp_path / blocked
    path.parent.mkdir(exist_ok=True)
    path.write_text("in the way")
    store = Store(tmp_path, "e")
    with pytest.raises(StoreError, match=f"{blocked} .*results_dir"):
        store.check_writable()
    with pytest.raises(StoreError, match="results_dir"):
        store.write("steps", "a1", [row(StepRow, run_id="a1")])


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_is_read_only_is_one_sentence(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(StoreError, match="Permission denied"):
        Store(tmp_path, "e").check_writable()


def test_a_check_leaves_nothing_behind(store):
    store.check_writable()
    assert list(store.folder.rglob("*")) == []


def test_load_keeps_the_newest_run_of_each_cell_and_its_rows(store, tmp_path):
    cells = {
        "old": {"pair": "tiny", "created_utc": "2030-01-01T00:00:00"},
        "new": {"pair": "tiny", "created_utc": "2030-01-02T00:00:00", "prompts_sha256": "more"},
        "delta": {"pair": "tiny", "created_utc": "2029-01-01T00:00:00", "drafter_params": '{"delta": 0.2}'},
        "other": {"pair": "big", "created_utc": "2030-01-01T00:00:00"},
        "c4": {"pair": "tiny", "created_utc": "2030-01-01T00:00:00", "dataset": "c4"},
    }
    for name, values in cells.items():
        store.write("runs", name, [row(RunRow, run_id=name, **values)])
    for name in [*cells, "unfinished"]:
        store.write("steps", name, [row(StepRow, run_id=name)])
        store.write("nodes", name, [row(NodeRow, run_id=name)])
        store.write("prompts", name, [row(PromptRow, run_id=name)])
    store.write("latency", "l0", [row(LatencyRow, run_id="l0", pair="huge")])
    store.write("latency", "l1", [row(LatencyRow, run_id="l1", pair="tiny")])
    assert set(load(tmp_path, "e").runs["run_id"]) == {"new", "delta", "other", "c4"}
    found = load(tmp_path, "e", pair="tiny", dataset="text")
    for table in ("runs", "prompts", "steps", "nodes"):
        assert sorted(getattr(found, table)["run_id"]) == ["delta", "new"]
        assert getattr(found, table).index.tolist() == [0, 1]
    assert found.latency["run_id"].to_dict() == {0: "l1"}
    assert load(tmp_path, "e", pair="big").latency.empty


def test_of_the_runs_of_a_cell_one_that_ended_well_counts_then_one_asked_for_then_the_newest(tmp_path):
    store = Store(tmp_path, "e")
    for day, (name, status) in enumerate((("a", "ok"), ("b", "ok"), ("c", "failed")), start=1):
        store.write("runs", name, [row(RunRow, run_id=name, created_utc=f"2030-01-0{day}", status=status)])
    shown = {first: load(tmp_path, "e", first=first).runs["run_id"].tolist() for first in ((), ("a",), ("c",))}
    assert shown == {(): ["b"], ("a",): ["a"], ("c",): ["b"]}
    store.write("runs", "d", [row(RunRow, run_id="d", created_utc="2030-01-02T12", status="ok", seed=9)])
    assert load(tmp_path, "e", first=("a",)).runs["run_id"].tolist() == ["a", "d"], "rows stay in order of time"


def test_nodes_of_an_older_version_are_read(store):
    """Files of before `parent` and `rank` were kept, in another order of columns, beside a new one."""
    store.write("nodes", "new", [row(NodeRow, run_id="new", parent=4, rank=1)])
    old = store.folder / "nodes" / "run_id=old.parquet"
    fields = [field for field in schema(NodeRow) if field.name not in ("parent", "rank")]
    values = dataclasses.asdict(row(NodeRow, run_id="old"))
    pq.write_table(pa.Table.from_pylist([values], schema=pa.schema(fields)), old)
    found = store.read("nodes").set_index("run_id")
    assert found.loc["new", ["parent", "rank", "node"]].tolist() == [4, 1, 3]
    assert found.loc["old", ["parent", "rank"]].isna().all()
    assert found.loc["old", "accepted"] is np.True_


def test_columns_may_stand_in_another_order(store):
    store.write("nodes", "b", [row(NodeRow, run_id="b", parent=4, rank=1)])
    path = store.folder / "nodes" / "run_id=b.parquet"
    before = store.read("nodes")
    table = pq.ParquetFile(path).read()
    pq.write_table(table.select(table.column_names[::-1]), path)
    assert store.read("nodes").equals(before)


def test_node_orders_and_attentions_are_cells_of_their_own(tmp_path):
    store = Store(tmp_path, "e")
    for name, order in (("a", None), ("b", "creation"), ("c", "dfs")):
        store.write("runs", name, [row(RunRow, run_id=name, created_utc=name, node_order=order, attention="sdpa")])
    store.write("runs", "d", [row(RunRow, run_id="d", created_utc="d", node_order="dfs", attention="tree_dense")])
    store.write("runs", "e", [row(RunRow, run_id="e", created_utc="e", graphs="compile", attention="sdpa")])
    assert load(tmp_path, "e").runs["run_id"].tolist() == ["b", "c", "d", "e"], "the defaults of before a choice"


def test_runs_behind_eos_are_cells_of_their_own(tmp_path):
    store = Store(tmp_path, "e")
    for name, ignored in (("a", None), ("b", False), ("c", True)):
        store.write("runs", name, [row(RunRow, run_id=name, created_utc=name, ignore_eos=ignored)])
    assert load(tmp_path, "e").runs["run_id"].tolist() == ["b", "c"], "before there was a choice answers ended at EOS"


def test_load_of_nothing_is_empty_tables(tmp_path):
    found = load(tmp_path, "never/ran")
    assert all(getattr(found, each.name).empty for each in dataclasses.fields(found))
    assert list(found.steps.columns) == schema(StepRow).names


def test_the_expected_acceptance_of_repeated_paths_is_not_kept(tmp_path):
    """Rows of independent draws from before the wall time was kept count a path as often as it was drawn."""
    store, cells = Store(tmp_path, "e"), {"a": ("iid", None), "b": ("iid", 1.0), "c": ("topk", None)}
    for number, (run, (draws, wall_s)) in enumerate(cells.items()):
        store.write("prompts", run, [row(PromptRow, run_id=run, status="ok", wall_s=wall_s)])
        store.write("steps", run, [row(StepRow, run_id=run, expected_acceptance=10.6)])
        made = row(RunRow, run_id=run, draws=draws, status="ok", seed=number, expected_acceptance=10.6)
        store.write("runs", run, [made])
    found = load(tmp_path, "e")
    for rows in (found.runs, found.steps):
        known = rows.set_index("run_id")["expected_acceptance"].dropna()
        assert known.to_dict() == {"b": 10.6, "c": 10.6}


def test_the_committed_results_are_a_folder_of_their_own(tmp_path):
    """Whatever reads a folder of results leaves out those that lie in its `reference`, and reads these by name."""
    folders = {"own": tmp_path / "results", "theirs": tmp_path / "results" / "reference"}
    for experiment, root in folders.items():
        Store(root, experiment).write("runs", "ab12", [row(RunRow, run_id="ab12")])
        Planned(overrides=(), pairs=(), cells=()).write(root / experiment)
        (root / experiment / ".partial-cd34.jsonl").touch()
    for experiment, root in folders.items():
        assert [one.experiment for one in experiments(root)] == [experiment]
        assert [name for name, _ in cells(root)] == [experiment]
        assert yours(root) == [experiment]
        assert (check(root).experiments, check(root).cells) == (1, 1)
        assert [run.experiment for run in find(str(root), root).runs] == [experiment]
        assert set(merge([root], tmp_path / f"merged_{experiment}").plans) == {experiment}
