"""Locks on cells: `flock` on hidden files, which the kernel frees when their holder dies, however it dies.

A lock file stays: were it removed, one process could lock the old file and another a new one of the same name. Where
the file system has no locks nothing is run, unless `SPECDEC_LOCKS=off` says that nobody else runs anything there.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

_PREFIX = ".lock-"
_SWITCH = "SPECDEC_LOCKS"
_NO_LOCKS = f"its file system has no locks, so that two jobs could run one cell; {_SWITCH}=off if only one runs there"
_NOT_SEEN = "The file system of the results has no locks: what runs at this moment is not seen."
_REFUSED = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)
_TRIES, _PAUSE_S = 5, 0.02
"""A lock that is only looked at (`held`) is free again in no time."""


class CellBusyError(RuntimeError):
    """Another process runs the same cell at this moment."""


@contextlib.contextmanager
def lock(folder: Path, name: str, *, wait: bool = False, shared: bool = False, note: str = "") -> Iterator[None]:
    """Hold a lock in an existing folder; raises CellBusyError if another process does, or waits; OSError without locks.

    A `shared` one may be held by many at once. The file keeps the `note` for whoever looks.
    """
    # open for reading too: NFS gives shared locks to readers alone
    with (folder / f"{_PREFIX}{name}").open("a+", encoding="utf-8") as file:
        kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
        if not _taken(file, kind if wait else kind | fcntl.LOCK_NB, tries=_TRIES):
            raise CellBusyError(
                f"Cell {name} is being run or graded by another process; wait until it ends, or stop it."
            )
        if note:
            file.truncate(0)
            file.write(note)
            file.flush()
        yield


def held(folder: Path) -> dict[str, str]:
    """The locks in a folder that processes of this machine hold at this moment: the name and note of each."""
    found = {}
    for path in folder.glob(f"{_PREFIX}*"):
        try:
            with path.open("a+", encoding="utf-8", errors="replace") as file:
                if not _taken(file, fcntl.LOCK_EX | fcntl.LOCK_NB):
                    file.seek(0)
                    found[path.name.removeprefix(_PREFIX)] = file.read()
        except OSError as error:
            if error.errno in _REFUSED:
                warnings.warn(_NOT_SEEN, stacklevel=2)
    return found


def _taken(file: IO[Any], operation: int, *, tries: int = 1) -> bool:
    """Whether the lock could be taken; OSError with a sentence where the file system has none."""
    if os.environ.get(_SWITCH) == "off":
        return True
    for left in reversed(range(tries)):
        try:
            fcntl.flock(file.fileno(), operation)
            return True
        except BlockingIOError:
            if left:
                time.sleep(_PAUSE_S)
        except OSError as error:
            if error.errno not in _REFUSED:
                raise
            raise OSError(error.errno, _NO_LOCKS) from error
    return False
