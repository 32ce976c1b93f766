"""Runs commands of the project, each in a fork of a process that has imported them: a line of JSON in, a line out."""

import importlib
import json
import os
import runpy
import sys
import traceback

from specdec_trees.cli import TASKS

SLOW = "run reproduce report.__main__ check.__main__ compare.__main__ plan.__main__ judge.__main__"


def status_of(arguments: list[str]) -> int:
    """The exit status of a task, run as `python -m` does."""
    task, *rest = arguments
    _, module, *first = TASKS[task]
    sys.argv = ["-m", *first, *rest]
    try:
        runpy.run_module(f"specdec_trees.{module}", run_name="__main__", alter_sys=True)
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def forked(arguments: list[str], folder: str) -> tuple[int, str]:
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
        os._exit(status)
    os.close(write)
    with os.fdopen(read, "rb") as said:
        text = said.read().decode(errors="replace")
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), text


if __name__ == "__main__":
    sys.path.pop(0)
    for name in SLOW.split():
        importlib.import_module(f"specdec_trees.{name}")
    for line in sys.stdin:
        print(json.dumps(forked(*json.loads(line))), flush=True)
