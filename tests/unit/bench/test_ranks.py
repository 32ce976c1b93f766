"""A sweep under torchrun: one process keeps results, all agree on what is to be done, and rows are one process's."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from cells import config, execute

from specdec_core.models import ranks
from specdec_trees import run
from specdec_trees.configs.cells import runtime_of
from specdec_trees.results.store import Store

CELL = ("dataset=mini", "limit=1", "decoding.max_new_tokens=6", "runtime.warmup_conversations=0", "decoding=t06")
MEASURED = ("calibration.acceptance.prompts=1", "calibration.acceptance.new_tokens=4", "calibration.latency.repeats=2")
SWEEP = (*CELL, *MEASURED, "calibration.latency.num_tokens=[1,8]", "runtime.dtype=float32", "runtime.progress=false")


def sweep(results: Path, *overrides: str) -> str:
    """What two processes say."""
    launch = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node=2",
        "-m",
        "specdec_trees.run",
    ]
    options = ["-m", "runtime.tensor_parallel=true", f"results_dir={results}", *SWEEP, *overrides]
    done = subprocess.run(
        [*launch, *options],
        env=os.environ | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "PYTHONPATH": str(run.CONF.parent)},
        cwd=results,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    return done.stdout + done.stderr


@pytest.mark.long
def test_two_ranks_write_the_rows_of_one_process_once(tmp_path):
    """The last cell is done already; the tree of the third depends on times that differ between the processes."""
    shared, alone = tmp_path / "shared", tmp_path / "alone"
    shared.mkdir()
    said = sweep(shared, "drafter=chain4,chain8,sequoia_hardware,chain4")
    assert said.count("already run as") == 1
    assert said.count("forward times written") == said.count("acceptance vector written") == 1
    assert execute(alone, *SWEEP, "drafter=chain8") == "ok"
    runs, expected = (Store(results, "default").read("runs").set_index("drafter") for results in (shared, alone))
    assert (runs["status"].to_dict(), len(runs)) == (dict.fromkeys(["chain4", "chain8", "sequoia_hardware"], "ok"), 3)
    assert runs["device_name"]["chain8"] == f"2x {expected['device_name']['chain8']}, tensor parallel"
    ours, theirs = (
        Store(results, "default").read("prompts", [table["run_id"]["chain8"]])
        for results, table in ((shared, runs), (alone, expected))
    )
    assert ours["output_sha256"].tolist() == theirs["output_sha256"].tolist()


def test_ranks_that_share_nothing_are_a_sentence(tmp_path, monkeypatch):
    for name, value in {"LOCAL_RANK": "1", "RANK": "1", "WORLD_SIZE": "2"}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ValueError, match=r"torchrun is for runtime\.tensor_parallel=true"):
        execute(tmp_path, *CELL)


def test_without_torchrun_there_is_one_rank_that_decides_alone():
    assert (ranks.rank(), ranks.world_size(), ranks.agreed(lambda: 3)) == (0, 1, 3)
    runtime = runtime_of(config("runtime.device_map={model: cpu, lm_head: disk}", "runtime.draft_device=cpu"))
    assert (runtime.device_map, runtime.draft_device) == ({"model": "cpu", "lm_head": "disk"}, "cpu")
    assert not runtime.tensor_parallel
