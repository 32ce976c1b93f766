"""How many threads torch uses on the CPU: no more than cores are free, since a thread that waits for one stalls all."""

from __future__ import annotations

import functools
import logging
import math
import os
import time
from collections.abc import Collection, Iterator
from pathlib import Path

import torch

log = logging.getLogger(__name__)
LOOKS, LOOK_S = 4, 0.25
"""How often the load of other processes is measured, the least of which counts, and over how many seconds each time."""
MOST = 4
"""Threads for a core, beyond which they only wait for one another."""
DEFAULT = torch.get_num_threads()
"""What torch chose, by OMP_NUM_THREADS or the number of cores."""


def own_cores() -> set[int]:
    """The cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return os.sched_getaffinity(0)
    return set(range(os.cpu_count() or 1))


def quota(root: Path = Path("/sys/fs/cgroup"), own: Path = Path("/proc/self/cgroup")) -> float:
    """Cores' worth of time that the process's cgroups allow, of either version; infinite where none says."""
    return min((allowed / period for allowed, period in _quotas(root, own) if allowed > 0), default=math.inf)


def _quotas(root: Path, own: Path) -> Iterator[tuple[int, int]]:
    for line in own.read_text().splitlines() if own.is_file() else ():
        _, controllers, path = line.split(":", 2)
        if controllers and "cpu" not in controllers.split(","):
            continue
        top = root / "cpu" if controllers else root
        folder = top / path.lstrip("/")
        for place in (folder, *folder.parents):
            if place == top.parent:
                break
            try:
                if controllers:
                    words = [(place / f"cpu.cfs_{part}_us").read_text() for part in ("quota", "period")]
                else:
                    words = (place / "cpu.max").read_text().split()
                yield int(words[0]), int(words[1])
            except (OSError, ValueError):  # no limit at this place
                continue


def busy_s(cores: Collection[int], stat: Path = Path("/proc/stat")) -> float | None:
    """Seconds that these cores have worked so far, niced processes left out; None where the system does not tell."""
    try:
        lines = [line.split() for line in stat.read_text().splitlines() if line.startswith("cpu")]
    except OSError:
        return None
    mine = [list(map(int, words[1:9])) for words in lines if words[0].removeprefix("cpu") in set(map(str, cores))]
    ticks = sum(user + system + irq + softirq + steal for user, _, system, _, _, irq, softirq, steal in mine)
    return ticks / os.sysconf("SC_CLK_TCK") if mine else None


def other_load(cores: Collection[int]) -> float | None:
    """How many of the cores other processes keep busy: the least of several looks."""
    found = []
    for _ in range(LOOKS):
        start, before, own = time.monotonic(), busy_s(cores), sum(os.times()[:4])
        time.sleep(LOOK_S)
        after = busy_s(cores)
        if before is None or after is None:
            return None
        worked = after - before - (sum(os.times()[:4]) - own)
        found.append(max(worked, 0.0) / (time.monotonic() - start))
    return min(found)


def wanted(threads: int, cores: int, allowed: float, load: float) -> int:
    """Of `threads` those that find a core: within the quota, and of the `cores` beside what others use."""
    return max(1, int(min(threads, allowed, cores - load + 0.5)))


def use(asked: int | None) -> None:
    """Have torch use so many threads, by default as many as find a core. ValueError for more than `MOST` a core."""
    cores = len(own_cores())
    if asked and asked > MOST * cores:
        here = f"{cores} core{'s' * (cores > 1)}"
        raise ValueError(f"runtime.num_threads={asked}: this process has {here}; {MOST * cores} threads are the most")
    torch.set_num_threads(asked or choose())


@functools.cache
def choose() -> int:
    """Torch's threads for this process, chosen once; fewer than its default are said in a sentence.

    With OMP_NUM_THREADS it is the default: users who set it know what else runs.
    """
    cores = own_cores()
    load = None if os.environ.get("OMP_NUM_THREADS") else other_load(cores)
    if load is None:
        return DEFAULT
    allowed = quota()
    threads = wanted(DEFAULT, len(cores), allowed, load)
    if threads < DEFAULT:
        limit = f" within a quota of {allowed:.1f}" if allowed < len(cores) else ""
        log.warning(
            "%d thread%s in place of %d: other processes keep %.1f of %d cores busy%s. Set runtime.num_threads to "
            "choose; times of busy machines are not to be compared.",
            *(threads, "s" * (threads > 1), DEFAULT, load, len(cores), limit),
        )
    return threads
