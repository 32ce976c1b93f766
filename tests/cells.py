"""Cells as `specdec_trees.run` makes them from overrides, and pairs whose words are their token ids."""

import logging
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from checkpoints import word_tokenizer
from doubles import random_llama
from omegaconf import DictConfig

from specdec_core import Sampling
from specdec_core.models import Pair
from specdec_trees import run
from specdec_trees.configs.cells import cell_of
from specdec_trees.measure.cell import Cell
from specdec_trees.plan.composing import composer

QUIET = ("runtime.device=cpu", "runtime.progress=false", "runtime.num_threads=1")


def config(*overrides: str) -> DictConfig:
    """What Hydra makes of a command line."""
    with composer() as composes:
        return composes([*QUIET, *overrides])


def execute(results: Path, *overrides: str, job: int | None = 0) -> str:
    """Run a cell in this process, without a warm-up, as one job of a sweep, or alone without one; its status."""
    return run._execute(config(f"results_dir={results}", "runtime.warmup_conversations=0", *overrides), job)


def word_pair(*, positions: int = 256, eos: int | None = None) -> Pair:
    """A random pair of 61 tokens; the text "w3 w7" is the prompt [3, 7]."""
    target, draft = random_llama(0, positions=positions), random_llama(1, layers=1, positions=positions)
    target.model.generation_config.eos_token_id = eos
    return Pair(target, draft, word_tokenizer([f"w{number}" for number in range(61)]))


def cell(*overrides: str, new: int = 12, temperature: float | None = None, dataset: Any = None, **changes: Any) -> Cell:
    """A cell that decodes `new` tokens; `dataset` and the other changes replace fields."""
    made = cell_of(config(f"decoding.max_new_tokens={new}", *overrides))
    if temperature is not None:
        changes["sampling"] = Sampling(temperature)
    return replace(made, dataset=replace(made.dataset, **dataset or {}), **changes)


def start(folder: Path, *overrides: str) -> subprocess.Popen[str]:
    """`python -m specdec_trees.run` as a process of its own, on one thread, without a network, working in `folder`."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    command = [sys.executable, "-m", "specdec_trees.run", *overrides]
    return subprocess.Popen(command, cwd=folder, env=environment, preexec_fn=_hear_ctrl_c, **streams)


def command(folder: Path, *overrides: str) -> int | str | None:
    """`python -m specdec_trees.run` in this process, working in `folder`; with what it exits."""
    handlers, level = logging.root.handlers[:], logging.root.level
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(sys, "argv", ["specdec_trees.run", *overrides])
        patch.setattr(run, "_refused", [])
        patch.setattr(run, "_busy", [])
        patch.setattr(run, "_waiting", [])
        patch.setattr(logging, "shutdown", lambda *_: None)  # Hydra's: absl's handler closes what pytest captures with
        try:
            run.command()
        except SystemExit as stop:
            return stop.code
        finally:  # Hydra has put its own in their place
            logging.root.handlers[:], logging.root.level = handlers, level
    return None


def _hear_ctrl_c() -> None:
    """A shell starts what it runs in the background deaf to Ctrl-C, and that is inherited."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def finish(process: subprocess.Popen[str]) -> str:
    """What a process printed, once it has ended well."""
    printed, _ = process.communicate(timeout=400)
    assert process.returncode == 0, printed
    return printed


def stamps(results: Path) -> dict[str, int]:
    """Every visible file of a results folder and when it was written."""
    found = (path for path in results.rglob("*") if path.is_file() and not path.name.startswith("."))
    return {path.relative_to(results).as_posix(): path.stat().st_mtime_ns for path in found}
