"""A cell that was killed or preempted goes on inside: prompts that were decoded are not decoded again."""

import json
import logging
import signal
import time

import pytest
import torch
from cells import command, execute, start
from resumed import Counted, Killed, assert_same, timeless

from specdec_core.openmp import SPINS
from specdec_trees.measure import preemption, resumed
from specdec_trees.results.partial import Entry, Partial
from specdec_trees.results.store import StoreError, load

SHORT = ("pair=tiny", "dataset=mini", "runtime.warmup_conversations=0")
CELL = (*SHORT, "limit=3", "decoding.max_new_tokens=8", "drafter=chain4")
PROMPTS = 6
"""Turns of the three conversations, two each; either arm decodes them once."""
SAMPLED = ("decoding=t06", "verifier=by_draws")


def partials(root):
    return sorted((root / "default").glob(".partial-*"))


def run_until(root, counted, *cell, decodes=None):
    """Start a cell, and kill it in the middle of a decode; its status, or None if it was killed."""
    counted.left = decodes
    try:
        return execute(root, *cell)
    except Killed:
        return None


@pytest.mark.parametrize(
    "cell",
    [
        CELL,
        pytest.param((*CELL, "drafter=opt_tree", "drafter.n=6", *SAMPLED), marks=pytest.mark.long),
        pytest.param((*CELL, "drafter=sequoia", *SAMPLED), marks=pytest.mark.long),
        pytest.param((*CELL, "drafter=ssd_adaptive"), marks=pytest.mark.long),
        pytest.param((*CELL, "drafter=prompt_lookup"), marks=pytest.mark.long),
        (*CELL, "record_nodes=true", "record_quality=true", *SAMPLED),
        (*CELL, "record_answers=true"),
    ],
    ids=["greedy", "opt_tree", "sequoia", "ssd_adaptive", "prompt_lookup", "recorded", "answers"],
)
def test_a_cell_killed_again_and_again_has_the_rows_of_one_that_ran_through(cell, tmp_path, monkeypatch):
    """Killed in the middle of every third decode; of a prompt that was at hand both arms are decoded once more."""
    counted = Counted(monkeypatch)
    assert execute(tmp_path / "whole", *cell) == "ok"
    assert len(counted.decoded) == 2 * PROMPTS
    assert set(counted.decoded.values()) == {1}
    counted.decoded.clear()
    kills = 0
    while run_until(tmp_path / "killed", counted, *cell, decodes=3) is None:
        kills += 1
    assert kills >= PROMPTS / 2
    assert sum(counted.decoded.values()) - len(counted.decoded) <= kills, "one arm of the prompt at hand"
    assert max(counted.decoded.values()) <= 2
    assert_same(timeless(tmp_path / "whole"), timeless(tmp_path / "killed"))
    assert not partials(tmp_path / "killed")
    found = load(tmp_path / "killed", "default")
    assert found.runs["num_starts"].tolist() == [kills + 1]
    assert found.prompts["start"].is_monotonic_increasing
    assert set(found.prompts["start"]) <= set(range(1, kills + 2))
    assert (found.prompts.groupby(["prompt_id", "turn"])["start"].nunique() == 1).all(), "arms are paired in one start"
    assert load(tmp_path / "whole", "default").runs["num_starts"].tolist() == [1]


def lines_of(root):
    return partials(root)[0].read_text().splitlines() if partials(root) else []


@pytest.mark.few(1)
@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGKILL])
def test_a_signal_in_the_middle_costs_no_decoded_prompt(sent, tmp_path, monkeypatch):
    """Of a real process. SIGTERM waits for the prompt at hand, SIGKILL loses it and no other."""
    cell = (*SHORT, "limit=8", "decoding.max_new_tokens=32", "drafter=chain4", "runtime.num_threads=1")
    process = start(tmp_path, *cell, "runtime.progress=false")
    root, deadline = tmp_path / "results", time.monotonic() + 300
    while len(lines_of(root)) < 5:
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < deadline
        time.sleep(0.005)
    process.send_signal(sent)
    printed, _ = process.communicate(timeout=120)
    (left,) = partials(root)
    before = Partial(left.parent, left.stem.partition("-")[2]).read()
    there = {(entry.prompt_id, entry.turn) for entry in before.entries if entry.turn is not None}
    assert 2 <= len(there) < 16, "the signal came in the middle"
    if sent == signal.SIGTERM:
        assert process.returncode == preemption.STATUS == 143
        assert printed.splitlines()[-1].startswith("asked to end; every decoded prompt is kept")
        (row,) = load(root, "default").runs.itertuples()
        assert (row.status, row.error) == ("interrupted", "asked to end by SIGTERM")
        assert {*load(root, "default").prompts[["prompt_id", "turn"]].itertuples(index=False, name=None)} == there
    else:
        assert process.returncode == -signal.SIGKILL
        assert load(root, "default").runs.empty
    monkeypatch.setenv("GOMP_SPINCOUNT", SPINS)  # the machine is crowded now
    counted = Counted(monkeypatch)
    assert execute(root, *cell) == "ok"
    again = {(prompt, turn) for prompt, turn, _ in counted.decoded}
    assert not again & there, "decoded once more"
    assert len(again | there) == 16
    assert load(root, "default").runs["num_starts"].tolist() == [2]


def test_sigterm_ends_a_sweep_behind_the_prompt_at_hand(tmp_path, monkeypatch):
    """The next cell is not begun, and the exit status is that of a process that SIGTERM ended."""
    save = resumed.Journal.save

    def asked(self, prompt_id, turn, **more):
        signal.raise_signal(signal.SIGTERM)
        save(self, prompt_id, turn, **more)

    with monkeypatch.context() as patch:
        patch.setattr(resumed.Journal, "save", asked)
        assert command(tmp_path, "-m", *CELL, "seed=0,1", "runtime.progress=false") == 143
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    found = load(tmp_path / "results", "default")
    assert found.runs["seed"].tolist() == [0]
    assert len(found.prompts) == 2


@pytest.fixture
def begun(tmp_path, monkeypatch):
    """A cell that was killed behind its second prompt."""
    counted = Counted(monkeypatch)
    assert run_until(tmp_path, counted, *CELL, decodes=4) is None
    counted.left = None
    counted.decoded.clear()
    return tmp_path, counted


@pytest.mark.few(5)
@pytest.mark.parametrize("changed", ["git_revision", "device_name", "code_sha256", "prompts_sha256", "labels_sha256"])
def test_what_is_of_another_state_is_dropped_with_a_sentence(changed, begun, caplog):
    root, counted = begun
    (path,) = partials(root)
    head, *rest = path.read_text().splitlines()
    head = json.loads(head)
    head["of"][changed] = "another"
    path.write_text("\n".join([json.dumps(head), *rest]) + "\n")
    with caplog.at_level(logging.WARNING, "specdec_trees.measure.resumed"):
        assert execute(root, *CELL) == "ok"
    (said,) = caplog.messages
    assert "2 prompts of an earlier start are dropped and decoded anew" in said
    assert f"{changed} another then" in said
    assert len(counted.decoded) == 2 * PROMPTS
    assert load(root, "default").runs["num_starts"].tolist() == [1]


@pytest.mark.parametrize("damage", ["other columns", "a short row", "no header"])
def test_what_cannot_be_used_is_decoded_anew_with_a_sentence(damage, begun, caplog):
    root, counted = begun
    (path,) = partials(root)
    head, first, *rest = path.read_text().splitlines()
    if damage == "other columns":
        head = head.replace('"prefill_s"', '"prefilled_s"')
    elif damage == "a short row":
        rest[0] = rest[0].replace("[[", "[[null],[", 1)
    lines = ["{}"] if damage == "no header" else [head, first, *rest]
    path.write_text("\n".join(lines) + "\n")
    assert execute(root, *CELL) == "ok"
    (said,) = [text for text in caplog.messages if "another version" in text]
    assert "is damaged or of another version, and all is decoded anew" in said
    assert len(counted.decoded) == 2 * PROMPTS
    assert not partials(root)


@pytest.mark.parametrize("recorded", [False, True])
def test_what_a_kill_behind_the_last_row_left_goes_when_the_cell_is_skipped(recorded, begun):
    """Unless it is of a start that was to record more than is there."""
    root, counted = begun
    (path,) = partials(root)
    left = path.read_text().replace('"recorded":[]', '"recorded":["nodes"]' if recorded else '"recorded":[]')
    assert execute(root, *CELL) == "ok"
    path.write_text(left)
    assert execute(root, *CELL, "retry=failed") == "skipped"
    assert partials(root) == [path] * recorded
    counted.decoded.clear()
    assert execute(root, *CELL) == "skipped"
    assert partials(root) == [path] * recorded
    assert not counted.decoded


def test_the_name_of_a_new_file_outlives_the_machine(tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr("specdec_trees.results.partial.sync_folder", synced.append)
    first = Partial(tmp_path, "0" * 12)
    first.begin({}, None)
    first.add(Entry("a", 0, {}))
    assert synced == [tmp_path]


@pytest.mark.parametrize("options", [("force=true",), ("record_nodes=true",), ("runtime.baseline=false",)])
def test_what_would_lack_rows_or_is_to_be_measured_anew_begins_anew(options, begun):
    root, counted = begun
    assert execute(root, *CELL, *options) == "ok"
    assert len({key[:2] for key in counted.decoded}) == PROMPTS


def test_threads_that_nobody_chose_are_those_it_began_with(begun, monkeypatch):
    root, counted = begun
    (path,) = partials(root)
    path.write_text(path.read_text().replace('"num_threads":1', '"num_threads":2', 1))
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    threads = torch.get_num_threads()
    monkeypatch.setattr("specdec_trees.measure.threads.choose", lambda: 1)
    assert execute(root, *CELL, "runtime.num_threads=null") == "ok"
    assert load(root, "default").runs["num_threads"].tolist() == [2]
    assert len(counted.decoded) == 2 * (PROMPTS - 2)
    torch.set_num_threads(threads)


@pytest.mark.parametrize("torn", [b'{"prompt_id":"x","turn"', b"\0" * 40, b"\xff\xfe{}\n", b'{"start":2'])
def test_a_line_that_a_kill_cut_off_is_as_good_as_none(torn, begun, tmp_path):
    root, counted = begun
    (path,) = partials(root)
    with path.open("ab") as file:
        file.write(torn)
    assert run_until(root, counted, *CELL, decodes=3) is None
    counted.left = None
    assert execute(root, *CELL) == "ok"
    assert sum(counted.decoded.values()) - len(counted.decoded) <= 1
    assert len(load(root, "default").prompts) == 2 * PROMPTS
    assert load(root, "default").runs["num_starts"].tolist() == [3]


def test_a_second_writer_is_seen(tmp_path):
    """As on a file system that has lost the lock of the first."""
    first, second = Partial(tmp_path, "0" * 12), Partial(tmp_path, "0" * 12)
    first.begin({}, None)
    first.add(Entry("a", 0, {}))
    second.begin({}, second.read())
    with pytest.raises(StoreError, match="another process runs the same cell"):
        first.add(Entry("b", 0, {}))
    second.add(Entry("b", 0, {}))
    second.drop()
    with pytest.raises(StoreError, match="another process runs the same cell"):
        second.add(Entry("c", 0, {}))
    assert not partials(tmp_path)


def test_all_decoded_and_not_written_is_written_without_decoding(tmp_path, monkeypatch):
    counted = Counted(monkeypatch)
    with monkeypatch.context() as patch:
        patch.setattr("specdec_trees.measure.runner._write", lambda *_: (_ for _ in ()).throw(Killed))
        with pytest.raises(Killed):
            execute(tmp_path, *CELL)
    counted.decoded.clear()
    assert execute(tmp_path, *CELL) == "ok"
    assert not counted.decoded
    assert len(load(tmp_path, "default").prompts) == 2 * PROMPTS


def test_the_load_of_others_is_the_mean_over_starts(begun, monkeypatch):
    root, _ = begun
    (path,) = partials(root)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    lines[-1]["facts"] |= {"other_load": 3.0, "wall_s": 1e9}
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert execute(root, *CELL) == "ok"
    assert load(root, "default").runs["other_load"].iloc[0] == pytest.approx(3.0, abs=1e-3)


def test_a_failed_prompt_stays_failed(tmp_path, monkeypatch):
    """Its conversation has ended, in this start or the next."""
    counted = Counted(monkeypatch)
    assert execute(tmp_path, *CELL) == "ok"
    longest = load(tmp_path, "default").prompts.groupby("prompt_id")["num_prompt_tokens"].max()
    room = int(longest.min()) + 1  # for one conversation
    cell = (*CELL, f"dataset.max_total_tokens={room}")
    assert execute(tmp_path / "whole", *cell) == "ok"
    while run_until(tmp_path / "killed", counted, *cell, decodes=3) is None:
        pass
    whole, killed = (load(tmp_path / name, "default") for name in ("whole", "killed"))
    assert len(whole.prompts) == 4, "two turns of one conversation, in two arms"
    assert set(whole.failed["prompt_id"]) == set(killed.failed["prompt_id"])
    assert len(whole.failed) == len(killed.failed) == 2
    assert_same(timeless(tmp_path / "whole"), timeless(tmp_path / "killed"))


def test_the_case_study_is_written_with_its_prompt(tmp_path, monkeypatch):
    cell, counted = (*CELL, "case_study=true"), Counted(monkeypatch)
    assert run_until(tmp_path, counted, *cell, decodes=3) is None
    study = json.loads((tmp_path / "default" / "case_study.json").read_text())
    assert study["pieces"]
    counted.left = None
    assert execute(tmp_path, *cell) == "ok"
    assert json.loads((tmp_path / "default" / "case_study.json").read_text()) == study


def test_what_a_kill_left_of_a_file_goes_with_the_next_rows(tmp_path, monkeypatch):
    folder = tmp_path / "default" / "prompts"
    with monkeypatch.context() as patch:
        patch.setattr(
            "specdec_trees.results.parquet.pq.ParquetWriter.write_table", lambda *_, **__: (_ for _ in ()).throw(Killed)
        )
        patch.setattr("pathlib.Path.unlink", lambda *_, **__: None)  # the dead tidy nothing up
        with pytest.raises(Killed):
            execute(tmp_path, *CELL)
    assert list(folder.glob(".*.tmp"))
    assert execute(tmp_path, *CELL) == "ok"
    assert not list(folder.glob(".*.tmp"))
