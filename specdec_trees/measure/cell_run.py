"""A cell on its way through this process: what is measured, how, and where its rows go. Its claim comes first."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch

from specdec_core.models.placement import resolve_device, resolve_dtype
from specdec_trees.measure import provenance, weights
from specdec_trees.measure.cell import Cell, Runtime
from specdec_trees.results import finished, reuse
from specdec_trees.results.finished import Asked
from specdec_trees.results.partial import Partial
from specdec_trees.results.roles import Role, columns
from specdec_trees.results.rows import RECORDED, PromptRow, RunRow
from specdec_trees.results.store import OK, Store

log = logging.getLogger(__name__)
MACHINE = columns(RunRow, Role.MACHINE)
"""What rows of another run must share with this process, if they are to stand for what it would measure."""


@dataclass(frozen=True)
class CellRun:
    """One cell, how it is to be run, and the store of its rows."""

    cell: Cell
    runtime: Runtime
    store: Store

    @property
    def run_id(self) -> str:
        """The cell's name, by which its rows, its lock and its partial file go."""
        return self.cell.run_id

    @property
    def label(self) -> str:
        """For progress bars and logs."""
        return self.cell.label

    @property
    def partial(self) -> Partial:
        """The file of rows that are decoded before the cell has ended."""
        return Partial(self.store.folder, self.run_id)

    @property
    def machine(self) -> dict[str, Any]:
        """The columns `MACHINE` of a run that is measured here and now."""
        device = resolve_device(self.runtime.device)
        dtype = str(resolve_dtype(self.runtime.dtype, torch.device(device))).removeprefix("torch.")
        here = provenance.collect(str(device), dtype, self.runtime.attention, self.runtime.placement)
        return {name: here[name] for name in MACHINE}

    @property
    def ended_well(self) -> bool:
        """Whether there is a `runs` row that says `ok`, be it enough for what is asked for or not."""
        return self.store.status(self.run_id) == OK

    def asked(self, **changes: Any) -> Asked:
        """What the cell's rows must have for it to count as finished."""
        live = not (self.runtime.replay and self.cell.recordable)
        asked = Asked(tables=self.runtime.instruments, baseline=live and bool(self.runtime.baseline), live=live)
        return replace(asked, **changes)

    def recording_as_before(self) -> CellRun:
        """The run that also records what a finished one did, since rows of all tables are replaced together."""
        if not self.store.has("runs", self.run_id):
            return self
        tables = [table for table in RECORDED if self.store.has(table, self.run_id)]
        flags: dict[str, Any] = {f"record_{table}": True for table in tables}
        return replace(self, runtime=replace(self.runtime, **flags))


def claim(run: CellRun, held: contextlib.ExitStack) -> bool:
    """Take the cell's lock; whether the cell is to be measured. CellBusyError if another process has the lock."""
    held.enter_context(run.store.lock(run.run_id, note=run.cell.pair.name))
    wanted = is_wanted(run)
    if wanted:
        run.store.check_writable()
    if wanted and not _is_taken_over(run):
        if not run.store.has("runs", run.run_id) and (before := weights.replaced(run.cell, run.store)):
            log.warning("%s: %s in the same files; measured anew", run.label, before)
        return True
    _drop_partial_rows(run)
    return False


def is_wanted(run: CellRun) -> bool:
    """Whether a cell is to be measured: it is not finished, or the runtime says that it is measured all the same."""
    row = run.store.row(run.run_id)
    if run.runtime.retry_failed:
        return row is not None and row["status"] != OK
    if run.runtime.force or row is None or row["status"] != OK:
        return True
    state = finished.state_of_row(run.store, row, run.asked(weights=weights.revisions(run.cell.pair)))
    if state.other_weights:
        changes = "; ".join(state.other_weights)
        log.warning("%s: run %s is of other weights and is measured anew: %s", run.label, run.run_id, changes)
    return not state.finished


def is_over(run: CellRun) -> bool:
    """Whether a cell has ended well with all that is asked for, which no lock is needed to know."""
    if run.runtime.force or run.runtime.retry_failed or run.partial.path.is_file():
        return False
    return finished.state(run.store, run.run_id, run.asked(weights=weights.revisions(run.cell.pair))).finished


def other_code(run: CellRun) -> str:
    """` by ..., where this is ...` if a finished run is of another revision, or either of uncommitted changes."""
    row = run.store.row(run.run_id, only=("git_revision", "git_dirty"))
    here, changed = provenance.own_git_state()
    if row is None or here is None or row["git_revision"] is None:
        return ""
    there, changed_there = row["git_revision"], bool(row["git_dirty"])
    if there == here and not changed and not changed_there:
        return ""
    states = ((there, changed_there), (here, changed))
    return " by {}, where this is {}".format(*(f"{code[:10]}{' with changes' * bool(dirty)}" for code, dirty in states))


def _is_taken_over(run: CellRun) -> bool:
    """Whether another experiment of the same results folder has measured the very same cell, and gave its rows."""
    runtime = run.runtime
    if runtime.force or runtime.retry_failed or runtime.case_study or run.ended_well:
        return False
    here = run.machine | weights.revisions(run.cell.pair)
    source = reuse.take_over(run.store, run.run_id, here, run.asked())
    if source:
        log.info("%s: rows taken over from %s, which runs the same cell", run.label, source)
    return bool(source)


def _drop_partial_rows(run: CellRun) -> None:
    """Remove the partial file of a finished cell, unless it is of a start that was asked for more than is stored."""
    if not run.partial.path.is_file() or not run.ended_well:
        return
    if earlier := run.partial.read():
        tables = {*run.runtime.instruments, *earlier.header.get("recorded", ())}
        baseline = bool(earlier.header.get("baseline", True))
        live = earlier.header.get("recording") is None
        revisions = weights.revisions(run.cell.pair)
        asked = run.asked(tables=sorted(tables), baseline=baseline, live=live, weights=revisions)
        if not finished.state(run.store, run.run_id, asked).finished:
            return
    run.partial.drop()


def decoded_before(run: CellRun) -> str:
    """What of a cell's times a replay would replace, in a clause; "" where there are none."""
    row = run.store.row(run.run_id)
    if row is not None and row["status"] == OK and row["recording"] is None:
        return "it was decoded, and its times would be lost"
    earlier = run.partial.read()
    if earlier and earlier.entries and earlier.header.get("recording") is None:
        return f"a start that decoded it has left {run.partial.path}; finish it without replay, or delete the file"
    return ""


def shared_baseline(run: CellRun, loaded: dict[str, Any]) -> tuple[str | None, Mapping[str, PromptRow]]:
    """A run whose baseline this one shares, and its rows by conversation; (None, {}) where it decodes its own.

    A start that goes on behind earlier ones uses the same baseline as they did. `loaded` are columns of `runs` about
    weights and prompts.
    """
    earlier, here = run.partial.read(), run.machine
    if not reuse.is_committed(here):
        log.warning("%s: no finished run lends it a baseline, since only committed code is lent one", run.label)
    before = earlier.header.get("baseline_of", "") if earlier else ""
    if before is None:
        return None, {}
    return reuse.shared_baseline(run.store, run.cell.config, here | loaded, before)
