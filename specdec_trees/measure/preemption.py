"""SIGTERM, which schedulers send some time before they kill: the prompt at hand is finished, then the process ends."""

import contextlib
import signal
import threading
from collections.abc import Iterator
from dataclasses import dataclass

STATUS = 128 + signal.SIGTERM
"""Exit status after SIGTERM, as shells have it."""


class Preempted(SystemExit):
    """The process ends because it was asked to; what was decoded is kept."""

    def __init__(self) -> None:
        super().__init__(STATUS)


@dataclass(slots=True)
class Stop:
    """Whether the process was asked to end."""

    asked: bool = False

    @contextlib.contextmanager
    def heard(self) -> Iterator[None]:
        """What fails inside, fails since the process was asked to end, if it was: Preempted."""
        try:
            yield
        except Exception as error:
            if self.asked:
                raise Preempted from error
            raise


@contextlib.contextmanager
def awaited() -> Iterator[Stop]:
    """Note SIGTERM in place of dying of it; raises Preempted at the end, had nobody looked. Threads hear nothing."""
    stop = Stop()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return

    def ask(*_: object) -> None:
        stop.asked = True

    before = signal.signal(signal.SIGTERM, ask)
    try:
        with stop.heard():
            yield stop
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL if before is None else before)
    if stop.asked:
        raise Preempted
