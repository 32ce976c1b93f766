"""Results folders joined: what is there once is copied, what disagrees is refused and nothing written."""

import shutil
from dataclasses import replace

import pytest
from cells import config, execute, stamps
from filled import rewrite

from specdec_trees import merge
from specdec_trees.configs.cells import scientific_config
from specdec_trees.results.digests import digest_of
from specdec_trees.results.identity import identity
from specdec_trees.results.locks import lock
from specdec_trees.results.partial import Partial
from specdec_trees.results.progress import Planned, read, read_plan, read_plans, words, write_plans
from specdec_trees.results.rows import PredictionRow, RunRow
from specdec_trees.results.store import Store, load

CELL = ("pair=tiny", "dataset=mini", "drafter=chain4", "runtime.warmup_conversations=0", "limit=1")
SHORT = (*CELL, "decoding.max_new_tokens=3")


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """Two machines' halves of a sweep of two seeds."""
    root = tmp_path_factory.mktemp("measured")
    for machine, seed in (("a", 0), ("b", 1)):
        assert execute(root / machine, *SHORT, f"seed={seed}") == "ok"
    return root


@pytest.fixture
def halves(measured, tmp_path):
    """Copies of them, to change, with the same plan in both."""
    configs = [identity(scientific_config(config(*SHORT, f"seed={seed}"))) for seed in (0, 1)]
    for machine in "ab":
        shutil.copytree(measured / machine, tmp_path / machine)
        cells = tuple({"pair": "tiny", "config": one} for one in configs)
        Planned(overrides=("pair=tiny",), pairs=("tiny",), cells=cells).write(tmp_path / machine / "default")
    return tmp_path


def joined(root, *machines):
    return merge.main([*(str(root / machine) for machine in machines), "--into", str(root / "c")])


def test_halves_of_a_sweep_are_a_whole(halves, capsys):
    assert joined(halves, "a", "b") == 0
    assert "2 cells of 1 experiments" in capsys.readouterr().out
    assert words(read(halves / "c", "default")) == "done: 2 of 2"
    found = load(halves / "c", "default")
    assert sorted(found.runs["seed"]) == [0, 1]
    assert len(found.prompts) == 2 * 4
    before = stamps(halves / "c")
    assert joined(halves, "b", "a") == 0
    rows = {name: when for name, when in stamps(halves / "c").items() if not name.endswith("plan.json")}
    assert rows == {name: before[name] for name in rows}, "joined once more, nothing changes"


def test_the_same_rows_in_both_are_there_once(halves):
    shutil.copytree(halves / "a" / "default", halves / "b" / "default", dirs_exist_ok=True)
    assert joined(halves, "a", "b") == 0
    assert not load(halves / "c", "default").prompts.duplicated(["run_id", "prompt_id", "turn", "arm"]).any()
    assert digest_of(halves / "c") == digest_of(halves / "b")


@pytest.mark.parametrize("order", ["ab", "ba"])
def test_of_a_cell_that_one_decoded_and_another_replayed_the_decoded_rows_are_taken(order, measured, tmp_path):
    shutil.copytree(measured / "a", tmp_path / "a")
    assert execute(tmp_path / "b", *SHORT, "seed=0", "runtime.replay=true") == "ok"
    assert joined(tmp_path, *order) == 0
    assert load(tmp_path / "c", "default").runs["recording"].isna().all()


def test_a_cell_that_was_measured_twice_is_refused(halves, capsys):
    assert execute(halves / "b", *SHORT, "seed=0") == "ok"
    assert joined(halves, "a", "b") == 2
    said = capsys.readouterr().err
    assert "(chain4) was measured apart in" in said
    assert "delete its files in all but one" in said
    assert not (halves / "c").exists(), "nothing is written"


def test_copies_that_differ_in_what_was_predicted_of_them_are_one(halves):
    shutil.copytree(halves / "a", halves / "d")
    store = Store(halves / "d", "default")
    (run_id,) = store.read("runs")["run_id"]
    store.write("predictions", run_id, [PredictionRow(run_id=run_id, machine="m", tokens_per_s=9.0, speedup=2.0)])
    assert joined(halves, "a", "d") == 0
    assert load(halves / "c", "default").predictions.empty, "they are made anew"


def test_a_finished_cell_stands_before_one_that_failed(halves):
    shutil.copytree(halves / "a" / "default", halves / "b" / "default", dirs_exist_ok=True)
    for path in (halves / "b" / "default" / "runs").glob("*.parquet"):
        rewrite(path, RunRow, status="failed")
    assert joined(halves, "a", "b") == 0
    runs = load(halves / "c", "default").runs.set_index("seed")
    assert runs["status"].to_dict() == {0: "ok", 1: "failed"}


def test_what_is_there_and_not_finished_is_replaced(halves):
    shutil.copytree(halves / "a", halves / "c")
    for path in (halves / "c" / "default" / "runs").glob("*.parquet"):
        rewrite(path, RunRow, status="interrupted")
    assert joined(halves, "a", "b") == 0
    assert set(load(halves / "c", "default").runs["status"]) == {"ok"}


def test_plans_of_a_pair_have_the_same_options(halves, capsys):
    plan = read_plan(halves / "b" / "default")
    other = Planned(overrides=("pair=own",), pairs=("own",), cells=(dict(plan.cells[0], pair="own"),))
    write_plans([other], halves / "b" / "default")
    assert joined(halves, "a", "b") == 0
    both = read_plan(halves / "c" / "default")
    assert both.overrides == ("pair=tiny,own",)
    assert (both.pairs, len(both.cells)) == (("tiny", "own"), 3)
    cell = {"pair": "own", "config": {**plan.cells[0]["config"], "seed": 9}}
    apart = replace(other, overrides=("limit=9", "pair=own"), cells=(cell,))
    write_plans([apart], halves / "b" / "default")
    shutil.rmtree(halves / "c")
    assert joined(halves, "a", "b") == 0
    assert read_plans(halves / "c" / "default") == [plan, apart]
    assert words(read(halves / "c", "default")) == "partly: 2 of 3, 1 missing"
    Planned(overrides=("limit=9", "pair=tiny"), pairs=("tiny",)).write(halves / "b" / "default")
    assert joined(halves, "a", "b") == 2
    assert "is of other options: limit=9 pair=tiny" in capsys.readouterr().err


@pytest.mark.parametrize("table", ["runs", "prompts"])
def test_a_file_that_cannot_be_read_is_refused(table, halves, capsys):
    (path,) = (halves / "a" / "default" / table).glob("*.parquet")
    path.write_bytes(path.read_bytes()[:100])
    assert joined(halves, "a", "b") == 2
    assert f"Skipped {path}: it is not a readable parquet file" in capsys.readouterr().err
    assert not (halves / "c").exists()


def test_a_finished_cell_without_its_rows_is_refused(halves, capsys):
    (path,) = (halves / "a" / "default" / "steps").glob("*.parquet")
    path.unlink()
    assert joined(halves, "a", "b") == 2
    assert f"in {halves / 'a'} is ok and lacks steps; run it again with force=true" in capsys.readouterr().err


def test_what_was_begun_stays_behind_with_a_sentence(halves, capsys):
    """But for a cell that the other machine has finished."""
    (finished,) = load(halves / "b", "default").runs["run_id"]
    for run_id in ("0" * 12, finished):
        Partial(halves / "a" / "default", run_id).begin({}, None)
    assert joined(halves, "a", "b") == 0
    (said,) = capsys.readouterr().err.splitlines()
    assert said.startswith(f"default: cell {'0' * 12} was begun in {halves / 'a'} and stays behind")


def test_a_folder_below_a_source_is_refused(halves, capsys):
    before = stamps(halves)
    assert merge.main([str(halves / "a"), str(halves / "b"), "--into", str(halves / "a" / "all")]) == 2
    assert "choose a folder outside" in capsys.readouterr().err
    assert stamps(halves) == before
    assert merge.main([str(halves / "a"), str(halves / "b"), "--into", str(halves / "a")]) == 0


def test_other_files_are_copied_and_must_agree(halves, capsys):
    for machine, text in (("a", "one"), ("b", "another")):
        (halves / machine / "default" / "case_study.json").write_text(text)
        (halves / machine / "report").mkdir()
        (halves / machine / "report" / "index.html").write_text(text)
    assert joined(halves, "a", "b") == 2
    assert "case_study.json differs" in capsys.readouterr().err
    (halves / "b" / "default" / "case_study.json").unlink()
    assert joined(halves, "a", "b") == 0
    assert (halves / "c" / "default" / "case_study.json").read_text() == "one"
    assert not (halves / "c" / "report").exists(), "reports are drawn anew"


def test_a_folder_that_is_being_written_is_refused(halves, capsys):
    with lock(halves / "a" / "default", "abc"):
        assert joined(halves, "a", "b") == 2
    assert "a cell is being run there" in capsys.readouterr().err
    assert joined(halves, "a", "nowhere") == 2
    assert "there is no folder" in capsys.readouterr().err
