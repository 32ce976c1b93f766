"""Cells that decode the same prompts take turns: a conversation in all of them, then the next one in all.

Methods that are compared are so measured within seconds of each other. The target decodes a prompt alone twice, in the
first two cells, each for half of all: two speedups so know how far equal work lies apart. Where a baseline is shared,
since it takes hours, the first cell alone decodes it. A cell is a generator that stops behind each conversation.
"""

from __future__ import annotations

import itertools
import json
import logging
import math
from collections.abc import Collection, Generator, Iterable, Iterator, Mapping, Sequence

from tqdm import tqdm

from specdec_trees.measure import preemption
from specdec_trees.measure.cell_run import CellRun
from specdec_trees.measure.preemption import Stop
from specdec_trees.measure.stalls import Timed
from specdec_trees.results.reuse import setting
from specdec_trees.results.rows import PromptRow

log = logging.getLogger(__name__)
Way = Generator[tuple[int, str], None, str]
"""A cell on its way: it stops when it is warm and behind each conversation, with the number of all and how it stands.

It returns its status.
"""
Ended = str | Exception
"""A cell's status, or why it could not be measured."""
Book = dict[tuple[str, int], PromptRow]
"""Turns of the present conversation as the target alone decoded them, by conversation and number."""
BASELINES = 2
"""Cells of a group that decode the baseline: one would leave nothing to set it against."""


def grouped(runs: Iterable[CellRun]) -> Iterator[list[CellRun]]:
    """Runs whose configs differ in drafter and rule alone, once each; those begun before stand first in their group."""
    groups: dict[tuple[object, ...], dict[str, CellRun]] = {}
    for run in runs:
        same = json.dumps(setting(run.cell.config), sort_keys=True), repr(run.runtime), run.store.folder
        groups.setdefault(same, {}).setdefault(run.run_id, run)
    for group in groups.values():
        yield sorted(group.values(), key=lambda run: not run.partial.path.is_file())


class Group:
    """What cells share that are measured together."""

    def __init__(self, decoders: int = BASELINES) -> None:
        self.decoders = decoders
        """Cells that decode the baseline."""
        self.stop = Stop()
        self.fastest = math.inf
        """Seconds a token of the fastest arm of all, as their warm-ups tell."""
        self.names: list[str] = []
        """The run ids of those that are decoded, in order."""
        self._books: tuple[Book, ...] = tuple({} for _ in range(decoders))

    def join(self, run_id: str) -> Book:
        """Take a cell in, which is loaded and warm; where it finds, and leaves, its half's plain turns."""
        self.names.append(run_id)
        return self._books[(len(self.names) - 1) % self.decoders]

    @property
    def lends(self) -> bool:
        """Whether the cells that decode the baseline are there, so that another need not."""
        return len(self.names) >= self.decoders

    def leads(self, run_id: str) -> bool:
        """Whether it is the first cell."""
        return self.names[:1] == [run_id]

    def limit_s(self, arms: Mapping[str, Timed]) -> float:
        """What the fastest arm of all would take for this turn: all arms of a group lose as much before they repeat."""
        alone, tokens = len(self.names) < 2, max((one.tokens for one in arms.values()), default=0)
        return math.inf if alone or not tokens else self.fastest * tokens

    def run(self, ways: Mapping[str, Way], refusals: tuple[type[Exception], ...], label: str) -> dict[str, Ended]:
        """Take each cell to its end, by turns; of each run id its status, or which of the `refusals` ended it.

        What ends the process is passed on when all cells have heard of it. Without a `label` no progress is shown.
        """
        ended: dict[str, Ended] = {}
        try:
            self._by_turns(ways, refusals, label, ended)
        except (KeyboardInterrupt, SystemExit) as stop:
            for run_id in [run_id for run_id in ways if run_id not in ended]:
                try:
                    ways[run_id].throw(stop)
                except (KeyboardInterrupt, SystemExit):
                    pass
                except Exception as error:  # the others hear of it all the same
                    log.error("%s: what there is was not written: %s", run_id, error)
            raise
        finally:
            for way in ways.values():
                way.close()
        return {run_id: ended[run_id] for run_id in ways}

    def _by_turns(
        self, ways: Mapping[str, Way], refusals: tuple[type[Exception], ...], label: str, ended: dict[str, Ended]
    ) -> None:
        """Each cell until it is warm, then a conversation of each, until all have `ended`."""
        stand = 0, ""

        def advance(run_id: str) -> None:
            nonlocal stand
            try:
                stand = next(ways[run_id])
            except StopIteration as end:
                ended[run_id] = end.value
            except refusals as error:
                ended[run_id] = error

        for run_id in ways:
            advance(run_id)
        bar = tqdm(desc=label, total=stand[0], unit="conversation", disable=not (label and stand[0]))
        with preemption.awaited() as self.stop, bar:
            for place in itertools.count():
                if not (left := [run_id for run_id in ways if run_id not in ended]):
                    break
                for book in self._books:
                    book.clear()
                for run_id in in_turn(self.names, left, place, self.decoders):
                    advance(run_id)
                bar.set_postfix_str(stand[1], refresh=False)
                bar.update(place < stand[0])


def in_turn(names: Sequence[str], left: Collection[str], place: int, decoders: int = BASELINES) -> list[str]:
    """The order of a conversation among those left: the first of each half, the one or the other; the rest rotates."""
    halves = [[name for name in names[start::decoders] if name in left] for start in range(decoders)]
    first = [half[0] for half in halves if half]
    rest = [name for name in left if name not in first]
    at = place % max(len(rest), 1)
    return (first[::-1] if place % 2 else first) + rest[at:] + rest[:at]
