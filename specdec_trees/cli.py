"""The command `specdec`: each of its tasks is `python -m specdec_trees.X`."""

import os
import sys

from specdec_trees import __version__
from specdec_trees.names import unknown

TASKS = {
    "smoke": ("15 methods on the embedded pair, in minutes on a CPU", "reproduce", "smoke", "pair=tiny"),
    "run": ("one cell (pair, dataset, method), or with -m a sweep", "run"),
    "record": ("the target's answers once, for runs with runtime.replay=true", "record"),
    "plan": ("cells, memory and hours of an experiment, before it runs", "plan"),
    "reproduce": ("run and report artifacts of the papers: opt_tree/table1, gsd, ...", "reproduce"),
    "status": ("what is done, running, failed or missing", "status"),
    "report": ("tables, figures and pages of all results, or of one artifact", "report"),
    "latency": ("times of target and draft forwards on this machine", "latency"),
    "predict": ("speeds on another machine, from forward times or a card's data sheet", "speed.predicted"),
    "judge": ("answers graded by a model behind an endpoint", "judge"),
    "compare": ("the paired difference of two runs or folders of results", "compare"),
    "merge": ("folders of results of several machines in one", "merge"),
    "check": ("is a folder of results complete, lossless and unaltered", "check"),
    "prove": (
        "look for faults in a drafter or a rule that should be lossless: greedy equality, and the law of its samples",
        "prove",
    ),
    "conformance": ("is a verification function lossless: FILE.py:FUNCTION, of any engine or paper", "conformance"),
    "pack": ("one file per table in a folder of results", "pack"),
    "new": ("write the yaml of your own pair or dataset", "new"),
    "smollm2": ("a real instruct model, SmolLM2-135M: 93 MB, once, into models/smollm2", "smollm2"),
    "engines": ("acceptance under the names of vLLM, llama.cpp or AIPerf, or beside a record of theirs", "engines"),
    "export": ("datasets of the hub as files, for a machine without internet", "prompts.export"),
    "completion": ('what completes words in bash and zsh: eval "$(specdec completion)"', "completion"),
}
"""By name: what a task does, its module, and its first arguments."""


def usage() -> str:
    """The tasks, a line each."""
    tasks = "".join(f"  {name:<12}{does}\n" for name, (does, *_) in TASKS.items())
    return (
        f"usage: specdec TASK [ARGUMENT ...]\n\n{tasks}\n`specdec TASK --help` says more of it; `specdec --version`.\n"
    )


def main() -> None:
    """Become `python -m specdec_trees.X`; 2 with a sentence for an unknown task."""
    task, *arguments = sys.argv[1:] or ["--help"]
    if task in ("-h", "--help"):
        print(usage(), end="")
    elif task == "--version":
        print("specdec", __version__)
    elif task not in TASKS:
        print(unknown("task", task, TASKS), file=sys.stderr)
        sys.exit(2)
    else:
        _, module, *first = TASKS[task]
        command = [sys.executable, "-m", f"{__package__}.{module}", *first, *arguments]
        os.execv(command[0], command)
