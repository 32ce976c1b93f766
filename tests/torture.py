"""Sweeps that are killed at random moments, twice at once, on full and read-only disks, without locks: `make torture`.

After each blow `specdec_trees.status` must be right, and nothing lost, doubled or unreadable; when a sweep has ended at
last, its rows must be those of one that ran through. Reports and comparisons are killed too: each file is then whole or
not there. torch and the pair are loaded once, and all that is killed is a fork, so that a kill costs less than a
second. Disks need root: each results folder then lies on a small tmpfs of its own.

A process without memory ends in two ways. The kernel kills it, which is SIGKILL at any moment. Or an allocation
fails: MemoryError is raised at a random moment.
"""

import argparse
import logging
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"  # a fork has no threads but its own

import torch
import transformers
from cells import stamps
from resumed import assert_same, timeless
from torture_disk import REQUEUED, Disk, jumping_clock, no_locks, no_memory, under_submitit
from torture_places import AIMS, COMPARE, LINGER_S, PLACES, REPORT, Place
from torture_sweep import CRASHED, NAME, Sweep, visible

from specdec_trees import status
from specdec_trees.measure import stalls
from specdec_trees.measure.preemption import STATUS
from specdec_trees.results.store import Store

KILL, TERM, TWICE, ONE_OF_TWO, TIME_LIMIT, MEMORY = (
    *("SIGKILL", "SIGTERM", "two at once", "one of two", "SIGUSR2 of a time limit", "MemoryError"),
)
FULL, READ_ONLY, CLOCK, NO_LOCKS, DRAWN = "full disk", "read-only folder", "clock jumps", "flock refused", "drawing"
ODDS = {KILL: 50, TERM: 6, TWICE: 8, ONE_OF_TWO: 6, TIME_LIMIT: 8, MEMORY: 8, FULL: 5, READ_ONLY: 2, CLOCK: 4}
ODDS |= {NO_LOCKS: 2, DRAWN: 16}
SIGNALS = {TERM: signal.SIGTERM, TIME_LIMIT: signal.SIGUSR2, MEMORY: signal.SIGUSR1}
"""Of what is not killed."""
AIMED = (KILL, TERM, TWICE, ONE_OF_TWO, TIME_LIMIT, MEMORY)
AROUND = {CLOCK: jumping_clock, NO_LOCKS: no_locks, MEMORY: no_memory, TIME_LIMIT: under_submitit}
ENDS = {signal.SIGKILL: -signal.SIGKILL, signal.SIGTERM: STATUS, signal.SIGUSR2: REQUEUED, signal.SIGUSR1: 1}
"""Exit status of what a signal ended."""
LONGEST_S, AIM_S = 0.5, 1.0
"""A sweep is hit within so many seconds, or behind as many as it takes to reach a place, but no more than these."""


class Problems(Counter[str]):
    """What went wrong, counted; the first of each kind is shown."""

    def note(self, kind: str, what: object) -> None:
        """One more."""
        if not self[kind]:
            print(f"{kind}: {what}", flush=True)
        self[kind] += 1


class Torture:
    """Blow after blow on one results folder after another."""

    def __init__(self, sweep: Sweep, seed: int) -> None:
        self.sweep, self.dice, self.problems = sweep, random.Random(seed), Problems()
        self.blows, self.ended, self.again, self.number = Counter[str](), 0, 0, 0
        self.kills, self.blamed = Counter[str](), Counter[str]()
        """By place: processes that were ended there, and problems behind that."""
        self.drawn_s = dict.fromkeys((REPORT, COMPARE), 1.0)
        self.sources = stamps(sweep.shown)
        self._fresh()

    def blow(self) -> None:
        """One of those that can be had here, and what must hold behind it."""
        kinds = [kind for kind in ODDS if self.disk.own or kind not in (FULL, READ_ONLY)]
        (kind,) = self.dice.choices(kinds, [ODDS[kind] for kind in kinds])
        self.blows[kind] += 1
        kills, problems = Counter(self.kills), self.problems.total()
        if kind == DRAWN:
            self._draw(self.dice.choice([REPORT, COMPARE]))
        else:
            self._strike(kind)
            self._check(kind)
            if len(self.finished) == len(self.sweep.configs):
                self._whole()
        where = [*(self.kills - kills)] or ["elsewhere"]
        self.blamed[where[0]] += self.problems.total() - problems

    def _strike(self, kind: str) -> None:
        if kind == READ_ONLY:
            with self.disk.read_only():
                self._refused([self._start(kind)[0]])
        elif kind == FULL:
            with self.disk.full(self.dice.choice([0, 4096, 16384, 65536])):
                before = self._begun()
                self._ended(self._start(kind)[0])
                self.lost_to_disk += min(len(self.sweep.configs), len(self._begun()) - len(before))
        elif kind == NO_LOCKS:
            self._refused([self._start(kind)[0] for _ in range(2)])
        else:
            children = [self._start(kind) for _ in range(1 + (kind in (TWICE, ONE_OF_TWO)))]
            spared = children[: kind == ONE_OF_TWO]
            for child, place in children[len(spared) :]:
                self._end(child, place, SIGNALS.get(kind, signal.SIGKILL))
            for child, _ in spared:
                self._ended(child)

    def _start(self, kind: str) -> tuple[int, Place]:
        """A sweep that is aimed at in one of its places, or not."""
        shift, cold = self.dice.randrange(len(self.sweep.configs)), not self.dice.randrange(6)
        place = Place(self.dice.choice([None, self.dice.choice(AIMS)]) if kind in AIMED else None)
        return self.sweep.start(self.disk.path, shift, place, AROUND.get(kind, nullcontext), cold=cold), place

    def _end(self, child: int, place: Place, sent: signal.Signals) -> None:
        """Hit it at a random moment, or one of those at its place, now and then behind a look at the status."""
        if place.aim:
            self._aim(child, place)
        else:
            time.sleep(self.dice.uniform(0, LONGEST_S))
        if not self.dice.randrange(4):
            self._line()
        where = place.now
        os.kill(child, sent)
        code = self._ended(child)
        where = place.now if sent == signal.SIGKILL else where
        if code == ENDS[sent]:
            self.kills[where] += 1
            self.hits += 1
        elif code not in (0, 1, -sent):
            self.problems.note("ended oddly", f"{code} behind {sent.name} in {where}")

    def _aim(self, child: int, place: Place) -> None:
        """Wait until it has been there some times, and a moment longer."""
        until, looked = time.monotonic() + AIM_S, os.WEXITED | os.WNOHANG | os.WNOWAIT
        for _ in range(self.dice.randrange(1, 4)):
            while place.now != place.aim and time.monotonic() < until and not os.waitid(os.P_PID, child, looked):
                time.sleep(LINGER_S / 50)
            time.sleep(self.dice.uniform(0, LINGER_S / 2))

    def _draw(self, kind: str) -> None:
        """Kill a report or a comparison, or let it end; what it leaves is whole."""
        out = self.sweep.folder / "drawn" / kind
        if not self.dice.randrange(4):
            shutil.rmtree(out, ignore_errors=True)
        begin = time.monotonic()
        child = self.sweep.draw(kind, out)
        if self.dice.randrange(6):
            time.sleep(self.dice.uniform(0, self.drawn_s[kind]))
            os.kill(child, signal.SIGKILL)
        code = self._ended(child)
        left, wanted = visible(out), self.sweep.written[kind]
        if code == -signal.SIGKILL:
            self.kills[kind] += 1
        elif left != wanted:
            self.problems.note("other files", f"{kind}: {sorted(left)}")
        else:
            self.drawn_s[kind] = time.monotonic() - begin
        for name in left:
            if left[name] != wanted.get(name):
                self.problems.note("half written", f"{name} of {kind}")
        if stamps(self.sweep.shown) != self.sources:
            self.problems.note("results touched", kind)

    def _ended(self, child: int) -> int:
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if code == CRASHED:
            self.problems.note("ended without a sentence", f"process {child}")
        return code

    def _refused(self, children: Sequence[int]) -> None:
        """They must end with sentences and begin nothing."""
        before = self._begun()
        if any(self._ended(child) != 1 for child in children) and len(self.finished) < len(self.sweep.configs):
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
        self.failed = int(runs["status"].isin(["failed", "oom"]).sum())

    def _wanted_line(self, ok: int, failed: int) -> str:
        """What `specdec_trees.status` must say while nothing runs."""
        missing = len(self.sweep.configs) - ok - failed
        state = "failed" if failed else "missing" if not ok else "partly" if missing else "done"
        counts = {"failed": failed, "missing": missing}
        parts = [f"{ok} of {len(self.sweep.configs)}", *(f"{count} {name}" for name, count in counts.items() if count)]
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
    transformers.logging.disable_progress_bar()
    torch.set_num_threads(1)
    stalls.REPEATS = 0  # a busy machine would have turns decoded again
    status.ARTIFACTS = {NAME: status.ARTIFACTS[NAME]}  # the others take a second, and have no rows
    start, stopped = time.monotonic(), list[int]()
    signal.signal(signal.SIGINT, lambda number, _: stopped.append(number))  # behind the blow at hand
    with tempfile.TemporaryDirectory(prefix="torture-") as folder:
        torture = Torture(Sweep(Path(folder)), seed)
        try:
            while torture.kills.total() < given.kills and not (torture.problems or stopped):
                torture.blow()
                if torture.blows.total() % 100 == 0:
                    print(f"{torture.kills.total()} kills, {torture.ended} sweeps ended", flush=True)
        finally:
            torture.disk.close()
    print("\n".join(summary(torture, time.monotonic() - start, seed)))
    return int(bool(torture.problems))


def summary(torture: Torture, seconds: float, seed: int) -> Iterator[str]:
    """What was done, and a table: place, kills, problems behind them."""
    kills, problems = torture.kills, torture.problems
    yield f"{kills.total()} kills in {seconds:.0f} s ({seconds / max(kills.total(), 1):.2f} s each), seed {seed}"
    yield ", ".join(f"{count} x {kind}" for kind, count in torture.blows.items())
    cells = len(torture.sweep.configs)
    yield f"{torture.ended} sweeps of {cells} cells ended; {torture.again} prompts were begun again"
    yield ", ".join(f"{problems[kind]} {kind}" for kind in ("lost", "doubled", "unreadable", "wrong status"))
    yield from (f"{count} {kind}" for kind, count in problems.items())
    yield f"| {'place':<24} | kills | problems |\n|{'-' * 26}|------:|---------:|"
    for place in [*PLACES, *(torture.blamed.keys() - {*PLACES})]:
        yield f"| {place:<24} | {kills[place]:>5} | {torture.blamed[place]:>8} |"


if __name__ == "__main__":
    sys.exit(main())
