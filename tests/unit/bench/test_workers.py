"""Jobs shared out over devices that are pretended: one process for each, never two jobs on one, each job once."""

import os
import signal
import subprocess
import sys
import threading
import time
from itertools import pairwise
from pathlib import Path

import pytest
from cells import finish, start

from hydra_plugins.specdec_local_gpus import LocalGpus, _chosen
from specdec_trees import workers
from specdec_trees.measure.preemption import Preempted
from specdec_trees.results.store import load
from specdec_trees.workers import _alone, share_out, visible_gpus

DEVICES = ["GPU-a", "GPU-b", "GPU-c"]


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    """Locks on devices of its own."""
    monkeypatch.setattr(workers, "LOCKS", tmp_path / "devices")


def spans(folder: Path) -> list[tuple[str, float, float, int]]:
    """Device, start, end and process of every job that ended."""
    return [(w[0], float(w[1]), float(w[2]), int(w[3])) for w in (p.read_text().split() for p in folder.glob("job*"))]


def recorded(folder: Path, seconds: float = 0.05):
    """A job that takes its time and writes down when and where."""

    def run(device: str, job: int) -> tuple[str, int]:
        assert os.environ["CUDA_VISIBLE_DEVICES"] == device
        begun = time.monotonic()
        time.sleep(seconds)
        (folder / f"job{job}").write_text(f"{device} {begun} {time.monotonic()} {os.getpid()}")
        return device, job

    return run


def assert_never_two_on_one(folder: Path) -> None:
    for device in DEVICES:
        own = sorted(span[1:3] for span in spans(folder) if span[0] == device)
        assert all(before[1] <= after[0] for before, after in pairwise(own)), device


def test_every_job_once_and_never_two_on_a_device(tmp_path):
    results = share_out(12, DEVICES, recorded(tmp_path))
    assert [job for _, job in results] == list(range(12))
    assert {device for device, _ in results} == set(DEVICES)
    assert_never_two_on_one(tmp_path)
    assert len({process for *_, process in spans(tmp_path)}) == len(DEVICES), "a process keeps its models"
    begun, ended = min(span[1] for span in spans(tmp_path)), max(span[2] for span in spans(tmp_path))
    assert ended - begun < 12 * 0.05, "devices work side by side"


def test_a_slow_job_holds_up_no_other_device(tmp_path):
    slow = recorded(tmp_path, 0.6)
    results = share_out(9, DEVICES, lambda device, job: (slow if job == 0 else recorded(tmp_path))(device, job))
    by_device = [device for device, _ in results]
    assert by_device.count(by_device[0]) < 3


def test_fewer_jobs_than_devices(tmp_path):
    assert len(share_out(2, DEVICES, recorded(tmp_path))) == 2
    assert share_out(0, DEVICES, recorded(tmp_path)) == []


def test_two_sweeps_wait_for_each_others_devices(tmp_path):
    """Each in a process of its own; both name the same devices."""
    if not (child := os.fork()):
        (tmp_path / "other").mkdir()
        share_out(4, DEVICES[:2], recorded(tmp_path / "other", 0.2))
        os._exit(0)
    share_out(4, DEVICES[:2], recorded(tmp_path, 0.2))
    os.waitpid(child, 0)
    for name in ("other/job*", "job*"):
        for path in list((tmp_path).glob(name)):
            path.rename(tmp_path / f"job-{name.count('/')}-{path.name}")
    assert len(spans(tmp_path)) == 8
    assert_never_two_on_one(tmp_path)


def test_a_job_whose_process_dies_is_none_and_the_others_run(tmp_path, caplog):
    run = recorded(tmp_path)

    def killed(device: str, job: int) -> object:
        if job == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return run(device, job)

    results = share_out(7, DEVICES[:2], killed)
    assert results[1] is None
    assert None not in results[:1] + results[2:]
    assert "job 1 ended with its process on GPU-" in caplog.text
    assert "(status -9)" in caplog.text


def test_sigterm_is_passed_on_and_no_job_begins_behind_it(tmp_path):
    def asked(device: str, job: int) -> None:
        def end(*_: object) -> None:
            (tmp_path / f"asked{job}").touch()
            raise SystemExit(143)

        signal.signal(signal.SIGTERM, end)
        (tmp_path / f"job{job}").write_text(f"{device} 0 0 0")
        time.sleep(30)

    def ask() -> None:
        while len(list(tmp_path.glob("job*"))) < 2:
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=ask).start()
    with pytest.raises(Preempted):
        share_out(6, DEVICES[:2], asked)
    assert len(list(tmp_path.glob("asked*"))) == 2
    assert len(list(tmp_path.glob("job*"))) == 2


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one core cannot be shared out")
def test_cores_are_shared_out(tmp_path):
    def cores(device: str, job: int) -> set[int]:
        time.sleep(0.2)
        return os.sched_getaffinity(0)

    first, other = share_out(2, DEVICES[:2], cores)
    assert first | other == os.sched_getaffinity(0)
    assert not first & other


@pytest.fixture
def gpus(tmp_path, monkeypatch):
    """NVIDIA's tool, which lists two; no variable hides any."""
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\necho 0, GPU-1ab\necho 1, GPU-1cd\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return tool


@pytest.mark.parametrize(
    ("named", "found"),
    [
        (None, ["GPU-1ab", "GPU-1cd"]),
        ("1, 0", ["GPU-1cd", "GPU-1ab"]),
        ("GPU-1a,1", ["GPU-1ab", "GPU-1cd"]),
        ("MIG-5,0", ["MIG-5", "GPU-1ab"]),
        *((none, []) for none in ("", "-1", "NoDevFiles", "7", "GPU-x", "GPU-1", "-1,0", "0,0", "0,GPU-1ab")),
        *((f"1,{invalid},0", ["GPU-1cd"]) for invalid in ("-1", "2", "GPU-1", "", "NoDevFiles")),
    ],
)
def test_the_list_is_read_as_cuda_does(named, found, gpus, monkeypatch):
    if named is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", named)
    assert visible_gpus() == found


def test_without_a_list_of_gpus_names_are_as_they_are(gpus, monkeypatch):
    gpus.write_text("#!/bin/sh\nexit 9\n")
    assert visible_gpus() == []
    for named, found in (("0,GPU-x", ["0", "GPU-x"]), ("-1", []), ("NoDevFiles", [])):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", named)
        assert visible_gpus() == found


@pytest.mark.parametrize("name", ["1", "GPU-1cd", "GPU-1c"])
def test_one_card_has_one_lock_however_it_is_named(name, gpus, tmp_path):
    with _alone(name):
        assert [path.name for path in (tmp_path / "devices").iterdir()] == [".lock-GPU-1cd"]


def test_locks_lie_in_one_place_for_all_jobs(tmp_path):
    ask = [sys.executable, "-c", "from specdec_trees.workers import LOCKS; print(LOCKS)"]
    found = {subprocess.check_output(ask, env=os.environ | {"TMPDIR": str(tmp_path / str(job))}) for job in range(2)}
    assert len(found) == 1


def test_a_worker_counts_devices_as_nvidias_tool_does():
    assert share_out(1, DEVICES[:1], lambda *_: os.environ["CUDA_DEVICE_ORDER"]) == ["PCI_BUS_ID"]


@pytest.mark.parametrize(
    ("devices", "hidden", "said"),
    [
        (0, None, "hydra.launcher.devices is a list such as [0,1], or null for all that are visible, not 0"),
        (1, None, "is a list such as [0,1]"),
        ("0", None, "is a list such as [0,1]"),
        ([], None, "is a list such as [0,1]"),
        ([0, 2], None, "hydra.launcher.devices names 2, and visible is: GPU-1ab, GPU-1cd"),
        ([0, "GPU-1a"], None, "names a device twice: 0, GPU-1a"),
        ([0, 1], "1", "hydra.launcher.devices names 0, and visible is: GPU-1cd"),
        ([0], "-1", "hydra.launcher.devices names 0, and visible is: no GPU"),
        (None, "-1", "no GPU is visible"),
    ],
)
def test_devices_that_are_none_are_refused(devices, hidden, said, gpus, monkeypatch):
    if hidden is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", hidden)
    with pytest.raises(SystemExit) as ended:
        LocalGpus(devices).launch([["seed=0"]], 0)
    assert said in str(ended.value)


def test_a_part_of_a_gpu_is_taken_as_it_is_named(gpus, monkeypatch):
    assert _chosen(["MIG-1"]) == ["MIG-1"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "MIG-2")
    with pytest.raises(SystemExit, match="names MIG-1, and visible is: MIG-2"):
        _chosen(["MIG-1"])


CELL = ("pair=tiny", "dataset=mini", "limit=1", "decoding.max_new_tokens=6", "drafter=chain4")
SWEEP = ("-m", *CELL, "seed=0,1,2", "runtime.progress=false", "hydra/launcher=local_gpus")


def test_a_sweep_on_pretended_devices(gpus, tmp_path):
    printed = finish(start(tmp_path, *SWEEP, "hydra.launcher.devices=[0,1]"))
    assert "ERROR" not in printed
    found = load(tmp_path / "results", "default").runs
    assert sorted(found["seed"]) == [0, 1, 2]
    assert set(found["status"]) == {"ok"}


def test_a_refused_cell_is_told_at_the_end(gpus, tmp_path):
    process = start(tmp_path, *SWEEP, "limit=0", "hydra.launcher.devices=[0,1]")
    printed, _ = process.communicate(timeout=300)
    assert process.returncode == 1, printed
    assert "ERROR" in printed
    assert "Traceback" not in printed


def test_without_a_gpu_it_says_so(tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    process = start(tmp_path, *SWEEP)
    printed, _ = process.communicate(timeout=300)
    assert process.returncode == 1
    assert printed.splitlines()[-1].startswith("no GPU is visible; name some by hydra.launcher.devices=[0,1]")


@pytest.mark.parametrize("option", ["force=true", "force=True", "+force=true", "++force=TRUE", "force=1"])
def test_a_job_that_would_begin_anew_at_every_start_is_refused(option, tmp_path):
    done = sbatch(tmp_path, option)
    assert (done.returncode, "begins anew at every start" in done.stderr) == (2, True)
    done = sbatch(tmp_path, "force=false", "experiment=force=true")
    assert "begins anew" not in done.stderr


def sbatch(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """What Slurm runs for task 0 of one, in a folder without a checkout."""
    task = {"SLURM_SUBMIT_DIR": str(folder), "SLURM_ARRAY_TASK_ID": "0", "SHARDS": "1"}
    script = Path(__file__).parents[3] / "scripts" / "sweep.sbatch"
    command = ["bash", str(script), "seed=0", *options]
    return subprocess.run(command, env=os.environ | task, capture_output=True, text=True, check=False)
