"""How far an artifact is, from its files alone; cells that experiments share; the status command."""

import json
import random
import shutil
from dataclasses import asdict

import pandas as pd
import pytest
from cells import config, execute
from filled import rewrite

from specdec_trees import status
from specdec_trees.artifacts.outputs import read_results
from specdec_trees.measure import cell_run, provenance
from specdec_trees.papers.registry import ARTIFACTS
from specdec_trees.reproduce import planned
from specdec_trees.results import progress
from specdec_trees.results.locks import CellBusyError, held, lock
from specdec_trees.results.progress import ANY, SWEEP, Planned
from specdec_trees.results.rows import RunRow
from specdec_trees.results.store import Store

SHORT = ("pair=tiny", "dataset=mini", "drafter=chain4", "runtime.warmup_conversations=0", "limit=1")
CELL = (*SHORT, "decoding.max_new_tokens=4")
SWEPT = ("pair=tiny", "runtime.device=cpu", "limit=1", "decoding.max_new_tokens=4")


@pytest.fixture(scope="module")
def one_done(tmp_path_factory):
    """Results of `default` whose only cell is a chain of 4."""
    root = tmp_path_factory.mktemp("results")
    assert execute(root, *CELL) == "ok"
    return root


@pytest.fixture
def copied(one_done, tmp_path):
    """The same without a plan, to change."""
    shutil.copytree(one_done / "default", tmp_path / "default", ignore=shutil.ignore_patterns(progress.FILE))
    return tmp_path


def plan_of(root, *drafters: str, **more) -> None:
    """A plan of cells that differ in the drafter's size."""
    from specdec_trees.configs.cells import scientific_config
    from specdec_trees.results.identity import identity

    configs = [identity(scientific_config(config(*CELL, *drafter.split()))) for drafter in drafters]
    cells = tuple({"pair": "tiny", "config": one} for one in configs)
    Planned(overrides=(), pairs=("tiny",), cells=cells, **more).write(root / "default")


def change(root, **columns: str) -> None:
    """Other values in the only row of `runs`."""
    (path,) = (root / "default" / "runs").glob("*.parquet")
    rewrite(path, RunRow, **columns)


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
        changed = {**cell, "config": {**cell["config"], "drafter": {**cell["config"]["drafter"], key: value}}}
        Planned(overrides=(), pairs=("tiny",), cells=(changed,)).write(one_done / "default")
        assert progress.read(one_done, "default").done == done


def equal(planned, config) -> bool:
    """Whether a config is the planned one, key by key."""
    if planned == ANY:
        return True
    if isinstance(planned, dict) and isinstance(config, dict):
        return planned.keys() == config.keys() and all(equal(planned[key], config[key]) for key in planned)
    return planned == config


def test_planned_cells_meet_the_rows_that_a_comparison_key_by_key_finds():
    rng = random.Random(0)

    def some(leaves):
        return {
            "n": rng.choice(leaves),
            "shape": rng.choice([None, *leaves, {"k": rng.choice(leaves)}, {"j": 1, "k": rng.choice(leaves)}]),
            "list": [rng.choice([1, 1.0, 2])],
        }

    planned = [some([1, 1.0, 2, ANY]) for _ in range(60)]
    configs = [{"pair": {}, "drafter": some([1, 2.0, "1"])} for _ in range(60)]
    created = [f"2026-{rng.randrange(10, 13)}" for _ in configs]
    runs = pd.DataFrame({"config": [json.dumps(one) for one in configs], "created_utc": created})
    newest = sorted(range(len(configs)), key=lambda place: created[place], reverse=True)
    plans = [{"pair": {}, "drafter": one} for one in planned]
    expected = [[place for place in newest if equal(plan, configs[place])] for plan in plans]
    assert progress._places(plans, runs) == expected
    assert sum(map(bool, expected)) > 10


def test_a_cell_without_what_it_should_record_is_not_done(one_done):
    plan_of(one_done, "drafter=chain4", tables=("nodes",))
    assert progress.read(one_done, "default").missing == 1


def test_other_measurements_count_by_pair(one_done):
    plan_of(one_done, measures={"latency": {"tiny": 1, "big": 1}, "attention": {"": 1}})
    for pairs, count in (((), 3), (("tiny",), 2), (("tiny", "big"), 3)):
        state = progress.read(one_done, "default", *pairs)
        assert (state.state, state.planned, state.missing) == ("missing", count, count)
        assert state.others == 1, "the finished cell is of no plan any more"


def test_a_held_lock_is_a_running_cell_and_looking_does_not_take_it(one_done):
    plan_of(one_done, "drafter=chain4", "drafter=chain8")
    store = Store(one_done, "default")
    with store.lock("abc"):
        assert held(store.folder) == {"abc": ""}
        assert progress.words(progress.read(one_done, "default")) == "running: 1 of 2, 1 running"
        with pytest.raises(CellBusyError, match="abc"), store.lock("abc"):
            pytest.fail("looking at a lock took it")
    with lock(store.folder, SWEEP, shared=True), lock(store.folder, SWEEP, shared=True):
        assert progress.read(one_done, "default").state == "running"
    assert held(store.folder) == {}


def test_a_cell_that_runs_counts_for_its_own_pair_alone(copied):
    plan_of(copied, "drafter=chain4", "drafter=chain8")
    plan = progress.read_plan(copied / "default")
    big = [{**cell, "pair": "big"} for cell in plan.cells]
    Planned(overrides=(), pairs=("tiny", "big"), cells=(*plan.cells, *big)).write(copied / "default")
    store = Store(copied, "default")

    def running(*pairs):
        return [progress.read(copied, "default", *filter(None, [pair])).running for pair in pairs]

    with lock(store.folder, SWEEP, shared=True), store.lock("abc", note="big"):
        assert running(None, "tiny", "big", "new") == [1, 0, 1, 0]
        with store.lock("def", note="tiny"), store.lock("of_before"):  # a lock without a note may be of any pair
            assert running(None, "tiny", "big", "new") == [3, 2, 2, 1]
        assert progress.words(progress.read(copied, "default", "tiny")) == "partly: 1 of 2, 1 missing"
    with lock(store.folder, SWEEP, shared=True):  # between two cells
        assert running(None, "tiny") == [1, 1]
    with store.lock("abc", note="tiny"):  # the file had a longer life than its holder's note
        assert held(store.folder) == {"abc": "tiny"}


def test_a_cell_notes_its_pair_while_it_runs(tmp_path, monkeypatch):
    def look(*_):
        seen.append(held(tmp_path / "default"))
        raise ValueError("seen enough")

    seen: list[dict[str, str]] = []
    monkeypatch.setattr(cell_run, "is_wanted", look)
    with pytest.raises(ValueError, match="seen enough"):
        execute(tmp_path, *CELL)
    assert [list(found.values()) for found in seen] == [["tiny"]]


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
    plan_of(tmp_path, "drafter=chain4", tables=("nodes",), measures={"latency": {"tiny": 1}})
    whole = (tmp_path / "default" / progress.FILE).read_text()
    assert progress.read_plan(tmp_path / "default") is not None
    wrong = {
        "tables": ["no_such"],
        "measures": {"no_such": {"tiny": 1}, "latency": {"tiny": "one"}},
        "cells": [3],
        "pairs": None,
    }
    first = json.loads(whole)[0]
    others = [json.dumps([first, first | {key: value}]) for key, value in wrong.items()]
    for text in ("", "[]", "{}", '{"overrides": 3}', "[" * 100_000, *others):
        (tmp_path / "default" / progress.FILE).write_text(text)
        assert progress.read_plan(tmp_path / "default") is None
        assert progress.words(progress.read(tmp_path, "default")) == "missing: its plan.json cannot be read"


@pytest.mark.parametrize("share", [0.0, 0.3, 0.9, 1.0])
def test_a_plan_that_was_cut_off_is_never_done(share, copied):
    plan_of(copied, "drafter=chain4")
    path = copied / "default" / progress.FILE
    whole = path.read_text()
    assert progress.read(copied, "default").state == progress.DONE
    path.write_text(whole[: min(int(share * len(whole)), len(whole) - 1)])
    left = progress.read(copied, "default")
    assert (left.state, left.unreadable, left.planned, left.done) == (progress.PARTLY, True, None, 1)


@pytest.mark.parametrize("config", ["no json", "[]", "3", '{"pair": 3}', '{"pair": {}, "drafter": []}'])
def test_a_row_whose_config_is_none_is_passed_over(config, copied):
    plan_of(copied, "drafter=chain4")
    assert progress.planned_runs(copied / "default") == set(Store(copied, "default").read("runs")["run_id"])
    change(copied, config=config)
    assert progress.read(copied, "default").missing == 1
    assert progress.planned_runs(copied / "default") == set()


def test_an_interrupted_cell_is_missing_and_a_failed_one_needs_no_words(copied):
    change(copied, status="interrupted", error="stopped by the user")
    assert progress.words(progress.read(copied, "default")) == "missing: not planned"
    plan_of(copied, "drafter=chain4")
    assert progress.words(progress.read(copied, "default")) == "missing: 0 of 1, 1 missing"
    change(copied, status="failed", error=" ")
    assert progress.words(progress.read(copied, "default")) == "failed: 0 of 1, 1 failed"


@pytest.mark.parametrize("table", ["prompts", "steps"])
@pytest.mark.parametrize("lose", [lambda path: path.unlink(), lambda path: path.write_bytes(path.read_bytes()[:99])])
def test_a_cell_whose_rows_are_lost_is_run_again(table, lose, copied):
    (path,) = (copied / "default" / table).glob("*.parquet")
    lose(path)
    assert progress.words(progress.read(copied, "default")) == "missing: not planned"
    plan_of(copied, "drafter=chain4")
    assert progress.words(progress.read(copied, "default")) == "missing: 0 of 1, 1 missing"
    assert execute(copied, *CELL) == "ok"
    assert progress.words(progress.read(copied, "default")) == "done: 1 of 1"
    assert execute(copied, *CELL) == "skipped"


def test_the_cells_of_one_pair_are_counted_alone(copied):
    plan_of(copied, "drafter=chain4")
    (cell,) = progress.read_plan(copied / "default").cells
    others = [{"pair": "big", "config": {**cell["config"], "seed": seed}} for seed in (1, 2)]
    Planned(overrides=(), pairs=("tiny", "big"), cells=(cell, *others)).write(copied / "default")
    read = {
        pair: progress.words(progress.read(copied, "default", *filter(None, [pair])))
        for pair in (None, "tiny", "big", "new")
    }
    assert read == {
        None: "partly: 1 of 3, 2 missing",
        "tiny": "done: 1 of 1",
        "big": "missing: 0 of 2, 2 missing",
        "new": "missing: not planned",
    }
    change(copied, pair="new")
    assert progress.words(progress.read(copied, "default", "new")) == "done: 1 ok, not planned"


def test_a_plan_stays_beside_those_of_other_pairs_and_options(copied):
    """Two pairs of other options each, then one of them anew: it alone is replaced."""
    folder = copied / "default"
    plan_of(copied, "drafter=chain4")
    plan = progress.read_plan(folder)
    big = Planned(
        overrides=("limit=1", "pair=big,huge"),
        pairs=("big", "huge"),
        cells=tuple({"pair": pair, "config": {**plan.cells[0]["config"], "seed": 1}} for pair in ("big", "huge")),
        tables=("nodes",),
        measures={"latency": {"big": 1, "huge": 2}, "attention": {"": 1}},
    )
    big.write(folder)
    counts = {(): (7, 1), ("tiny",): (1, 1), ("big",): (3, 0), ("tiny", "huge"): (5, 1)}
    for pairs, count in counts.items():
        state = progress.read(copied, "default", *pairs)
        assert (state.planned, state.done, state.others) == (*count, 0), pairs
    assert progress.planned_runs(folder) == set(Store(copied, "default").read("runs")["run_id"])
    again = Planned(overrides=("limit=2", "pair=big"), pairs=("big",))
    again.write(folder)
    first, rest, last = progress.read_plans(folder)
    assert (first, last) == (plan, again)
    assert (rest.overrides, rest.pairs, rest.cells) == (("limit=1", "pair=huge"), ("huge",), big.cells[1:])
    assert rest.measures == {"latency": {"huge": 2}, "attention": {"": 1}}
    (folder / progress.FILE).write_text(json.dumps(asdict(plan)))  # as older files are
    assert progress.read_plans(folder) == [plan]


def test_what_was_planned_last_is_shown_though_other_rows_are_newer(tmp_path):
    """LIMIT=2, LIMIT=1, LIMIT=2: the third time nothing is run."""
    for limit, ended in ((2, "ok"), (1, "ok"), (2, "skipped")):
        assert execute(tmp_path, *CELL, f"limit={limit}") == ended
        plan_of(tmp_path, f"drafter=chain4 limit={limit}")
        (shown,) = read_results(tmp_path / "default", None).runs["num_conversations"]
        assert shown == limit
    (tmp_path / "default" / progress.FILE).unlink()
    assert read_results(tmp_path / "default", None).runs["num_conversations"].tolist() == [1]


def test_the_plan_of_an_experiment_is_what_it_runs(tmp_path):
    plan = planned("sequoia/table6", [*SWEPT, f"results_dir={tmp_path}"])
    assert plan.pairs == ("tiny",)
    assert {cell["pair"] for cell in plan.cells} == {"tiny"}
    drafters = [cell["config"]["drafter"] for cell in plan.cells]
    assert {"acceptance": ANY} in [{key: drafter.get(key) for key in ("acceptance",)} for drafter in drafters]
    assert len(plan.cells) == 12
    times = planned("opt_tree/fig3", [f"results_dir={tmp_path}", "pair=tiny"])
    assert (times.cells, times.measures) == ((), {"latency": {"tiny": 1}})
    own = planned("opt_tree/fig3", [f"results_dir={tmp_path}", "pair=own"])
    assert len(own.pairs) == 4
    assert own.measures == {"latency": dict.fromkeys(own.pairs, 1)}


@pytest.fixture
def clean(monkeypatch):
    """A checkout without changes, at a revision."""
    monkeypatch.setattr(provenance, "own_git_state", lambda: ("a1b2", False))


def test_the_same_cell_of_another_experiment_is_taken_over(clean, tmp_path):
    assert execute(tmp_path, *CELL) == "ok"
    assert execute(tmp_path, *CELL, "name=other/table") == "skipped"
    rows = {name: Store(tmp_path, name).read("runs") for name in ("default", "other/table")}
    assert rows["other/table"]["experiment"].tolist() == ["other/table"]
    same = [rows[name].drop(columns="experiment") for name in rows]
    pd.testing.assert_frame_equal(*same)
    for table in ("prompts", "steps"):
        pd.testing.assert_frame_equal(*(Store(tmp_path, name).read(table) for name in rows))
    assert execute(tmp_path, *CELL, "name=third", "record_nodes=true") == "ok"  # nobody has recorded them
    assert Store(tmp_path, "third").has("nodes", rows["default"]["run_id"].iloc[0])
    assert execute(tmp_path, *CELL, "name=fourth", "force=true") == "ok"


def test_a_run_without_a_baseline_serves_nobody_who_wants_one(clean, tmp_path):
    assert execute(tmp_path, *CELL, "runtime.baseline=false") == "ok"
    assert execute(tmp_path, *CELL, "name=other") == "ok"
    assert execute(tmp_path, *CELL, "name=third", "runtime.baseline=false") == "skipped"


def test_results_of_other_code_or_in_a_folder_of_their_own_are_left_alone(clean, tmp_path, monkeypatch):
    assert execute(tmp_path / "before", *CELL) == "ok"  # before/default, whose rows say default
    assert execute(tmp_path, *CELL) == "ok"
    for state in (("c3d4", False), ("a1b2", True), (None, None)):
        monkeypatch.setattr(provenance, "own_git_state", lambda state=state: state)
        assert execute(tmp_path, *CELL, f"name=of_{state[0]}_{state[1]}") == "ok"


def test_rows_that_name_no_revision_are_not_taken_over(tmp_path, monkeypatch):
    monkeypatch.setattr(provenance, "own_git_state", lambda: (None, None))
    assert execute(tmp_path, *CELL) == "ok"
    assert execute(tmp_path, *CELL, "name=other") == "ok"


def test_rows_that_cannot_be_read_are_measured_again(clean, tmp_path):
    assert execute(tmp_path, *CELL) == "ok"
    (path,) = (tmp_path / "default" / "prompts").glob("run_id=*")
    path.write_bytes(path.read_bytes()[:100])
    with pytest.warns(UserWarning, match="not a readable parquet file"):
        assert execute(tmp_path, *CELL, "name=other") == "ok"
    assert len(Store(tmp_path, "other").read("prompts")) > 0


def test_status_lists_own_runs_then_what_was_begun_and_the_rest_on_request(one_done, capsys):
    planned("sequoia/table6", [*SWEPT, f"results_dir={one_done}"]).write(one_done / "sequoia" / "table6")
    assert status.main(["--results", str(one_done)]) == 0
    names = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert names[:2] == ["default", "sequoia/table6"]
    assert status.main(["--results", str(one_done), "--all"]) == 0
    every = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert {*ARTIFACTS} <= {*every}
    assert int(names[-1]) == len(ARTIFACTS) - 1


def test_status_names_a_missing_folder(one_done, capsys):
    assert status.main(["--results", str(one_done / "nowhere")]) == 2
    assert "make reproduce-all" in capsys.readouterr().err
