"""Packed results: what every reader sees is what lay in files of cells, before, during and after packing."""

import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys
import warnings
from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq
import pytest
from cells import execute
from filled import row

import specdec_trees.results.store
from specdec_trees.compare.sides import find
from specdec_trees.measure import provenance
from specdec_trees.pack import main
from specdec_trees.results import progress
from specdec_trees.results.pack import PackError, pack, path_of
from specdec_trees.results.rows import TABLES, NodeRow, RunRow, StepRow
from specdec_trees.results.store import Store, experiments, load, located

CHECKOUT = Path(specdec_trees.results.store.__file__).parents[2]
CELL = (
    *("pair=tiny", "dataset=mini", "drafter=chain4", "runtime.warmup_conversations=0", "limit=1"),
    "decoding.max_new_tokens=4",
)
COUNTS = ({"a1": 1, "b2": 2}, {"a1": 1, "b2": 4}, {"a1": 2, "b2": 2}, {"b2": 1, "a1": 3})
FILES = {"run_id=a1.parquet", "run_id=b2.parquet", "run_id=c3.parquet"}


def steps(run_id, *numbers):
    return [row(StepRow, run_id=run_id, step=number, draft_s=number / 7) for number in numbers]


def names(store, table="steps"):
    """Visible files of a table's cells."""
    return {path.name for path in (store.folder / table).glob("*.parquet") if not path.name.startswith(".")}


def assert_same(first, second):
    """Every table of an experiment and what `load` makes of it, dtypes and order included."""
    for table in TABLES:
        pd.testing.assert_frame_equal(first.read(table), second.read(table), check_exact=True)
    loaded = [load(store.root, store.experiment) for store in (first, second)]
    for field in dataclasses.fields(loaded[0]):
        frames = [getattr(one, field.name) for one in loaded]
        pd.testing.assert_frame_equal(*frames, check_exact=True)


@pytest.fixture
def store(tmp_path):
    """Steps of three cells, of which one has none."""
    made = Store(tmp_path, "e")
    for run_id, numbers in (("b2", (2, 1, 3)), ("a1", (5,)), ("c3", ())):
        made.write("steps", run_id, steps(run_id, *numbers))
    return made


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """Two cells of `default`: a greedy one that recorded nodes, and one that failed."""
    root = tmp_path_factory.mktemp("results")
    assert execute(root, *CELL, "record_nodes=true") == "ok"
    assert execute(root, *CELL, "drafter=prompt_lookup", "verifier=gsd_nondeterministic", "decoding=t06") == "failed"
    return root


@pytest.fixture
def packed(measured, tmp_path):
    """The same results, packed."""
    shutil.copytree(measured, tmp_path / "packed")
    assert main([str(tmp_path / "packed")]) == 0
    return tmp_path / "packed"


@pytest.mark.parametrize("row_type", TABLES.values(), ids=TABLES)
def test_rows_of_every_table_come_back(row_type, tmp_path):
    table = next(name for name, known in TABLES.items() if known is row_type)
    stores = [Store(tmp_path / name, "e") for name in ("loose", "packed")]
    for one in stores:
        for run_id in ("b2", "a1", "c3"):
            one.write(table, run_id, [row(row_type, run_id=run_id)] * 2)
    stores[1].pack()
    assert names(stores[1], table) == set()
    assert stores[1].rows(table).pack_path == tmp_path / "packed" / "rows" / f"{table}.parquet"
    assert stores[1].rows(table).pack_path.exists()
    assert_same(*stores)


def test_measured_results_read_the_same(measured, packed):
    for name in ("default", "calibration"):
        assert_same(Store(measured, name), Store(packed, name))
    assert progress.read(measured, "default") == progress.read(packed, "default")
    assert not list(packed.rglob("run_id=*"))
    assert {path.parent for path in packed.rglob("*.parquet")} == {packed / "rows"}
    for run in Store(measured, "default").read("runs")["run_id"]:
        sides = [find(run[:6], root).runs[0] for root in (measured, packed)]
        pd.testing.assert_series_equal(sides[0].row, sides[1].row)
        pd.testing.assert_frame_equal(sides[0].steps, sides[1].steps)


def test_cells_are_found_in_the_order_asked_for_and_those_without_rows_are_known(store):
    before = store.read("steps", ["c3", "b2", "zz", "a1", "b2"])
    assert store.pack() == 3
    pd.testing.assert_frame_equal(store.read("steps", ["c3", "b2", "zz", "a1", "b2"]), before)
    assert before["step"].tolist() == [2, 1, 3, 5]
    assert [store.has("steps", run_id) for run_id in ("a1", "b2", "c3", "zz")] == [True, True, True, False]
    assert store.rows("steps").ids() == {"a1", "b2", "c3"}


def test_packing_again_does_nothing_or_takes_in_what_is_new(store):
    store.pack()
    path = store.rows("steps").pack_path
    before = path.stat()
    assert store.pack() == 0
    assert (path.stat().st_ino, path.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    store.write("steps", "a2", steps("a2", 7, 8))
    whole = store.read("steps")
    assert whole["run_id"].tolist() == ["a1", "a2", "a2", "b2", "b2", "b2"]
    assert store.pack() == 1
    assert names(store) == set()
    pd.testing.assert_frame_equal(store.read("steps"), whole)


def test_a_cells_own_file_stands_before_its_packed_rows(store):
    store.pack()
    store.write("steps", "b2", steps("b2", 9))
    for _ in range(2):
        assert store.read("steps")["step"].tolist() == [5, 9]
        assert store.read("steps", ["b2"])["step"].tolist() == [9]
        store.pack()
    assert names(store) == set()


def test_a_forgotten_cell_is_gone_from_the_pack(store):
    for run_id in ("a1", "b2"):
        store.write("nodes", run_id, [row(NodeRow, run_id=run_id)])
    store.pack()
    store.forget("a1")
    assert store.read("nodes")["run_id"].tolist() == ["b2"]
    assert not store.has("nodes", "a1")
    store.forget("b2")
    assert store.read("nodes").empty
    assert not store.rows("nodes").pack_path.exists()
    assert store.read("steps")["step"].tolist() == [5, 2, 1, 3], "they are replaced, not forgotten"


@pytest.mark.parametrize(
    ("patch", "packed"),
    [("os.fsync = ", False), ("Path.unlink = ", True)],
    ids=["while the pack is written", "before a file is deleted"],
)
def test_a_kill_while_packing_loses_and_doubles_nothing(patch, packed, store, tmp_path):
    whole = store.read("steps")
    code = "import os, signal, sys\nfrom pathlib import Path\nfrom specdec_trees.results.store import Store\n"
    code += f"{patch}lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)\nStore(Path(sys.argv[1]), 'e').pack()\n"
    if "unlink" in patch:  # the temporary file's is called too, and finds nothing
        code = code.replace("lambda *_, **__:", "lambda path, **_: path.name.startswith('.') or")
    environment = os.environ | {"PYTHONPATH": str(CHECKOUT)}
    killed = subprocess.run([sys.executable, "-c", code, str(tmp_path)], env=environment, check=False, timeout=60)
    assert killed.returncode == -signal.SIGKILL
    assert names(store) == FILES
    assert store.rows("steps").pack_path.exists() == packed
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pd.testing.assert_frame_equal(store.read("steps"), whole)
        assert store.pack() == 3
        pd.testing.assert_frame_equal(store.read("steps"), whole)
    assert names(store) == set()


def test_a_file_that_was_replaced_meanwhile_stays(store, monkeypatch):
    """What a cell writes after its old rows were read is in no pack yet."""
    write = specdec_trees.results.pack.write_pack

    def slow(path, rows):
        write(path, rows)
        store.write("steps", "b2", steps("b2", 9))

    monkeypatch.setattr(specdec_trees.results.pack, "write_pack", slow)
    store.pack()
    assert names(store) == {"run_id=b2.parquet"}
    assert store.read("steps")["step"].tolist() == [5, 9]


def _half(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def _flipped(path):
    content = bytearray(path.read_bytes())
    content[20] ^= 0xFF
    path.write_bytes(content)


def _of_one_cell(path):
    """A file as cells write them: its footer counts nothing."""
    other = Store(path.parents[1], "other")
    other.write("steps", "a1", steps("a1", 5))
    shutil.copy(other.path("steps", "a1"), path)


def _counted(counts):
    """The same rows behind a footer that counts them otherwise."""

    def damage(path):
        table = pq.read_table(path)
        assert json.loads(table.schema.metadata[b"cells"]) == [[["e"], {"a1": 1, "b2": 3, "c3": 0}]]
        pq.write_table(table.replace_schema_metadata({"cells": json.dumps([[["e"], counts]])}), path)

    return damage


@pytest.mark.parametrize("damage", [_half, _flipped, _of_one_cell, *map(_counted, COUNTS)])
def test_a_pack_that_is_not_what_was_written_is_skipped_and_not_packed_over(damage, store, capsys):
    store.pack()
    path = store.rows("steps").pack_path
    damage(path)
    spoilt = path.read_bytes()
    store.write("steps", "d4", steps("d4", 4))
    with pytest.warns(UserWarning, match=r"Skipped .*steps\.parquet: .*; delete it, and its cells will be run again"):
        assert store.read("steps")["run_id"].tolist() == ["d4"]
    with (
        pytest.warns(UserWarning, match="Skipped"),
        pytest.raises(PackError, match=r"steps\.parquet cannot be read: bring"),
    ):
        store.pack()
    with pytest.warns(UserWarning, match="Skipped"):
        assert main([str(store.root)]) == 2
    assert "cannot be read: bring it back" in capsys.readouterr().err
    assert path.read_bytes() == spoilt
    assert store.has("steps", "d4")


def test_a_cells_file_that_cannot_be_read_stays(store):
    store.path("steps", "a1").write_text("no rows")
    with pytest.warns(UserWarning, match="run_id=a1"):
        assert store.pack() == 2
    assert names(store) == {"run_id=a1.parquet"}


def test_what_experiments_share_stands_once_and_comes_back_to_each(tmp_path):
    """Equal rows of a run are shared, whatever experiment they name; the same run measured apart is not."""
    stores = {name: Store(tmp_path, name) for name in ("a/table1", "b/fig2", "c")}
    for name, one in stores.items():
        one.write("runs", "a1", [row(RunRow, run_id="a1", experiment=name)])
        one.write("steps", "a1", steps("a1", 1, 2 if name == "c" else 3))
        one.write("nodes", "a1", [])
    frames = {(name, table): one.read(table) for name, one in stores.items() for table in ("runs", "steps", "nodes")}
    assert pack(tmp_path, stores) == dict.fromkeys(stores, 3)
    for (name, table), frame in frames.items():
        pd.testing.assert_frame_equal(Store(tmp_path, name).read(table), frame)
    counts = {table: pq.read_metadata(path_of(tmp_path, table)).num_rows for table in ("runs", "steps", "nodes")}
    assert counts == {"runs": 1, "steps": 4, "nodes": 0}
    assert [one.experiment for one in experiments(tmp_path)] == [*stores]
    stores["b/fig2"].forget("a1")
    assert [one.experiment for one in experiments(tmp_path, "runs")] == ["a/table1", "c"]
    assert stores["a/table1"].read("runs")["experiment"].tolist() == ["a/table1"]


def test_folders_of_packed_experiments_are_found_though_they_are_not_there(tmp_path):
    for name in ("a/table1", "a/table10", "loose"):
        Store(tmp_path, name).write("steps", "a1", steps("a1", 1))
    pack(tmp_path, ["a/table1", "a/table10"])
    assert located(tmp_path / "a" / "table1") == (tmp_path, "a/table1")
    assert located(tmp_path / "a") == (tmp_path, "a"), "it holds two"
    for path in (tmp_path, tmp_path / "loose", tmp_path / "a" / "table"):
        assert located(path) == (path, "")


def test_results_that_are_being_run_are_not_packed(store, capsys):
    with store.lock("a1"):
        assert main([str(store.root)]) == 2
    assert "e is being run or graded; pack it when that has ended." in capsys.readouterr().err
    assert names(store) == FILES
    assert main([str(store.root / "nowhere")]) == 2
    assert "there is no folder" in capsys.readouterr().err


def test_a_packed_cell_is_skipped_and_a_new_one_added(packed):
    store, before = Store(packed, "default"), Store(packed, "default").read("runs")
    assert execute(packed, *CELL, "record_nodes=true") == "skipped"
    assert not list(packed.rglob("run_id=*"))
    assert execute(packed, *CELL, "seed=1") == "ok"
    runs = store.read("runs")
    (new,) = set(runs["run_id"]) - set(before["run_id"])
    assert names(store, "runs") == {f"run_id={new}.parquet"}
    old = runs[runs["run_id"] != new].reset_index(drop=True)
    pd.testing.assert_frame_equal(old, before)
    assert main([str(packed)]) == 0
    pd.testing.assert_frame_equal(store.read("runs"), runs)
    assert execute(packed, *CELL, "seed=1") == "skipped"


def test_a_packed_cell_that_is_run_again_is_as_it_is_now(packed):
    """By force; it records again what it had recorded."""
    store = Store(packed, "default")
    before = store.read("runs").set_index("run_id")["created_utc"]
    ok = store.read("runs").set_index("run_id")["status"].eq("ok")
    assert execute(packed, *CELL, "force=true") == "ok"
    after = store.read("runs").set_index("run_id")["created_utc"]
    assert (after != before).equals(ok)
    assert names(store, "nodes") == {f"run_id={ok.idxmax()}.parquet"}
    assert progress.read(packed, "default").done == 1


def test_packed_cells_are_taken_over(packed, monkeypatch):
    monkeypatch.setattr(provenance, "own_git_state", lambda: ("a1b2", False))
    assert execute(packed, *CELL, "record_nodes=true", "force=true") == "ok"
    assert main([str(packed)]) == 0
    assert execute(packed, *CELL, "record_nodes=true", "name=other/table") == "skipped"
    (run_id,) = Store(packed, "other/table").read("runs")["run_id"]
    for table in ("prompts", "steps", "nodes"):
        found = [Store(packed, name).read(table, [run_id]) for name in ("default", "other/table")]
        pd.testing.assert_frame_equal(*found)
        assert len(found[0])
