"""How many threads torch uses on the CPU: no more than cores are free, since one that waits for a core stalls all."""

from __future__ import annotations

import functools
import logging
import os
import time
from pathlib import Path

import torch

from bench.measure.provenance import cpu_times, other_load

log = logging.getLogger(__name__)
LOOK_S = 0.5
"""Seconds over which the load of other processes is measured."""


def allowed(root: Path = Path("/sys/fs/cgroup"), own: Path = Path("/proc/self/cgroup")) -> float:
    """Cores this process may use: those of its affinity, or less by the quota of a cgroup (version 2) above it."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        named = next(line[3:] for line in own.read_text().splitlines() if line.startswith("0::"))
    except (OSError, StopIteration):
        return cores
    folder, quotas = root / named.lstrip("/"), [float(cores)]
    for place in (folder, *folder.parents):
        if place == root.parent:
            break
        try:
            quota, period = (place / "cpu.max").read_text().split()
        except (OSError, ValueError):
            continue
        if quota != "max":
            quotas.append(int(quota) / int(period))
    return min(quotas)


def wanted(threads: int, cores: float, machine: int, load: float) -> int:
    """Of `threads` those that find a core: of the `cores` allowed, and of the machine's beside its other load."""
    return max(1, min(threads, int(min(cores, machine - load) + 0.5)))


@functools.cache
def choose() -> None:
    """Set torch's threads, once a process, and say so in a sentence; nothing where OMP_NUM_THREADS has been set."""
    if os.environ.get("OMP_NUM_THREADS"):
        return
    before = cpu_times()
    time.sleep(LOOK_S)
    load, cores, machine = other_load(before, cpu_times()) or 0.0, allowed(), os.cpu_count() or 1
    default = torch.get_num_threads()
    threads = wanted(default, cores, machine, load)
    if threads < default:
        torch.set_num_threads(threads)
        log.warning(
            "%d thread%s in place of %d: this process may use %.1f cores, and others keep %.1f of the machine's %d "
            "busy. Set runtime.num_threads to choose; compare times of quiet machines only.",
            *(threads, "s" * (threads > 1), default, cores, load, machine),
        )
