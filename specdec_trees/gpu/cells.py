"""The cells of `specdec_trees.gpu`: configs composed here, run as by `specdec_trees.run`, each within a time limit."""

import contextlib
import logging
import signal
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from hydra import compose, initialize_config_dir
from omegaconf import DictConfig

from specdec_trees.calibrate import kept
from specdec_trees.configs.cells import cell_of, pair_of, runtime_of, scientific_config, setting_of
from specdec_trees.locations import CONF
from specdec_trees.measure import runner
from specdec_trees.measure.cell import PairSpec, Runtime
from specdec_trees.results.store import Store

EXPERIMENT = "gpu"
METHODS = (
    *(("opt_tree_n50", "greedy"), ("opt_tree", "greedy"), ("eagle25", "greedy"), ("chain4", "greedy")),
    *(("sequoia", "greedy"), ("binary", "greedy"), ("eagle2", "greedy"), ("spec_infer_5x8", "greedy")),
    *(("opt_tree_n50", "t1"), ("sequoia", "t1"), ("dyspec", "t1"), ("dyspec", "greedy"), ("opt_tree_n60", "greedy")),
    *(("chain8", "greedy"), ("branching_4_2_2_1", "greedy"), ("spec_infer_5x8", "t1"), ("gsd", "greedy")),
)
"""Drafter and decoding, the most telling first: what comes last is left out where time is short."""
VARIANTS = tuple(("opt_tree_n50", "greedy", how) for how in ("attention=tree_split", "graphs=compile"))
"""The first method again, computed otherwise; graphs on a GPU alone."""
GRID = "1,2,4,8,16,32,64,128,256,512"

log = logging.getLogger(__name__)


class OutOfTimeError(BaseException):
    """A part was stopped where it stood. As an interrupt, it is no failure of what it interrupts."""


@dataclass(frozen=True, slots=True)
class Request:
    """What is to be run."""

    pair: str
    out: Path
    conversations: int
    new_tokens: int
    repeats: int


@contextlib.contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Raise OutOfTimeError inside after so many seconds, or at once if there are none left; main thread only."""
    if seconds <= 0:
        raise OutOfTimeError("out of time")
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: FrameType | None) -> None:
        raise OutOfTimeError(f"stopped after {seconds:.0f} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def config(request: Request, *overrides: str) -> DictConfig:
    """A composed config: bundled prompts that nothing is calibrated on, rows into the folder asked for, run anew."""
    common = [
        *(f"pair={request.pair}", "dataset=mini", "dataset.part=evaluation", "verifier=by_draws", f"name={EXPERIMENT}"),
        *(f"results_dir={request.out}", f"limit={request.conversations}", "force=true", "runtime.progress=false"),
        "runtime.graphs=eager",  # what is compiled takes minutes: one variant is
        *(f"decoding.max_new_tokens={request.new_tokens}", "calibration.acceptance.prompts=4"),
        *(f"calibration.latency.num_tokens=[{GRID}]", "calibration.latency.warmup=3"),
        f"calibration.latency.repeats={request.repeats}",
    ]
    with initialize_config_dir(str(CONF), version_base="1.3"):
        return compose("config", overrides=[*common, *overrides])


def spec_and_runtime(request: Request) -> tuple[PairSpec, Runtime]:
    """Of all cells."""
    cfg = config(request)
    return pair_of(cfg), runtime_of(cfg)


def run_method(request: Request, drafter: str, decoding: str, how: str, store: Store) -> str:
    """Run one cell and return its run id; how it ended stands in its row. `how` is an option of `runtime`, or none."""
    cfg = config(request, f"drafter={drafter}", f"decoding={decoding}", *([f"runtime.{how}"] if how else []))
    cell = cell_of(cfg)
    store.forget(cell.run_id)  # else rows of an earlier run would stand where this one fails
    runner.run_cell(cell, runtime_of(cfg), store)
    return cell.run_id


def forward_medians(request: Request) -> dict[str, dict[int, float]]:
    """Median milliseconds of a forward by role and number of tokens; the rows are kept."""
    cfg = config(request)
    times = kept.latency(setting_of(cfg, scientific_config(cfg)))
    return {role: {int(size): 1e3 * value for size, value in by.items()} for role, by in times.items()}
