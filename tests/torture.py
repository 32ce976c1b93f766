"""Sweeps that are killed at random moments, twice at once, on full and read-only disks, without locks: `make torture`.

After each blow `specdec_trees.status` must be right, and nothing lost, doubled or unreadable; when a sweep has ended at
last, its rows must be those of one that ran through. torch and the pair are loaded once, and every sweep is a fork, so
that a kill costs less than a second. Disks need root: each results folder then lies on a small tmpfs of its own.
"""

import argparse
import contextlib
import errno
import fcntl
import logging
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"  # a fork has no threads but its own

import torch
from cells import config, stamps
from resumed import assert_same, timeless
from tqdm import tqdm

from specdec_trees import status
from specdec_trees.configs.cells import cell_of, runtime_of, scientific_config
from specdec_trees.measure import pairs, runner, to_rows
from specdec_trees.measure.decoding import Decoding
from specdec_trees.measure.preemption import STATUS
from specdec_trees.results import progress
from specdec_trees.results.identity import identity
from specdec_trees.results.rows import METHOD
from specdec_trees.results.store import Store, StoreError

NAME = "smoke"
"""An artifact's name, so that `specdec_trees.status` has a line for it."""
SHORT = ("pair=tiny", "dataset=mini", "limit=2", "decoding.max_new_tokens=6", "runtime.warmup_conversations=0")
DRAFTERS = (("drafter=chain4",), ("drafter=opt_tree", "drafter.n=4"), ("drafter=prompt_lookup",))
SWEPT = [(*drafter, f"seed={seed}") for drafter in DRAFTERS for seed in range(2)]
KILL, TERM, TWICE, FULL, READ_ONLY, CLOCK, NO_LOCKS = (
    *("SIGKILL", "SIGTERM", "two at once", "full disk", "read-only folder", "clock jumps", "flock refused"),
)
ODDS = {KILL: 60, TERM: 8, TWICE: 12, FULL: 8, READ_ONLY: 3, CLOCK: 6, NO_LOCKS: 3}
DISK_KB, CRASHED = 2048, 70
LONGEST_S = 0.5
"""A sweep is hit within so many seconds."""


class Problems(Counter[str]):
    """What went wrong, counted; the first of each kind is shown."""

    def note(self, kind: str, what: object) -> None:
        if not self[kind]:
            print(f"{kind}: {what}", flush=True)
        self[kind] += 1


class Sweep:
    """The cells, what their rows must be, and a log of the prompts that were begun."""

    def __init__(self, folder: Path) -> None:
        made = [config(*SHORT, *own, f"name={NAME}") for own in SWEPT]
        self.cells, self.runtime = [cell_of(cfg) for cfg in made], runtime_of(made[0])
        plain = tuple({"pair": "tiny", "config": identity(scientific_config(cfg))} for cfg in made)
        self.plan = progress.Planned(overrides=(), pairs=("tiny",), cells=plain)
        self.folder, self.log = folder, folder / "begun"
        self.log.touch()
        pairs.loaded(self.cells[0].pair, self.runtime)
        self.run(folder / "truth", 0, contextlib.nullcontext())
        self.truth = timeless(folder / "truth", NAME)
        self.prompts = {tuple(line.split()) for line in self.log.read_text().splitlines()}
        assert set(self.truth["runs"]["status"]) == {"ok"}

    def run(self, root: Path, shift: int, circumstances: contextlib.AbstractContextManager[object]) -> int:
        """Run the cells in this process, from another one on; 0 if none was refused."""
        store, refused = Store(root, NAME), 0
        with circumstances, self._logged():
            for cell in [*self.cells[shift:], *self.cells[:shift]]:
                try:
                    refused += runner.run_cell(cell, self.runtime, store) == runner.FAILED
                except StoreError:  # a sentence, as `specdec_trees.run` tells it
                    refused += 1
        return int(refused > 0)

    def start(self, root: Path, shift: int = 0, circumstances: Callable[[], object] = contextlib.nullcontext) -> int:
        """The same in a process of its own; its id. Exit status CRASHED where it ended without a sentence."""
        sys.stdout.flush()
        if child := os.fork():
            return child
        code = CRASHED
        tqdm.set_lock(threading.RLock())  # the other is shared by all forks, and stays locked by one that is killed
        try:
            code = self.run(root, shift, circumstances())
        except SystemExit as asked:
            code = int(asked.code or 0)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)

    @contextlib.contextmanager
    def _logged(self) -> Iterator[None]:
        """Write down each prompt whose method's arm begins."""
        decode, log = Decoding.decode, os.open(self.log, os.O_WRONLY | os.O_APPEND)

        def logged(own: Decoding, turn, arm, *rest, **more):
            if arm == METHOD and not (rest or more):
                os.write(log, f"{own.cell.run_id} {turn.conversation.id} {turn.number}\n".encode())
            return decode(own, turn, arm, *rest, **more)

        Decoding.decode = logged
        try:
            yield
        finally:
            Decoding.decode = decode
            os.close(log)


class Disk:
    """Where results lie: a tmpfs of its own where that can be had, which can be filled and made read-only."""

    def __init__(self, path: Path) -> None:
        self.path, self.own = path, False
        path.mkdir()
        options = ("-t", "tmpfs", "-o", f"size={DISK_KB}k", "tmpfs", str(path))
        self.own = (
            os.geteuid() == 0 and subprocess.run(["mount", *options], check=False, capture_output=True).returncode == 0
        )

    @contextlib.contextmanager
    def full(self, left: int) -> Iterator[None]:
        """Fill it up to so many bytes."""
        filler, free = self.path / "filler", os.statvfs(self.path)
        filler.write_bytes(bytes(max(free.f_bavail * free.f_frsize - left, 0)))
        try:
            yield
        finally:
            filler.unlink()

    @contextlib.contextmanager
    def read_only(self) -> Iterator[None]:
        """Let nobody write."""
        subprocess.run(["mount", "-o", "remount,ro", self.path], check=True)
        try:
            yield
        finally:
            subprocess.run(["mount", "-o", "remount,rw", self.path], check=True)

    def close(self) -> None:
        if self.own:
            subprocess.run(["umount", self.path], check=True)
        shutil.rmtree(self.path)


@contextlib.contextmanager
def jumping_clock() -> Iterator[None]:
    """Whoever asks for the time is told of another year each time."""

    class Jumping(datetime):
        @classmethod
        def now(cls, tz=None):
            return datetime.now(UTC) + timedelta(days=random.uniform(-4000, 4000))

    clock, to_rows.datetime, time.time = time.time, Jumping, lambda: clock() + random.uniform(-1e8, 1e8)
    yield


@contextlib.contextmanager
def no_locks() -> Iterator[None]:
    """A file system that refuses flock."""

    def refuse(*_: object) -> None:
        raise OSError(random.choice([errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS]), "flock")

    fcntl.flock = refuse
    yield


class Torture:
    """Blow after blow on one results folder after another."""

    def __init__(self, sweep: Sweep, seed: int) -> None:
        self.sweep, self.dice, self.problems = sweep, random.Random(seed), Problems()
        self.blows, self.kills, self.ended, self.again, self.number = Counter[str](), 0, 0, 0, 0
        self._fresh()

    def blow(self) -> None:
        """One of those that can be had here, and what must hold behind it."""
        kinds = [kind for kind in ODDS if self.disk.own or kind not in (FULL, READ_ONLY)]
        (kind,) = self.dice.choices(kinds, [ODDS[kind] for kind in kinds])
        self.blows[kind] += 1
        self._strike(kind)
        self._check(kind)
        if len(self.finished) == len(self.sweep.cells):
            self._whole()

    def _strike(self, kind: str) -> None:
        root, shift = self.disk.path, self.dice.randrange(len(self.sweep.cells))
        if kind in (KILL, TERM):
            self._end(self.sweep.start(root, shift), signal.SIGTERM if kind == TERM else signal.SIGKILL)
        elif kind == TWICE:
            both = [self.sweep.start(root, place) for place in (shift, self.dice.randrange(len(self.sweep.cells)))]
            for child in both:
                self._end(child, signal.SIGKILL)
        elif kind == CLOCK:
            self._end(self.sweep.start(root, shift, jumping_clock), signal.SIGKILL)
        elif kind == NO_LOCKS:
            self._refused([self.sweep.start(root, place, no_locks) for place in (0, 0)])
        elif kind == READ_ONLY:
            with self.disk.read_only():
                self._refused([self.sweep.start(root, shift)])
        else:
            with self.disk.full(self.dice.choice([0, 4096, 16384, 65536])):
                before = self._begun()
                self._ended(self.sweep.start(root, shift))
                self.lost_to_disk += min(len(self.sweep.cells), len(self._begun()) - len(before))

    def _end(self, child: int, sent: signal.Signals) -> None:
        """Hit it at a random moment, with a look at the status before, as users have it."""
        time.sleep(self.dice.uniform(0, LONGEST_S))
        if not self.dice.randrange(4):
            self._line()
        os.kill(child, sent)
        code = self._ended(child)
        self.kills += code == -signal.SIGKILL
        self.hits += code == -signal.SIGKILL
        if code not in (0, 1, -sent, STATUS):
            self.problems.note("ended oddly", code)

    def _ended(self, child: int) -> int:
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if code == CRASHED:
            self.problems.note("ended without a sentence", f"sweep {child}")
        return code

    def _refused(self, children: Sequence[int]) -> None:
        """They must end with sentences and begin nothing."""
        before = self._begun()
        if any(self._ended(child) != 1 for child in children) and len(self.finished) < len(self.sweep.cells):
            self.problems.note("not refused", children)
        if self._begun() != before:
            self.problems.note("begun all the same", self._begun()[len(before) :])

    def _check(self, kind: str) -> None:
        """What holds whatever happened: all can be read, what was finished still is, and the status says so."""
        if (there := stamps(self.disk.path)) != self.there:  # else a file is as it was when it was last read
            self.there = there
            self._check_rows(kind)
        wanted = self._wanted_line(len(self.finished), self.failed)
        if not (line := self._line()).startswith(wanted):
            self.problems.note("wrong status", f"{line} in place of {wanted} behind {kind}")

    def _check_rows(self, kind: str) -> None:
        store = Store(self.disk.path, NAME)
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            tables = {table: store.read(table) for table in ("runs", "prompts", "steps")}
        for warning in said:
            self.problems.note("unreadable", warning.message)
        runs = tables["runs"]
        ok = {run: self._bytes(run) for run in runs.loc[runs["status"] == "ok", "run_id"]}
        for run, before in self.finished.items():
            if ok.get(run) != before:
                self.problems.note("lost", f"cell {run} behind {kind}")
        for run in ok.keys() - self.finished.keys():
            for table in ("prompts", "steps"):
                own, wanted = ((rows["run_id"] == run).sum() for rows in (tables[table], self.sweep.truth[table]))
                if own != wanted:
                    self.problems.note("lost" if own < wanted else "doubled", f"{table} of {run} behind {kind}")
        self.finished = ok
        if len(runs) != runs["run_id"].nunique():
            self.problems.note("doubled", f"runs behind {kind}")
        self.failed = int((runs["status"] == "failed").sum())

    def _wanted_line(self, ok: int, failed: int) -> str:
        """What `specdec_trees.status` must say while nothing runs."""
        missing = len(self.sweep.cells) - ok - failed
        state = "failed" if failed else "missing" if not ok else "partly" if missing else "done"
        counts = {"failed": failed, "missing": missing}
        parts = [f"{ok} of {len(self.sweep.cells)}", *(f"{count} {name}" for name, count in counts.items() if count)]
        return f"{state}: {', '.join(parts)}"

    def _line(self) -> str:
        first = next(status.lines(self.disk.path))
        return first.removeprefix(f"{NAME}  ")

    def _whole(self) -> None:
        """The sweep has ended: its rows are the truth, and no kill cost more than the prompt at hand."""
        try:
            assert_same(self.sweep.truth, timeless(self.disk.path, NAME))
        except AssertionError as differ:
            self.problems.note("other rows", differ)
        begun = self._begun()
        again = len(begun) - len(self.sweep.prompts)
        if {tuple(line.split()) for line in begun} != self.sweep.prompts:
            self.problems.note("lost", "prompts that were never decoded")
        if again > self.hits + self.lost_to_disk:
            self.problems.note("decoded again", f"{again} prompts after {self.hits} kills")
        self.ended, self.again = self.ended + 1, self.again + again
        self.disk.close()
        self._fresh()

    def _fresh(self) -> None:
        self.number += 1
        self.disk = Disk(self.sweep.folder / f"results{self.number}")
        self.finished: dict[str, tuple[bytes, ...]] = {}
        self.hits = self.lost_to_disk = self.failed = 0
        self.there: dict[str, int] = {}
        self.sweep.log.write_text("")
        (self.disk.path / NAME).mkdir()
        self.sweep.plan.write(self.disk.path / NAME)

    def _begun(self) -> list[str]:
        return self.sweep.log.read_text().splitlines()

    def _bytes(self, run: str) -> tuple[bytes, ...]:
        store = Store(self.disk.path, NAME)
        paths = [store.path(table, run) for table in ("runs", "prompts", "steps")]
        return tuple(path.read_bytes() if path.exists() else b"" for path in paths)


def main(arguments: Sequence[str] | None = None) -> int:
    """0 if nothing went wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=1000, help="processes that end by SIGKILL (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=None, help="of what happens when; default: the clock")
    given = parser.parse_args(arguments)
    seed = time.time_ns() % 10**6 if given.seed is None else given.seed
    logging.disable(logging.CRITICAL)
    torch.set_num_threads(1)
    status.ARTIFACTS = {NAME: status.ARTIFACTS[NAME]}  # the others take a second, and have no rows
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="torture-") as folder:
        torture = Torture(Sweep(Path(folder)), seed)
        try:
            while torture.kills < given.kills and not torture.problems:
                torture.blow()
                if sum(torture.blows.values()) % 100 == 0:
                    print(f"{torture.kills} kills, {torture.ended} sweeps ended", flush=True)
        finally:
            torture.disk.close()
    seconds, problems = time.monotonic() - start, torture.problems
    print(f"{torture.kills} kills in {seconds:.0f} s ({seconds / max(torture.kills, 1):.2f} s each), seed {seed}")
    print(", ".join(f"{count} x {kind}" for kind, count in torture.blows.items()))
    print(f"{torture.ended} sweeps of {len(SWEPT)} cells ended; {torture.again} prompts were begun again")
    print(", ".join(f"{problems[kind]} {kind}" for kind in ("lost", "doubled", "unreadable", "wrong status")))
    for kind, count in problems.items():
        print(f"{count} {kind}")
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main())
