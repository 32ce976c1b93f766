"""Nothing is lost, nothing doubled: sweeps killed, stopped, started twice, out of memory, with nonsense or garbage."""

import re
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from cells import execute, stamps, start

from specdec_core import CausalLM
from specdec_core.models import ModelOutput
from specdec_trees.measure.measurement import Measurement, Save
from specdec_trees.prompts.datasets import Conversation
from specdec_trees.results.rows import AUTOREGRESSIVE, METHOD
from specdec_trees.results.store import Results, Store, load

SHORT = ("pair=tiny", "dataset=mini", "runtime.device=cpu", "runtime.warmup_conversations=0")
SEEDS = range(6)
CELL = (*SHORT, "limit=2", "decoding.max_new_tokens=8", "drafter=chain4")
SWEEP = ("-m", *CELL, "seed=0,1,2,3,4,5")


def wait_for(what: Callable[[], object], process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 300
    while not what():
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < deadline
        time.sleep(0.005)


def assert_complete(results: Path) -> Results:
    """Every cell of the sweep once, with all its rows, and no other visible file."""
    found = load(results, "default")
    assert sorted(found.runs["seed"]) == list(SEEDS)
    assert set(found.runs["status"]) == {"ok"}
    ids = set(found.runs["run_id"])
    assert stamps(results).keys() == {
        f"default/{table}/run_id={run}.parquet" for table in ("runs", "prompts", "steps") for run in ids
    }
    prompts = found.prompts.groupby("run_id")
    assert (prompts.size() == 8).all()
    assert not found.prompts.duplicated(["run_id", "prompt_id", "turn", "arm"]).any()
    assert not found.steps.duplicated(["run_id", "prompt_id", "turn", "step"]).any()
    assert found.steps["kept"].sum() == found.prompts.loc[found.prompts["arm"] == METHOD, "num_decoded_tokens"].sum()
    return found


def test_a_killed_sweep_goes_on_where_it_stopped(tmp_path, long_form):
    results = tmp_path / "results"
    runs = results / "default" / "runs"
    for done in (1, 3) if long_form else (3,):  # the second time in the middle of what the first left
        process = start(tmp_path, *SWEEP, "runtime.progress=false")
        wait_for(lambda: len(list(runs.glob("run_id=*"))) >= done, process)  # noqa: B023
        process.send_signal(signal.SIGKILL)
        process.communicate()
        assert process.returncode == -signal.SIGKILL
    finished = Store(results, "default").read("runs")
    assert 3 <= len(finished) < len(SEEDS), "the kill came in the middle"
    assert set(finished["status"]) == {"ok"}
    names = {
        f"default/{table}/run_id={run}.parquet" for table in ("runs", "prompts", "steps") for run in finished["run_id"]
    }
    before = stamps(results)
    assert {execute(results, *CELL, f"seed={seed}") for seed in SEEDS} == {"ok", "skipped"}
    after = stamps(results)
    assert {name: after[name] for name in names} == {name: before[name] for name in names}
    assert_complete(results)


@pytest.mark.long
def test_the_same_sweep_twice_at_once(tmp_path):
    """Each cell is run by exactly one of the two; the other one passes over it."""
    processes = [
        start(tmp_path, *SWEEP, "runtime.progress=false", "hydra.verbose=[specdec_trees.measure.runner]")
        for _ in range(2)
    ]
    printed = [process.communicate(timeout=400)[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0], printed
    assert_complete(tmp_path / "results")
    passed = sum(text.count("already run") + text.count("is being run or graded") for text in printed)
    assert passed == len(SEEDS)


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, tuple[str, ...]]:
    """A sweep of two cells that was stopped by Ctrl-C in the middle of the first; the first cell's overrides."""
    folder = tmp_path_factory.mktemp("interrupted")
    cell = (*SHORT, "limit=8", "decoding.max_new_tokens=8", "drafter=chain4")
    process = start(folder, "-m", *cell, "seed=0,1")
    seen = ""
    while not re.search(r"\b[2-7]/8 \[", seen):
        piece = process.stdout.read(1)
        assert piece, seen
        seen += piece
    process.send_signal(signal.SIGINT)
    rest, _ = process.communicate(timeout=60)
    assert process.returncode == 130, seen + rest
    assert rest.endswith("\nstopped; what was finished is kept, and the same command goes on from there\n")
    assert "Traceback" not in rest
    assert "ERROR" not in rest
    return folder / "results", cell


def test_ctrl_c_keeps_what_was_done_and_the_next_run_completes_it(interrupted):
    results, cell = interrupted
    found = load(results, "default")
    (row,) = found.runs.itertuples()
    assert (row.status, row.error, row.seed) == ("interrupted", "stopped by the user", 0)
    assert 2 <= row.num_conversations < 8
    assert found.prompts["prompt_id"].nunique() >= row.num_conversations
    assert row.mal >= 1 and row.identical == 1  # noqa: PT018
    assert execute(results, *cell, "seed=0") == "ok"
    again = load(results, "default")
    (row,) = again.runs.itertuples()
    assert (row.status, row.num_conversations) == ("ok", 8)
    assert len(again.prompts) == 8 * 4
    kept = found.prompts.set_index(["prompt_id", "turn", "arm"])["output_sha256"]
    assert kept.eq(again.prompts.set_index(["prompt_id", "turn", "arm"])["output_sha256"].loc[kept.index]).all()


class Killed(BaseException):
    """The end of the process, as far as the store can tell."""


@pytest.mark.parametrize("table", ["prompts", "steps", "runs"])
def test_a_kill_between_the_files_of_a_cell(table, tmp_path, monkeypatch):
    """Of the rows that are there already none is read, neither of a new cell nor of one that is run again."""
    cell = (*SHORT, "limit=1", "decoding.max_new_tokens=3", "drafter=chain4")
    write = Store.write

    def killed(self: Store, name: str, *rows: object) -> None:
        if name == table:
            raise Killed
        write(self, name, *rows)

    for options in ((), ("force=true", "record_nodes=true")):
        with monkeypatch.context() as patched:
            patched.setattr(Store, "write", killed)
            with pytest.raises(Killed):
                execute(tmp_path, *cell, *options)
        left = load(tmp_path, "default")
        assert all(getattr(left, name).empty for name in ("runs", "prompts", "steps", "nodes"))
        assert execute(tmp_path, *cell) == "ok"
        assert [len(getattr(load(tmp_path, "default"), name)) for name in ("runs", "prompts", "nodes")] == [1, 4, 0]


@pytest.mark.long
def test_out_of_memory_is_a_row_and_the_next_cell_runs(tmp_path, monkeypatch):
    cell = (*SHORT, "limit=3", "decoding.max_new_tokens=4", "drafter=chain4")
    run = Measurement.run

    def full(self: Measurement, conversation: Conversation, *more: Save | int) -> object:
        if conversation.id.endswith("3"):
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB.")
        return run(self, conversation, *more)

    with monkeypatch.context() as patched:
        patched.setattr(Measurement, "run", full)
        assert execute(tmp_path, *cell, "seed=0") == "oom"
    assert execute(tmp_path, *cell, "seed=1") == "ok"
    found = load(tmp_path, "default").runs.set_index("seed")
    assert found.loc[0, "error"].endswith("CUDA out of memory. Tried to allocate 20.00 GiB.")
    assert len(found.loc[0, "error"].splitlines()) <= 6
    assert list(found["num_conversations"]) == [2, 3]
    assert execute(tmp_path, *cell, "seed=0", "retry=failed") == "ok"
    assert set(load(tmp_path, "default").runs["status"]) == {"ok"}


@pytest.mark.parametrize(("arm", "bad"), [(METHOD, float("nan")), (AUTOREGRESSIVE, float("inf"))])
def test_nonsense_from_the_model_fails_the_cell_and_names_the_step(arm, bad, tmp_path, monkeypatch):
    """The target answers with nonsense from the fourth step of an arm on. The other arm may have been decoded."""
    cell = (*SHORT, "limit=1", "decoding.max_new_tokens=20", "drafter=chain4")
    call, steps = CausalLM.__call__, []

    def nonsense(self: CausalLM, tokens: torch.Tensor, layout: object) -> ModelOutput:
        output = call(self, tokens, layout)
        if self.config.num_hidden_layers == 1 or (tokens.shape[0] == 1) != (arm == AUTOREGRESSIVE):
            return output
        steps.append(tokens)
        return ModelOutput(output.logits * bad) if len(steps) > 3 else output

    with monkeypatch.context() as patched:
        patched.setattr(CausalLM, "__call__", nonsense)
        assert execute(tmp_path, *cell) == "failed"
    (row,) = load(tmp_path, "default").runs.itertuples()
    assert row.error == "step 3: the target returned NaN or infinite logits"
    assert row.num_conversations == 0
    assert load(tmp_path, "default").prompts.empty
    assert execute(tmp_path, *cell) == "ok"


@pytest.mark.parametrize("garbage", [b"", b"PAR1", b"not a parquet file at all"])
def test_half_written_and_foreign_files_are_run_again(garbage, tmp_path):
    cell = (*SHORT, "limit=1", "decoding.max_new_tokens=3", "drafter=autoregressive")
    assert execute(tmp_path, *cell) == "ok"
    (path,) = (tmp_path / "default" / "runs").iterdir()
    path.write_bytes(garbage)
    (path.parent / "notes.parquet").write_bytes(garbage)
    with pytest.warns(UserWarning, match="is not a readable parquet file"):
        assert execute(tmp_path, *cell) == "ok"
    assert execute(tmp_path, *cell) == "skipped"
    with pytest.warns(UserWarning, match=r"Skipped .*notes\.parquet"):
        assert len(load(tmp_path, "default").runs) == 1
