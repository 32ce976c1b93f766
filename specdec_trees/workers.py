"""Jobs shared out over devices: a process for each device, one job at a time in each, every job once."""

from __future__ import annotations

import contextlib
import logging
import multiprocessing
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, TypeVar

from tqdm import tqdm

from specdec_trees.measure import preemption
from specdec_trees.results.locks import lock

T = TypeVar("T")
log = logging.getLogger(__name__)
LOOK_S = 0.5
"""How often is looked whether the process was asked to end."""
PATIENCE_S = 60
"""What workers have to finish a prompt and write it down after Ctrl-C."""
LOCKS = Path("/tmp") / f"specdec-devices-{os.getuid()}"
"""Where devices are held, for all jobs of a user on a machine, whatever TMPDIR each of them has."""
_FORK = multiprocessing.get_context("fork")
"""A fork has all that was composed, and no CUDA yet: nothing has to be pickled."""


@dataclass(slots=True)
class _Worker:
    device: str
    process: Any
    pipe: Connection
    job: int | None = None


def visible_gpus() -> list[str]:
    """What CUDA_VISIBLE_DEVICES names, else all GPUs of this machine; by UUID where NVIDIA's tool tells.

    As CUDA has it, nothing counts from the first entry on that is no GPU, and none at all where one is named twice.
    Indices are in the order of `nvidia-smi` (CUDA_DEVICE_ORDER=PCI_BUS_ID), and CUDA is not begun for it.
    """
    if (named := os.environ.get("CUDA_VISIBLE_DEVICES")) is None:
        return [uuid for _, uuid in _listed()]
    found = list(takewhile(bool, resolved(named.split(","))))
    return found if len(set(found)) == len(found) else []


def resolved(names: Sequence[str]) -> list[str]:
    """The UUIDs of GPUs that are named by index or by the beginning of a UUID; "" for what names none.

    Parts of a GPU (MIG) are as they are named, and so are all names where nobody lists the GPUs.
    """
    listed = _listed()
    return [_uuid(name.strip(), listed) for name in names]


def _uuid(name: str, listed: Sequence[tuple[str, str]]) -> str:
    if name.startswith("MIG-") or (not listed and (name.isdigit() or name.startswith("GPU-"))):
        return name
    found = [uuid for index, uuid in listed if name == index or (name.startswith("GPU-") and uuid.startswith(name))]
    return found[0] if len(found) == 1 else ""


def _listed() -> list[tuple[str, str]]:
    """Index and UUID of all GPUs that this process may use; none without NVIDIA's tool."""
    ask = ["nvidia-smi", "--query-gpu=index,uuid", "--format=csv,noheader"]
    try:
        lines = subprocess.run(ask, capture_output=True, text=True, check=True).stdout.splitlines()
    except (OSError, subprocess.SubprocessError):
        return []
    return [(index, uuid) for index, _, uuid in (line.partition(", ") for line in lines)]


def share_out(jobs: int, devices: Sequence[str], run: Callable[[str, int], T]) -> list[T | None]:
    """What `run(device, job)` returns of every job, in order; None where its process died, and others take the rest.

    A device has one process, and a process one job at a time; sweeps of one user on one machine wait for each other's
    devices. SIGTERM is passed on, waited for, and raised as Preempted.
    """
    results: list[T | None] = [None] * jobs
    left = iter(range(jobs))
    with preemption.awaited() as stop:
        workers = [_started(device, place, devices, run) for place, device in enumerate(devices[:jobs])]
        try:
            for worker in workers:
                _next(worker, left)
            while busy := [worker for worker in workers if worker.job is not None]:
                for pipe in wait([worker.pipe for worker in busy], timeout=LOOK_S):
                    worker = next(one for one in busy if one.pipe is pipe)
                    _heard(worker, results)
                    if not worker.process.is_alive() and not stop.asked:
                        again = _started(worker.device, devices.index(worker.device), devices, run)
                        worker.process, worker.pipe = again.process, again.pipe
                    _next(worker, left)
                if stop.asked:
                    break
        finally:
            _end(workers, asked=stop.asked)
    return results


def _started(device: str, place: int, devices: Sequence[str], run: Callable[[str, int], T]) -> _Worker:
    ours, theirs = _FORK.Pipe()
    process = _FORK.Process(target=_serve, args=(device, place, len(devices), theirs, ours, run))
    process.start()
    theirs.close()
    return _Worker(device, process, ours)


def _serve(device: str, place: int, count: int, pipe: Connection, theirs: Connection, run: Callable[..., Any]) -> None:
    """A worker: its own device, its own share of the cores, job after job until there are no more."""
    theirs.close()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    tqdm.set_lock(threading.RLock())  # its own is shared by all forks, and stays locked by one that is killed
    os.environ |= {"CUDA_VISIBLE_DEVICES": device, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}  # the order of indices
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) >= count:
        os.sched_setaffinity(0, cores[place::count])
    with _alone(device), contextlib.suppress(KeyboardInterrupt, EOFError):
        while (job := pipe.recv()) is not None:
            pipe.send(run(device, job))


@contextlib.contextmanager
def _alone(device: str) -> Iterator[None]:
    """Hold a device among all such workers of this user on this machine, by one name however it was named."""
    LOCKS.mkdir(mode=0o700, exist_ok=True)
    with lock(LOCKS, (resolved([device])[0] or device).replace("/", "_"), wait=True):
        yield


def _next(worker: _Worker, left: Iterator[int]) -> None:
    """Give it the next job, or let it end."""
    worker.job = next(left, None)
    with contextlib.suppress(OSError):
        worker.pipe.send(worker.job)


def _heard(worker: _Worker, results: list[Any]) -> None:
    assert worker.job is not None
    try:
        results[worker.job] = worker.pipe.recv()
    except (EOFError, OSError):
        worker.process.join()
        log.error("job %d ended with its process on %s (status %s)", worker.job, worker.device, worker.process.exitcode)


def _end(workers: Sequence[_Worker], *, asked: bool) -> None:
    """Wait for all of them; those that were not asked to end are killed where they take too long."""
    for worker in workers:
        worker.pipe.close()
        if asked:
            worker.process.terminate()
    for worker in workers:
        worker.process.join(None if asked else PATIENCE_S)
        worker.process.kill()
