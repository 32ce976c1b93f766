"""Where a number comes from: versions, revision, device, threads, load. No host names, no paths."""

from __future__ import annotations

import functools
import importlib.metadata
import logging
import os
import platform
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from specdec_core.openmp import VARIABLES
from specdec_trees import __version__
from specdec_trees.locations import IN_CHECKOUT

log = logging.getLogger(__name__)


def collect(
    device: str, dtype: str, attention: str, placement: Mapping[str, Any] | None = None
) -> dict[str, str | int | bool | None]:
    """The provenance columns of a `runs` row, for a run on `device` with that dtype and attention implementation.

    `placement` is the runtime's, where the models share out several devices; the device's name then says so.
    """
    revision, dirty = own_git_state()
    return {
        "package_version": __version__,
        "git_revision": revision,
        "git_dirty": dirty,
        "python_version": platform.python_version(),
        "torch_version": str(torch.__version__),
        "transformers_version": _version("transformers"),
        "cuda_version": torch.version.cuda,
        "driver_version": _driver_version() if torch.cuda.is_available() else None,
        "device_name": _placed_name(_device_name(device), device, placement or {}),
        "dtype": dtype,
        "attention": attention,
        "num_threads": torch.get_num_threads(),
        "wait_policy": ", ".join(f"{key}={os.environ[key]}" for key in VARIABLES if key in os.environ) or None,
        "slurm_job_id": os.environ.get("SLURM_JOB_ID"),
        "slurm_array_task_id": os.environ.get("SLURM_ARRAY_TASK_ID"),
    }


@dataclass(frozen=True, slots=True)
class CpuTimes:
    """Seconds since some moment: of the wall clock, of all cores at work or taken by the host, of this process."""

    wall_s: float
    busy_s: float
    own_s: float


def cpu_times(stat: Path = Path("/proc/stat")) -> CpuTimes | None:
    """The times up to now; None where the system does not tell what its cores do."""
    try:
        fields = stat.read_text().split("\n", 1)[0].split()[1:9]
        user, nice, system, _idle, _iowait, irq, softirq, steal = map(int, fields)
    except (OSError, ValueError):
        return None
    ticks = user + nice + system + irq + softirq + steal
    return CpuTimes(time.monotonic(), ticks / os.sysconf("SC_CLK_TCK"), sum(os.times()[:4]))


def other_load(before: CpuTimes | None, after: CpuTimes | None) -> float | None:
    """Cores that other processes kept busy in between, mean; in a container those that it sees of the whole machine."""
    if before is None or after is None or after.wall_s <= before.wall_s:
        return None
    busy, own = after.busy_s - before.busy_s, after.own_s - before.own_s
    if busy < own / 2:  # the system counts nothing
        return None
    return max(busy - own, 0.0) / (after.wall_s - before.wall_s)


def git_state(root: Path) -> tuple[str | None, bool | None]:
    """Revision of the checkout at `root`, and whether files outside results/ differ from it; Nones if it is none."""
    top = _output("git", "-C", str(root), "rev-parse", "--show-toplevel")
    revision = _output("git", "-C", str(root), "rev-parse", "HEAD")
    # A package installed below another project's checkout must not claim that project's revision.
    if not top or not revision or Path(top).resolve() != root.resolve():
        return None, None
    # Parallel jobs share the index, so asking must not refresh it.
    changes = _output("git", "-C", str(root), "--no-optional-locks", "status", "--porcelain", "--", ".", ":!results")
    return revision, None if changes is None else bool(changes)


@functools.cache
def own_git_state() -> tuple[str | None, bool | None]:
    """State of this package's checkout, asked once: what runs is what was imported, not what is committed later."""
    root = Path(__file__).resolve().parents[2]
    revision, dirty = git_state(root)
    if IN_CHECKOUT and (revision is None or dirty is None):
        log.warning(
            "git does not tell the state of %s, so that no rows are taken over or lent: run a clone with its .git, and "
            "if it is another user's, `git config --global --add safe.directory %s`",
            *(root, root),
        )
    return revision, dirty


def _output(*command: str) -> str | None:
    """Standard output of a command; None if it is missing, fails or hangs."""
    # Inside a git hook, GIT_DIR and its kin would point every call at the hook's own repository.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60, env=environment)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def _version(distribution: str) -> str:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


def _driver_version() -> str | None:
    lines = (_output("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader") or "").splitlines()
    return lines[0].strip() if lines else None


def _device_name(device: str) -> str:
    if torch.device(device).type == "cuda":
        return torch.cuda.get_device_name(device)
    return _cpu_name()


def _placed_name(name: str, device: str, placement: Mapping[str, Any]) -> str:
    """`4x NVIDIA A100, tensor parallel`."""
    count = placement.get("tensor_parallel", 1)
    if placement.get("device_map") and torch.device(device).type == "cuda":
        count = torch.cuda.device_count()
    words = {
        "tensor_parallel": "tensor parallel",
        "device_map": f"device map {placement.get('device_map')}",
        "draft_device": f"draft on {placement.get('draft_device')}",
    }
    return ", ".join([f"{count}x {name}" if count > 1 else name, *(words[key] for key in words if key in placement)])


def _cpu_name(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """Model of the processor; its architecture where the system does not tell."""
    lines = cpuinfo.read_text(errors="replace").splitlines() if cpuinfo.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return next(filter(None, names), "") or platform.processor() or platform.machine() or "unknown"
