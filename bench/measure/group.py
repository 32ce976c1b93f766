"""Cells that decode the same prompts take turns: a conversation in all of them, then the next one in all.

Methods that are compared are so measured within seconds of each other, and the target decodes a prompt alone once for
all. Each conversation begins with another cell. A cell is a generator that stops behind each conversation.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Generator, Iterable, Iterator, Mapping

from tqdm import tqdm

from bench.measure import preemption
from bench.measure.cell_run import CellRun
from bench.measure.preemption import Stop
from bench.results.reuse import setting
from bench.results.rows import PromptRow

Way = Generator[tuple[int, str], None, str]
"""A cell on its way: it stops when it is warm and behind each conversation, with the number of all and how it stands.

It returns its status.
"""
Ended = str | Exception
"""A cell's status, or why it could not be measured."""


def grouped(runs: Iterable[CellRun]) -> Iterator[list[CellRun]]:
    """Runs whose configs differ in drafter and rule alone, once each; those begun before stand first in their group."""
    groups: list[list[CellRun]] = []
    for run in runs:
        group = next((group for group in groups if _alike(group[0], run)), None)
        if group is None:
            groups.append([run])
        elif run.run_id not in {one.run_id for one in group}:
            group.append(run)
    for group in groups:
        yield sorted(group, key=lambda run: not run.partial.path.is_file())


def _alike(run: CellRun, other: CellRun) -> bool:
    """Whether the target decodes the same prompts the same way in both."""
    same = (run.runtime, run.store.folder) == (other.runtime, other.store.folder)
    return same and setting(run.cell.config) == setting(other.cell.config)


class Group:
    """What cells share that are measured together."""

    def __init__(self) -> None:
        self.stop = Stop()
        self.baselines: dict[tuple[str, int], PromptRow] = {}
        """Turns of the present conversation as the target alone decoded them, by conversation and turn."""
        self.leader: str | None = None
        """The first cell that is decoded, by whose run id their baseline goes."""

    def leads(self, run_id: str) -> bool:
        """Whether it is the first cell that asks."""
        self.leader = self.leader or run_id
        return self.leader == run_id

    def run(self, ways: Mapping[str, Way], refusals: tuple[type[Exception], ...], label: str) -> dict[str, Ended]:
        """Take each cell to its end, by turns; of each run id its status, or which of the `refusals` ended it.

        What ends the process is passed on when all cells have heard of it. Without a `label` no progress is shown.
        """
        ended: dict[str, Ended] = {}
        try:
            self._by_turns(ways, refusals, label, ended)
        except (KeyboardInterrupt, SystemExit) as stop:
            for run_id in [run_id for run_id in ways if run_id not in ended]:
                with contextlib.suppress(KeyboardInterrupt, SystemExit):
                    ways[run_id].throw(stop)
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
                self.baselines.clear()
                first = place % len(left)
                for run_id in left[first:] + left[:first]:
                    advance(run_id)
                bar.set_postfix_str(stand[1], refresh=False)
                bar.update(place < stand[0])
