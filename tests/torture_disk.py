"""What befalls a sweep beside kills: disks that are full or read-only, clocks that jump, no locks, no memory."""

import contextlib
import errno
import fcntl
import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

from specdec_trees.measure import to_rows

DISK_KB = 2048


class Disk:
    """Where results lie: a tmpfs of its own where that can be had, which can be filled and made read-only."""

    def __init__(self, path: Path) -> None:
        self.path, self.own = path, False
        path.mkdir()
        options = ("-t", "tmpfs", "-o", f"size={DISK_KB}k", "tmpfs", str(path))
        self.own = (
            os.geteuid() == 0 and subprocess.run(["mount", *options], check=False, capture_output=True).returncode == 0
        )

    @contextlib.contextmanager
    def full(self, left: int) -> Iterator[None]:
        """Fill it up to so many bytes."""
        filler, free = self.path / "filler", os.statvfs(self.path)
        filler.write_bytes(bytes(max(free.f_bavail * free.f_frsize - left, 0)))
        try:
            yield
        finally:
            filler.unlink()

    @contextlib.contextmanager
    def read_only(self) -> Iterator[None]:
        """Let nobody write."""
        subprocess.run(["mount", "-o", "remount,ro", self.path], check=True)
        try:
            yield
        finally:
            subprocess.run(["mount", "-o", "remount,rw", self.path], check=True)

    def close(self) -> None:
        """Unmount and delete it."""
        if self.own:
            subprocess.run(["umount", self.path], check=True)
        shutil.rmtree(self.path)


@contextlib.contextmanager
def jumping_clock() -> Iterator[None]:
    """Whoever asks for the time is told of another year each time."""

    class Jumping(datetime):
        @classmethod
        def now(cls, tz=None):
            return datetime.now(UTC) + timedelta(days=random.uniform(-4000, 4000))

    clock, to_rows.datetime, time.time = time.time, Jumping, lambda: clock() + random.uniform(-1e8, 1e8)
    yield


@contextlib.contextmanager
def no_locks() -> Iterator[None]:
    """A file system that refuses flock."""

    def refuse(*_: object) -> None:
        raise OSError(random.choice([errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS]), "flock")

    fcntl.flock = refuse
    yield


@contextlib.contextmanager
def no_memory() -> Iterator[None]:
    """SIGUSR1 is an allocation that fails. The kernel's way, which kills, is SIGKILL."""

    def fail(*_: object) -> None:
        raise MemoryError("no memory is left, says the torture")

    signal.signal(signal.SIGUSR1, fail)
    yield


@contextlib.contextmanager
def under_submitit() -> Iterator[None]:
    """SIGUSR2 ends the process as submitit's handler does, which Slurm calls before a time limit."""

    def requeued(*_: object) -> None:
        raise SystemExit(REQUEUED)

    signal.signal(signal.SIGUSR2, requeued)
    yield


REQUEUED = 255
