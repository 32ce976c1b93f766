"""Runs commands of the project, each in a fork of a process that has imported them: a line of JSON in, a line out."""

import importlib
import json
import os
import runpy
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import specdec_trees
from specdec_trees.cli import TASKS

SLOW = "run reproduce report.__main__ check.__main__ compare.__main__ plan.__main__ judge.__main__"
Run = Callable[..., tuple[int, str]]
"""Arguments, a working directory and, if the command is to be stopped by Ctrl-C, behind how many seconds."""


@contextmanager
def server() -> Iterator[Run]:
    """What runs a command; its exit status and all that it printed."""
    command = [sys.executable, "-W", "ignore::RuntimeWarning:runpy", __file__]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:

        def ask(arguments: list[str], folder: Path, stop_s: float | None = None) -> tuple[int, str]:
            assert process.stdin
            assert process.stdout
            process.stdin.write(json.dumps([arguments, str(folder), stop_s]) + "\n")
            process.stdin.flush()
            status, said = json.loads(process.stdout.readline())
            return status, said

        yield ask
        assert process.stdin
        process.stdin.close()


def status_of(arguments: list[str]) -> int:
    """The exit status of a task, run as `python -m` does; Ctrl-C ends the process as it does there."""
    task, *rest = arguments
    _, module, *first = TASKS[task]
    sys.argv = ["-m", *first, *rest]
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        runpy.run_module(f"specdec_trees.{module}", run_name="__main__", alter_sys=True)
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException as error:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        specdec_trees._stopped(type(error), error, error.__traceback__)
        return -signal.SIGINT if isinstance(error, KeyboardInterrupt) else 1
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    return 0


def forked(arguments: list[str], folder: str, stop_s: float | None = None) -> tuple[int, str]:
    """A task's exit status and all that it printed, in this working directory."""
    read, write = os.pipe()
    if not (child := os.fork()):
        os.dup2(write, 1)
        os.dup2(write, 2)
        os.chdir(folder)
        sys.stdout, sys.stderr = (os.fdopen(number, "w", closefd=False) for number in (1, 2))
        status = status_of(arguments)
        sys.stdout.flush()
        sys.stderr.flush()
        if status < 0:
            signal.signal(-status, signal.SIG_DFL)
            os.kill(os.getpid(), -status)
        os._exit(status)
    os.close(write)
    stop = threading.Timer(stop_s or 0, os.kill, (child, signal.SIGINT))
    if stop_s is not None:
        stop.start()
    with os.fdopen(read, "rb") as said:
        text = said.read().decode(errors="replace")
    stop.cancel()
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), text


if __name__ == "__main__":
    sys.path.pop(0)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for name in SLOW.split():
        importlib.import_module(f"specdec_trees.{name}")
    for line in sys.stdin:
        print(json.dumps(forked(*json.loads(line))), flush=True)
