"""SHA-256 of files, all bytes of them, read once and kept beside size, times and inode in the user's cache folder.

Weights of a hundred GB take a minute or two to read (1.6 GB/s of one core); another process finds what this one read.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import time
from pathlib import Path

from specdec_trees.results.parquet import replace_text

log = logging.getLogger(__name__)
SETTLED_NS = 2_000_000_000
"""A file that changed this recently may change again within one tick of its file system's clock, and is not kept."""
KEPT_BYTES, LONG_BYTES = 1 << 24, 1 << 32
"""From which sizes on a digest is kept for other processes, and reading is announced."""
_known: dict[tuple[str, tuple[int, ...]], str] = {}


def state(path: Path) -> tuple[int, ...]:
    """What changes whenever a file is written or replaced."""
    found = path.stat()
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def file_digest(path: Path) -> str:
    """The SHA-256 of a file's bytes in hex; OSError where it cannot be read."""
    path = path.resolve()
    key = str(path), state(path)
    if key not in _known:
        found = _read(path, key[1]) or _measured(path, key[1])
        if not _settled(key[1]) or state(path) != key[1]:
            return found
        _known[key] = found
    return _known[key]


def _measured(path: Path, before: tuple[int, ...]) -> str:
    if before[1] > LONG_BYTES:
        log.info("%s: its %.0f GB are read once, to know these weights by all their bytes", path, before[1] / 1e9)
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if before[1] >= KEPT_BYTES and _settled(before) and state(path) == before:
        _write(path, before, found)
    return found


def _settled(found: tuple[int, ...]) -> bool:
    return time.time_ns() - max(found[2:]) > SETTLED_NS


def _kept(path: Path) -> Path:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "specdec-trees" / "file_digests" / f"{hashlib.sha256(os.fsencode(path)).hexdigest()[:32]}.json"


def _read(path: Path, now: tuple[int, ...]) -> str | None:
    """What is kept of a file as it is now; None where there is nothing, or nothing that can be read."""
    try:
        kept = json.loads(_kept(path).read_text(encoding="utf-8"))
        good = kept["path"] == str(path) and kept["state"] == list(now) and len(bytes.fromhex(kept["sha256"])) == 32
        return str(kept["sha256"]) if good else None
    except (OSError, RuntimeError, ValueError, LookupError, TypeError):
        return None


def _write(path: Path, now: tuple[int, ...], found: str) -> None:
    """Keep it; where that is not possible the file is read again by the next process."""
    try:
        place = _kept(path)
        place.parent.mkdir(parents=True, exist_ok=True)
        replace_text(place, json.dumps({"path": str(path), "state": now, "sha256": found}))
    except (OSError, RuntimeError, ValueError) as error:
        log.debug("the digest of %s is not kept: %s", path, error)
