"""Counting what a device is asked for."""

import ctypes
import sys
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

from fake_cuda.library import library

WAITS = ("sync", "h2d", "d2h")
"""Events in which the host waits: reads of values and sizes, copies that are not asynchronous."""
UPLOADS = ("h2d", "h2d_async")
LAUNCHES = ("launch", "d2d")
OURS = ("specdec_core", "specdec_trees")
"""Packages whose lines are named; what a library does is booked to the line of ours that called it."""


class Counts:
    """How often something happened, by kind, operator and line."""

    def __init__(self) -> None:
        self.places: Counter[tuple[str, str, str]] = Counter()

    def add(self, other: "Counts") -> None:
        """Count what the other has counted."""
        self.places.update(other.places)

    def subtract(self, other: "Counts") -> None:
        """Leave out what the other has counted."""
        self.places.subtract(other.places)

    def of(self, *kinds: str) -> int:
        """Events of these kinds."""
        return sum(number for (kind, *_), number in self.places.items() if kind in kinds)

    def where(self, *kinds: str) -> Counter[str]:
        """Events of these kinds by operator and line."""
        found: Counter[str] = Counter()
        for (kind, operator, line), number in self.places.items():
            if kind in kinds:
                found[f"{operator} {line}"] += number
        return found

    @property
    def waits(self) -> int:
        """How often the host waited."""
        return self.of(*WAITS)

    @property
    def uploads(self) -> int:
        """Copies from the host, waited for or not."""
        return self.of(*UPLOADS)

    @property
    def launches(self) -> int:
        """Kernels, copies on the device among them."""
        return self.of(*LAUNCHES)


_counting: list[Counts] = []
_forbidding = 0


@contextmanager
def counting() -> Iterator[Counts]:
    """Count what happens inside; may be nested."""
    counts = Counts()
    _counting.append(counts)
    _listen()
    try:
        yield counts
    finally:
        _counting.remove(counts)
        _listen()


def sync_mode() -> int:
    """0: waiting is allowed; 1: it is warned of; 2: it raises."""
    return _forbidding


def set_sync_mode(mode: int | str) -> None:
    """As `torch.cuda.set_sync_debug_mode`."""
    global _forbidding
    _forbidding = {"default": 0, "warn": 1, "error": 2}[mode] if isinstance(mode, str) else mode
    _listen()


def happened(kind: str, operator: str) -> int:
    """Count an event; 1 where it is a wait and these are forbidden."""
    line = _line() if _counting else ""
    for counts in _counting:
        counts.places[kind, operator, line] += 1
    if _forbidding == 1 and kind in WAITS:
        warnings.warn("called a synchronizing CUDA operation", stacklevel=3)
    return int(_forbidding == 2 and kind in WAITS)


@ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_int64)
def _listener(kind: bytes, operator: bytes, size: int) -> int:
    return happened(kind.decode(), operator.decode().removeprefix("aten::"))


def _listen() -> None:
    library().fake_listen(_listener if _counting or _forbidding else None)


def _line() -> str:
    frame = sys._getframe(2)
    while frame is not None:
        if name := _name(frame.f_code.co_filename):
            return f"{name}:{frame.f_lineno}"
        frame = frame.f_back
    return "elsewhere"


@cache
def _name(path: str) -> str | None:
    """`specdec_core/tree.py` of a file of ours; asked of all frames of a stack at every launch."""
    for package in OURS:
        _, found, rest = path.rpartition(f"/{package}/")
        if found and "site-packages" not in path:
            return f"{package}/{rest}"
    return None
