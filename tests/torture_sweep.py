"""The sweep that is tortured, what its rows must be, and the reports of it; each run is a fork of a warm process."""

import contextlib
import json
import os
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

from cells import config, execute
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException
from resumed import timeless
from torture_places import COMPARE, REPORT, Place
from tqdm import tqdm

from specdec_trees.compare.__main__ import main as compare
from specdec_trees.configs.cells import cell_of, runtime_of
from specdec_trees.measure import pairs, runner
from specdec_trees.measure.cell import Cell
from specdec_trees.measure.decoding import Decoding
from specdec_trees.report.__main__ import main as report
from specdec_trees.results import progress
from specdec_trees.results.identity import identity
from specdec_trees.results.rows import METHOD
from specdec_trees.results.store import Store, StoreError

NAME = "smoke"
"""An artifact's name, so that `specdec_trees.status` has a line for it."""
SHORT = ("pair=tiny", "dataset=mini", "limit=2", "decoding.max_new_tokens=6", "runtime.warmup_conversations=0")
CALIBRATED = ("drafter=sequoia", "drafter.n=4", "calibration.acceptance.width=4", "calibration.acceptance.repeats=1")
DRAFTERS = (("drafter=chain4",), ("drafter=opt_tree", "drafter.n=4"), CALIBRATED)
SWEPT = [(*drafter, f"seed={seed}") for drafter in DRAFTERS for seed in range(2)]
CRASHED = 70
Circumstances = Callable[[], contextlib.AbstractContextManager[object]]


class Sweep:
    """The cells, what their rows must be, and a log of the prompts that were begun."""

    def __init__(self, folder: Path) -> None:
        self.configs = [config(*SHORT, *own, f"name={NAME}") for own in SWEPT]
        self.runtime = runtime_of(self.configs[0])
        self.folder, self.log, self.place = folder, folder / "begun", Place()
        self.log.touch()
        root = folder / "truth"
        self.run(root, 0)
        self.truth = timeless(root, NAME)
        self.prompts = {tuple(line.split()) for line in self.log.read_text().splitlines()}
        assert len(self.prompts) == len(self.truth["prompts"]) / 2
        assert self.truth["runs"]["status"].tolist() == ["ok"] * len(SWEPT)
        configs = Store(root, NAME).read("runs")["config"].map(json.loads)
        plain = tuple({"pair": "tiny", "config": identity(each)} for each in configs)
        self.plan = progress.Planned(overrides=(), pairs=("tiny",), cells=plain)
        self.plan.write(root / NAME)
        self.shown = folder / "shown"
        for own in DRAFTERS[:2]:
            execute(self.shown, *SHORT, *own, f"name={NAME}", "limit=6")
        self.written = {place: self.write(place, folder / place) for place in (REPORT, COMPARE)}
        assert all(self.written.values())

    def run(self, root: Path, shift: int) -> int:
        """Run the cells in this process, from another one on; 0 if none was refused."""
        store, refused = Store(root, NAME), 0
        with self._logged():
            for cfg in [*self.configs[shift:], *self.configs[:shift]]:
                try:
                    refused += runner.run_cell(self._cell(cfg, root), self.runtime, store) in (
                        runner.FAILED,
                        runner.OOM,
                    )
                except (StoreError, OmegaConfBaseException, *runner.MEMORY):  # `specdec_trees.run` tells a sentence
                    refused += 1
        return int(refused > 0)

    def start(self, root: Path, shift: int, place: Place, circumstances: Circumstances, *, cold: bool = False) -> int:
        """The same in a process of its own, `cold` without a pair, which says its place; its id."""

        def work() -> int:
            place.tell()
            if cold:
                pairs.release()
            with circumstances():
                return self.run(root, shift)

        return _forked(work)

    def draw(self, kind: str, out: Path) -> int:
        """Report on results, or compare them with themselves, in a process of its own; its id."""

        def work() -> int:
            self.write(kind, out)
            return 0

        return _forked(work)

    def write(self, kind: str, out: Path) -> dict[str, bytes]:
        """What it writes, by name; its words go nowhere."""
        name = str(self.shown / NAME)
        arguments = [NAME, "--results", str(self.shown)] if kind == REPORT else [name, name]
        with Path(os.devnull).open("w") as nowhere, contextlib.redirect_stdout(nowhere):
            (report if kind == REPORT else compare)([*arguments, "--out", str(out)])
        return visible(out)

    def _cell(self, cfg: DictConfig, root: Path) -> Cell:
        """What a config leaves to be measured is measured first."""
        cfg.results_dir = str(root)
        return cell_of(cfg)

    @contextlib.contextmanager
    def _logged(self) -> Iterator[None]:
        """Write down each prompt whose method's arm begins."""
        decode, log = Decoding.decode, os.open(self.log, os.O_WRONLY | os.O_APPEND)

        def logged(own: Decoding, turn, arm, new=None, watch=None, **more):
            if arm == METHOD and new is None and watch is None and not more:
                os.write(log, f"{own.cell.run_id} {turn.conversation.id} {turn.number}\n".encode())
            return decode(own, turn, arm, new, watch, **more)

        Decoding.decode = logged
        try:
            yield
        finally:
            Decoding.decode = decode
            os.close(log)


def visible(folder: Path) -> dict[str, bytes]:
    """The files of a folder by name, hidden ones left out."""
    return {path.name: path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.name[0] != "."}


def _forked(work: Callable[[], int]) -> int:
    """Work in a process of its own; its id. Exit status CRASHED where it ended without a sentence."""
    sys.stdout.flush()
    if child := os.fork():
        return child
    code = CRASHED
    tqdm.set_lock(threading.RLock())  # the other is shared by all forks, and stays locked by one that is killed
    try:
        code = work()
    except SystemExit as asked:
        code = int(asked.code or 0)
    except MemoryError:  # between two cells
        code = 1
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)
