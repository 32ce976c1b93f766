"""Sweeps on a real Slurm of one node: jobs are killed and preempted, all started again, every row is there once.

`make test-cluster` runs it and prints what happened to which job.
"""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from specdec_trees.results.partial import Partial
from specdec_trees.results.store import Results, load

pytestmark = pytest.mark.slurm
ROOT, NODE = Path(__file__).parents[2], Path(__file__).with_name("slurm_node.sh")
CELL = ("pair=tiny", "dataset=mini", "limit=8", "decoding.max_new_tokens=64", "drafter=chain4", "runtime.device=cpu")
SEEDS, TURNS, ENOUGH = range(6), 16, 3
SWEEP = (*CELL, "seed=0,1,2,3,4,5", "runtime.num_threads=1", "runtime.progress=false")
PATIENCE_S = 300


def reason_against() -> str:
    """Why Slurm cannot be started here; "" where it can be tried."""
    if os.geteuid() != 0:
        return "starting Slurm's daemons takes root"
    there = all(map(shutil.which, ("slurmctld", "slurmd", "munged")))
    return "" if there or shutil.which("apt-get") else "there is no Slurm, and no apt-get to install it"


class Cluster:
    """The node's commands, and a checkout from which jobs are submitted."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.results = folder, folder / "results"
        paths = {"SLURM_CONF": str(folder / "slurm" / "slurm.conf"), "PYTHONPATH": str(ROOT)}
        self.environment = os.environ | paths | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
        shutil.copytree(ROOT / "scripts", folder / "scripts")
        (folder / ".venv").symlink_to(sys.prefix)
        self.begun: list[subprocess.Popen[str]] = []

    def ask(self, *command: str, **more: str) -> str:
        """Run a command that ends well; what it printed."""
        environment = self.environment | more
        done = subprocess.run(command, cwd=self.folder, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout.strip()

    def begin(self, *command: str) -> subprocess.Popen[str]:
        """Start a command."""
        streams = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        self.begun.append(subprocess.Popen(command, cwd=self.folder, env=self.environment, **streams))
        return self.begun[-1]

    def jobs(self) -> dict[str, dict[str, str]]:
        """What Slurm knows of its jobs, by id."""
        lines = self.ask("scontrol", "show", "job", "--oneliner").splitlines()
        every = (dict(re.findall(r"(\w+)=(\S*)", line)) for line in lines if "JobId=" in line)
        return {job["JobId"]: job for job in every}

    def tasks(self, array: str) -> dict[int, dict[str, str]]:
        """The started tasks of an array, by number."""
        found = [job for job in self.jobs().values() if job.get("ArrayJobId") == array]
        return {int(job["ArrayTaskId"]): job for job in found if job["ArrayTaskId"].isdigit()}

    def told(self, what: str, job: dict[str, str]) -> None:
        """A line of the log."""
        print(f"job {job['JobId']} (task {task_of(job)}): {what}; {job['JobState']}, exit {job['ExitCode']}, ", end="")
        print(f"restarts {job['Restarts']}", flush=True)


def task_of(job: dict[str, str]) -> str:
    """Its name as a task of an array, whose own id is that of one of them."""
    return f"{job['ArrayJobId']}_{job['ArrayTaskId']}" if "ArrayJobId" in job else job["JobId"]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    if reason := reason_against():
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("cluster")
    node = (str(NODE), "start", str(folder / "slurm"))
    started = subprocess.run(node, capture_output=True, text=True, check=False)
    try:
        if started.returncode and "apt-get" in started.stderr + started.stdout:
            pytest.skip(f"Slurm cannot be installed: {started.stderr.strip().splitlines()[-1]}")
        assert started.returncode == 0, started.stdout + started.stderr
        print(f"\n{started.stdout}")
        yield (found := Cluster(folder))
        for process in found.begun:
            process.kill()
    finally:
        subprocess.run([str(NODE), "stop", str(folder / "slurm")], check=True)


def wait_for(what: Callable[[], object], told: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not what():
        assert time.monotonic() < deadline, told
        time.sleep(0.2)


def decoded(path: Path) -> set[tuple[str, int]]:
    """The prompts that a cell has decoded so far."""
    begun = Partial(path.parent, path.stem.partition("-")[2]).read()
    return {(entry.prompt_id, entry.turn) for entry in begun.entries if entry.turn is not None} if begun else set()


@dataclass(frozen=True)
class Held:
    """A cell that a job runs, whose process was stopped for a moment with some prompts decoded and many to come."""

    path: Path
    process: int
    job: str


def in_the_middle(folder: Path) -> list[Held]:
    """Such cells; the processes of others go on."""
    found = []
    for path in folder.glob(".partial-*"):
        if not (held := holder(path)):
            continue
        os.kill(held.process, signal.SIGSTOP)
        if path.exists() and ENOUGH <= len(decoded(path)) <= TURNS - ENOUGH:
            found.append(held)
        else:
            os.kill(held.process, signal.SIGCONT)
    return found


def holder(path: Path) -> Held | None:
    """Who runs a cell, since it holds its lock; None if nobody does."""
    lock = path.with_name(f".lock-{path.stem.partition('-')[2]}").stat().st_ino
    locks = (line.split() for line in Path("/proc/locks").read_text().splitlines() if "FLOCK" in line)
    for pid in {words[4] for words in locks if words[5].endswith(f":{lock}")}:
        variables = Path("/proc", pid, "environ").read_bytes().decode().split("\0")
        job = dict(variable.split("=", 1) for variable in variables if "=" in variable)["SLURM_JOB_ID"]
        return Held(path, int(pid), job)
    return None


def one_row_each(root: Path, experiment: str, resumed: int) -> Results:
    found = load(root, experiment)
    assert sorted(found.runs["seed"]) == list(SEEDS)
    assert set(found.runs["status"]) == {"ok"}
    assert len(found.prompts) == len(SEEDS) * TURNS * 2
    assert not found.prompts.duplicated(["run_id", "prompt_id", "turn", "arm"]).any()
    assert not found.steps.duplicated(["run_id", "prompt_id", "turn", "step"]).any()
    assert (found.runs["identical"] == 1).all()
    assert (found.runs["num_starts"] > 1).sum() >= resumed  # preemption may hit a cell that has just begun too
    assert found.runs["slurm_job_id"].notna().all()
    assert not list((root / experiment).glob(".partial-*"))
    kept = ["seed", "num_starts", "slurm_job_id", "slurm_array_task_id"]
    print(found.runs[kept].sort_values("seed").to_string(index=False), flush=True)
    return found


def sweep(cluster: Cluster) -> subprocess.Popen[str]:
    launcher = ("gpus_per_node=null", "cpus_per_task=1", "mem_gb=1", "timeout_min=10", "array_parallelism=2")
    options = ("hydra/launcher=slurm_gpu", *(f"hydra.launcher.{option}" for option in launcher), "name=submitit")
    command = [sys.executable, "-m", "specdec_trees.run", "-m", *SWEEP, *options]
    return cluster.begin(*command)


def test_a_sweep_through_the_launcher_is_killed_preempted_and_started_again(cluster: Cluster) -> None:
    """Six cells are six jobs. One dies of SIGKILL, one ends by SIGTERM; the same command goes on inside both cells."""
    folder, hit = cluster.results / "submitit", {}
    first = sweep(cluster)
    for sent in (signal.SIGKILL, signal.SIGTERM):
        held = first_of(folder)
        if sent == signal.SIGKILL:  # as the kernel does where memory ends; scancel would warn it first
            os.kill(held.process, sent)
        else:  # it asks again until the job has ended
            asking = cluster.begin("scancel", "--signal=TERM", task_of(cluster.jobs()[held.job]))
            time.sleep(1)
        os.kill(held.process, signal.SIGCONT)
        wait_for(lambda: cluster.jobs()[held.job]["JobState"] == "FAILED", f"job {held.job} did not end")  # noqa: B023
        ended_with(cluster, sent.name, held.job, hit, held.path)
    asking.wait(timeout=PATIENCE_S)
    wait_for(lambda: not cluster.ask("squeue", "--noheader"), "the other jobs did not end")
    first.kill()  # it waits for two results; without Slurm's accounting it does not learn that there will be none
    assert all(ENOUGH <= len(prompts) < TURNS for prompts in hit.values()), "the signals came in the middle"
    again = sweep(cluster)
    printed, _ = again.communicate(timeout=PATIENCE_S)
    assert again.returncode == 0, printed
    assert_resumed(one_row_each(cluster.results, "submitit", resumed=2), hit)


def first_of(folder: Path) -> Held:
    """The first cell that is in the middle; its process is stopped."""
    found: list[Held] = []
    wait_for(lambda: found.extend(in_the_middle(folder)) or found, "no cell began")
    for other in found[1:]:
        os.kill(other.process, signal.SIGCONT)
    return found[0]


def ended_with(cluster: Cluster, what: str, job: str, hit: dict[Path, set[tuple[str, int]]], path: Path) -> None:
    """Note what was decoded when a job ended, and print it."""
    hit[path] = decoded(path)
    cluster.told(f"{what} with {len(hit[path])} of {TURNS} prompts decoded", cluster.jobs()[job])


def assert_resumed(found: Results, hit: dict[Path, set[tuple[str, int]]]) -> None:
    """What was decoded before the signal is of the first start, the rest of a later one."""
    for path, prompts in hit.items():
        rows = found.prompts[found.prompts["run_id"] == path.stem.partition("-")[2]]
        first = rows[rows["start"] == 1]
        assert {*first[["prompt_id", "turn"]].itertuples(index=False, name=None)} == prompts
        assert len(rows) == 2 * TURNS


def submitted(cluster: Cluster, tasks: str, **more: str) -> str:
    """The array's id; its tasks share out the cells."""
    options = ("--parsable", f"--array={tasks}", "--gpus=0", "--cpus-per-task=1", "--mem=0", "--time=10")
    return cluster.ask("sbatch", *options, "scripts/sweep.sbatch", *SWEEP, "drafter=chain8", "name=shards", **more)


def test_a_sharded_array_is_killed_preempted_by_slurm_and_started_again(cluster: Cluster) -> None:
    """A job that goes before them preempts one of three tasks, which Slurm starts again; another one is killed."""
    folder, hit = cluster.results / "shards", {}
    array = submitted(cluster, "0-2")
    killed = first_of(folder)
    os.kill(killed.process, signal.SIGKILL)
    wait_for(lambda: cluster.jobs()[killed.job]["JobState"] == "FAILED", f"job {killed.job} did not end")
    ended_with(cluster, "SIGKILL", killed.job, hit, killed.path)
    cells: list[Held] = []
    wait_for(lambda: cells.extend(in_the_middle(folder)) or cells, "no other cell began")
    urgent = cluster.ask("sbatch", "--parsable", "--partition=urgent", "--cpus-per-task=2", "--wrap=sleep 1")
    time.sleep(3)  # by now it has sent its signals
    for held in cells:
        with contextlib.suppress(ProcessLookupError):  # Slurm goes on with what it ends, which may be over
            os.kill(held.process, signal.SIGCONT)
    wait_for(lambda: cluster.jobs()[urgent]["JobState"] == "COMPLETED", "the urgent job did not run")
    cluster.told("ran before the sweep", cluster.jobs()[urgent])
    for held in cells:
        if cluster.jobs()[held.job]["Restarts"] == "1":
            ended_with(cluster, "preempted by it", held.job, hit, held.path)
    assert len(hit) > 1
    wait_for(lambda: ended(cluster, array), "the array did not end")
    for task in cluster.tasks(array).values():
        cluster.told("has ended", task)
    again = submitted(cluster, cluster.jobs()[killed.job]["ArrayTaskId"], SHARDS="3")
    wait_for(lambda: ended(cluster, again), "the killed task did not end")
    (task,) = cluster.tasks(again).values()
    cluster.told("has ended", task)
    assert_resumed(one_row_each(cluster.results, "shards", resumed=len(hit)), hit)


def ended(cluster: Cluster, array: str) -> bool:
    """Whether all tasks of an array have; Slurm lets a task that it queues again wait, which is cut short."""
    for job in (tasks := cluster.tasks(array)).values():
        if job["JobState"] == "PENDING" and job["Restarts"] != "0":
            cluster.ask("scontrol", "update", f"JobId={task_of(job)}", "StartTime=now")
    return bool(tasks) and {job["JobState"] for job in tasks.values()} <= {"COMPLETED", "FAILED", "CANCELLED"}


def test_what_is_cancelled_stays_ended(cluster: Cluster) -> None:
    """`scancel` sends SIGTERM too, but nothing queues the task again."""
    array = submitted(cluster, "0-0", SHARDS="6")
    wait_for(lambda: {job["JobState"] for job in cluster.tasks(array).values()} == {"RUNNING"}, "no task began")
    time.sleep(1)
    cluster.ask("scancel", array)
    wait_for(lambda: ended(cluster, array), "the task did not end")
    (job,) = cluster.tasks(array).values()
    cluster.told("cancelled", job)
    assert (job["JobState"], job["Restarts"]) == ("CANCELLED", "0")
