"""The measurement: sweeps, records, tables and figures around `specdec_core`."""

import atexit
import os
import runpy
import select
import sys
from pathlib import Path
from types import TracebackType

__version__ = "0.1.0"
STDOUT = 1

# for modules that import torch first; `specdec_core` would import it, and reports need not
runpy.run_path(str(Path(__file__).parents[1] / "specdec_core" / "openmp.py"))


def _stopped(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """A sentence in place of a traceback where Ctrl-C ends a command, be it by way of an error that it led to."""
    cause: BaseException | None = error
    while cause and not isinstance(cause, KeyboardInterrupt):
        cause = cause.__context__
    if cause:
        print("stopped by Ctrl-C", file=sys.stderr)
    elif not (isinstance(error, BrokenPipeError) and _unread()):
        sys.__excepthook__(kind, error, trace)


def _unread() -> bool:
    """Whether who read the output has stopped (`| head`); nothing more is then written there."""
    poll = select.poll()
    poll.register(STDOUT, 0)
    unread = any(events & select.POLLERR for _, events in poll.poll(0))
    if unread:
        os.dup2(os.open(os.devnull, os.O_WRONLY), STDOUT)
    return unread


if sys.argv[:1] == ["-m"]:  # `python -m specdec_trees.X` has imported no more than this package yet
    sys.excepthook = _stopped
    atexit.register(_unread)
