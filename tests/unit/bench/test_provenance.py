"""Provenance: exactly the columns of a run, the state of a real git checkout, and nothing that names the machine."""

import dataclasses
import os
import platform
import shutil
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pyarrow.parquet as pq
import pytest
import torch

import specdec_trees
from specdec_core.openmp import VARIABLES, crowded
from specdec_trees.measure import cell_run, provenance
from specdec_trees.results.rows import RunRow

needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


def git(folder, *arguments):
    name = ["-c", "user.name=Nobody", "-c", "user.email=nobody@example.org", "-c", "commit.gpgsign=false"]
    environment = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    command = ["git", "-C", str(folder), *name, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout.strip()


@pytest.fixture
def checkout(tmp_path):
    folder = tmp_path / "checkout"
    (folder / "bench").mkdir(parents=True)
    (folder / "results" / "reference").mkdir(parents=True)
    (folder / "bench" / "code.py").write_text("a = 1\n")
    (folder / "results" / "reference" / "table.md").write_text("1\n")
    git(folder, "init", "--quiet")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "-m", "first")
    return folder


def executable(folder, name, script):
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def test_the_fields_are_those_of_a_run():
    names = [field.name for field in dataclasses.fields(RunRow)]
    wanted = names[names.index("device_name") : names.index("slurm_array_task_id") + 1]
    assert set(provenance.collect("cpu", "float32", "sdpa")) == set(wanted)


def test_the_values_are_those_of_this_process(monkeypatch):
    monkeypatch.setenv("SLURM_JOB_ID", "17")
    monkeypatch.delenv("SLURM_ARRAY_TASK_ID", raising=False)
    found = provenance.collect("cpu", "float32", "eager")
    assert (found["dtype"], found["attention"]) == ("float32", "eager")
    assert (found["slurm_job_id"], found["slurm_array_task_id"]) == ("17", None)
    assert found["torch_version"] == torch.__version__
    assert type(found["torch_version"]) is str
    assert found["python_version"] == platform.python_version()
    assert found["num_threads"] == torch.get_num_threads()
    assert found["transformers_version"][0].isdigit()
    assert found["package_version"] == specdec_trees.__version__


def test_nothing_names_the_machine_or_a_path():
    texts = [value for value in provenance.collect("cpu", "float32", "sdpa").values() if isinstance(value, str)]
    places = {str(Path.home()), str(Path.cwd()), str(Path(provenance.__file__).parents[1])} - {"/"}
    assert platform.node() not in texts
    assert not [text for text in texts for place in places if place in text]


def test_a_package_that_is_not_installed_is_unknown():
    assert provenance._version("no-such-distribution-anywhere") == "unknown"


@needs_git
def test_revision_and_dirt_of_a_checkout(checkout):
    head = git(checkout, "rev-parse", "HEAD")
    assert provenance.git_state(checkout) == (head, False)
    (checkout / "results" / "reference" / "table.md").write_text("2\n")
    (checkout / "results" / "new.parquet").write_text("rows")
    assert provenance.git_state(checkout) == (head, False)
    (checkout / "bench" / "code.py").write_text("a = 2\n")
    assert provenance.git_state(checkout) == (head, True)
    git(checkout, "checkout", "--quiet", "bench")
    (checkout / "bench" / "extra.py").write_text("b = 1\n")
    assert provenance.git_state(checkout) == (head, True)


@needs_git
def test_only_a_checkout_of_our_own_has_a_revision(checkout, tmp_path):
    bare = tmp_path / "plain"
    bare.mkdir()
    assert provenance.git_state(bare) == (None, None)
    assert provenance.git_state(checkout / "bench") == (None, None)
    git(bare, "init", "--quiet")
    assert provenance.git_state(bare) == (None, None)


@needs_git
def test_a_git_hook_around_us_does_not_lend_its_repository(checkout, tmp_path, monkeypatch):
    other = tmp_path / "other"
    other.mkdir()
    git(other, "init", "--quiet")
    monkeypatch.setenv("GIT_DIR", str(other / ".git"))
    assert provenance.git_state(checkout) == (git(checkout, "rev-parse", "HEAD"), False)


def test_without_git_there_is_no_revision(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert provenance.git_state(Path(provenance.__file__).parents[1]) == (None, None)


def test_without_a_revision_it_is_said_once_and_how_to_mend_it(monkeypatch, caplog):
    monkeypatch.setattr(provenance, "git_state", lambda _: (None, None))
    provenance.own_git_state.cache_clear()
    for _ in range(2):
        assert provenance.collect("cpu", "float32", "sdpa")["git_revision"] is None
    provenance.own_git_state.cache_clear()
    (said,) = caplog.messages
    assert "safe.directory" in said


@pytest.mark.parametrize(("available", "driver"), [(True, "999.10"), (False, None)])
def test_the_driver_is_asked_only_where_cuda_is(tmp_path, monkeypatch, available, driver):
    executable(tmp_path, "nvidia-smi", '[ "$1" = --query-gpu=driver_version ] && echo 999.10 && echo 999.10')
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: available)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: f"Model of {device}")
    assert provenance.collect("cpu", "float32", "sdpa")["driver_version"] == driver
    assert provenance.collect("cuda:1", "float32", "sdpa")["device_name"] == "Model of cuda:1"


def test_cpu_model(tmp_path):
    info = tmp_path / "cpuinfo"
    assert provenance._cpu_name(info)
    info.write_text("processor\t: 0\nmodel name\t: Fast CPU @ 3.0: GHz\n\nprocessor\t: 1\nmodel name\t: Fast CPU\n")
    assert provenance._cpu_name(info) == "Fast CPU @ 3.0: GHz"
    info.write_text("processor\t: 0\nBogoMIPS\t: 50\n")
    assert provenance._cpu_name(info) not in ("", "50")


def test_reference_results_are_of_committed_code():
    """Rows of changed code could not be had again by anyone. Run from a clean checkout what is to be committed."""
    folder = Path(provenance.__file__).parents[2] / "results" / "reference"
    rows = pq.read_table(folder / "rows" / "runs.parquet").to_pylist()
    assert len(rows) > 100
    assert [row["experiment"] for row in rows if row["git_dirty"] or not row["git_revision"]] == []


WATCHED = """
import os, sys
class Watch:
    def find_spec(self, name, path=None, target=None):
        if name == "torch":
            print(*(key + "=" + os.environ[key] for key in sys.argv[1:] if key in os.environ))
            raise SystemExit
sys.meta_path.insert(0, Watch())
import {module}
"""


@pytest.mark.parametrize("module", ["specdec_core", "specdec_trees.measure.runner", "specdec_trees.prompts.embedded"])
@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({"OMP_NUM_THREADS": "2"}, ""),
        ({"OMP_WAIT_POLICY": "ACTIVE"}, "OMP_WAIT_POLICY=ACTIVE"),
        ({"GOMP_SPINCOUNT": "0"}, "GOMP_SPINCOUNT=0"),
        ({"KMP_BLOCKTIME": "0"}, "KMP_BLOCKTIME=0"),
    ],
)
def test_how_threads_wait_is_left_to_the_user_who_says_it_or_their_number(module, given, found):
    others = {key: value for key, value in os.environ.items() if key not in (*VARIABLES, "OMP_NUM_THREADS")}
    command = [sys.executable, "-c", WATCHED.format(module=module), *VARIABLES]
    done = subprocess.run(command, env=others | given, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == found


@pytest.mark.skipif(not Path("/proc/loadavg").exists(), reason="the system does not tell")
@pytest.mark.parametrize("module", ["specdec_core", "specdec_trees.measure.runner", "specdec_trees.prompts.embedded"])
def test_threads_spin_briefly_on_a_crowded_machine(module):
    """More processes than cores run until it has looked."""
    others = {key: value for key, value in os.environ.items() if key not in (*VARIABLES, "OMP_NUM_THREADS")}
    command = [sys.executable, "-c", WATCHED.format(module=module), *VARIABLES]
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range((os.cpu_count() or 1) + 1)]
    try:
        done = subprocess.run(command, env=others, capture_output=True, text=True, check=True, timeout=120)
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()
    assert done.stdout.strip() == "GOMP_SPINCOUNT=1000"


@pytest.mark.parametrize(("running", "found"), [(1, False), (1 + (os.cpu_count() or 1), True)])
def test_a_machine_is_crowded_where_a_thread_on_each_core_is_too_many(tmp_path, running, found):
    (tmp_path / "loadavg").write_text(f"0.26 1.33 1.76 {running}/345 1234\n")
    assert crowded(tmp_path / "loadavg") is found
    (tmp_path / "odd").write_text("0.26 1.33 1.76")
    assert not any(crowded(tmp_path / name) for name in ("missing", "odd", ".")), "other systems do not tell"


def test_how_threads_wait_is_recorded(monkeypatch):
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    assert provenance.collect("cpu", "", "")["wait_policy"] is None
    monkeypatch.setenv("GOMP_SPINCOUNT", "0")
    monkeypatch.setenv("OMP_WAIT_POLICY", "PASSIVE")
    assert provenance.collect("cpu", "", "")["wait_policy"] == "OMP_WAIT_POLICY=PASSIVE, GOMP_SPINCOUNT=0"


def test_the_load_of_others_is_what_the_machine_did_less_what_we_did(tmp_path):
    before = provenance.CpuTimes(wall_s=100.0, busy_s=1000.0, own_s=7.0)
    after = provenance.CpuTimes(wall_s=110.0, busy_s=1016.0, own_s=16.0)
    assert provenance.other_load(before, after) == pytest.approx(0.7)
    assert provenance.other_load(after, after) is None
    assert provenance.other_load(None, after) is None
    uncounted = provenance.CpuTimes(wall_s=110.0, busy_s=1000.0, own_s=16.0)
    assert provenance.other_load(before, uncounted) is None  # a system that counts nothing is not a quiet one
    assert provenance.cpu_times(tmp_path / "missing") is None
    (tmp_path / "stat").write_text("cpu  100 20 3 5000 600 7 8 9 11 12\ncpu0 1 1 1 1 1 1 1 1 1 1\n")
    ticks = os.sysconf("SC_CLK_TCK")
    assert provenance.cpu_times(tmp_path / "stat").busy_s == (100 + 20 + 3 + 7 + 8 + 9) / ticks


@pytest.mark.skipif(not Path("/proc/stat").exists(), reason="the system does not tell what its cores do")
def test_a_busy_child_that_is_not_ours_counts_as_others():
    """It is not waited for until after the second reading, so that it counts as another process would."""
    child = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        before = provenance.cpu_times()
        time.sleep(1.0)
        load = provenance.other_load(before, provenance.cpu_times())
    finally:
        child.kill()
        child.wait()
    assert 0.1 < load <= (os.cpu_count() or 1) + 0.1


@pytest.mark.parametrize(
    ("row", "here", "said"),
    [
        (("a" * 40, False), ("a" * 40, False), ""),
        (("a" * 40, False), ("b" * 40, False), f" by {'a' * 10}, where this is {'b' * 10}"),
        (("a" * 40, True), ("a" * 40, False), f" by {'a' * 10} with changes, where this is {'a' * 10}"),
        (("a" * 40, True), ("a" * 40, True), f" by {'a' * 10} with changes, where this is {'a' * 10} with changes"),
        ((None, None), ("b" * 40, False), ""),
        (("a" * 40, False), (None, None), ""),
    ],
)
def test_a_finished_run_of_other_code_is_told(row, here, said, monkeypatch):
    monkeypatch.setattr(provenance, "own_git_state", lambda: here)
    columns = dict(zip(("git_revision", "git_dirty"), row, strict=True))
    run = SimpleNamespace(run_id="r", store=SimpleNamespace(row=lambda *_, **__: columns))
    assert cell_run.other_code(run) == said
