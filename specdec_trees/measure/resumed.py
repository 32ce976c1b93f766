"""Where a cell goes on that was killed or preempted: behind the last prompt that was decoded, in any earlier start.

A prompt (a turn, in both arms) is on the disk before the next one begins. So SIGTERM and Ctrl-C between prompts lose
nothing, and SIGKILL or a power cut no more than the prompt at hand. Every prompt and arm has a random stream of its
own, so that the tokens are those of a cell that ran through.
"""

from __future__ import annotations

import functools
import hashlib
import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch

from specdec_core.models import graphs
from specdec_core.models.ranks import agreed
from specdec_core.openmp import SPINS
from specdec_trees.measure import provenance
from specdec_trees.measure.cell_run import CellRun
from specdec_trees.measure.group import Group
from specdec_trees.measure.preemption import Preempted, Stop
from specdec_trees.measure.to_rows import Outcome, Rows
from specdec_trees.prompts.conversations import Conversation, labels_fingerprint
from specdec_trees.results.blocks import Blocks
from specdec_trees.results.partial import EarlierStarts, Entry
from specdec_trees.results.roles import Role, columns
from specdec_trees.results.rows import RunRow

log = logging.getLogger(__name__)
LOADED = columns(RunRow, Role.LOADED)
"""What is known of weights and prompts before the first token is decoded."""
END = None
"""In place of a turn's number: what is known at a conversation's end."""


def header(run: CellRun, outcome: Outcome, conversations: Sequence[Conversation]) -> dict[str, Any]:
    """What all starts of a cell must share: code, machine, models, prompts, and which tables are recorded.

    The revision of a checkout with changes says nothing of the code, which therefore has a digest of its own.
    """
    known = [name for name in (*LOADED, "dtype", "attention", "baseline_of", "recording") if hasattr(outcome, name)]
    return {
        "run_id": run.run_id,
        **run.machine,
        "code_sha256": code_sha256(),
        **{name: getattr(outcome, name) for name in known},
        "labels_sha256": labels_fingerprint(conversations),
        "baseline": run.runtime.baseline if outcome.recording is None else False,
        "recorded": run.runtime.instruments,
        "case_study": run.runtime.case_study,
    }


@functools.cache
def code_sha256() -> str:
    """Of the Python files of both packages, as they were when it was first asked."""
    root = Path(__file__).resolve().parents[2]
    digest = hashlib.sha256()
    for path in sorted(
        path for package in ("specdec_trees", "specdec_core") for path in (root / package).rglob("*.py")
    ):
        digest.update(f"{path.relative_to(root)}\n".encode() + path.read_bytes())
    return digest.hexdigest()


class Journal:
    """Saves a cell's rows prompt by prompt, and begins with those of its earlier starts."""

    def __init__(self, run: CellRun, rows: Rows, header: Mapping[str, Any], group: Group) -> None:
        """Fill `rows` with those of earlier starts, unless these had another header, and note this start."""
        self._partial, self._rows, self._group = run.partial, rows, group
        leads = group.leads(run.run_id)
        earlier = agreed(lambda: _resumable(run, header, leads=leads))
        starts, entries = (earlier.starts, earlier.entries) if earlier else ((), [])
        for entry in entries:
            for table, entry_rows in entry.rows.items():
                getattr(rows, table).extend(entry_rows)
        rows.settle()
        self._ended = {entry.prompt_id for entry in entries if entry.turn is END}
        self._loads = [start[-1].facts for start in starts if start]
        self.modes = {facts["graphs"] for facts in self._loads if facts.get("graphs")}
        """How forwards of all starts ran, in words of `models.graphs`."""
        rows.lender = next((facts["lender"] for facts in self._loads if facts.get("lender")), None)
        rows.start = 1 + len(starts)
        if earlier:
            log.info("%s: start %d goes on behind %d prompts", run.label, rows.start, len(entries) - len(self._ended))
        agreed(lambda: self._partial.begin(header, earlier))
        self._before, self._saved = provenance.cpu_times(), self._lengths()

    def has_ended(self, conversation: Conversation) -> bool:
        """Whether a conversation was decoded to its end."""
        return conversation.id in self._ended

    def save(self, prompt_id: str, turn: int | None, *, mode: str | None) -> None:
        """Save the rows that are new, of a turn or of a conversation's end; Preempted then, if a stop was asked for.

        `mode` is how the conversation's forwards ran.
        """
        lengths = self._lengths()
        new = {table: getattr(self._rows, table)[self._saved[table] :] for table in lengths}
        self.modes |= {mode} - {None}
        together = graphs.together(self.modes)
        entry = Entry(prompt_id, turn, new, {**self._load(), "graphs": together, "lender": self._rows.lender})
        self._saved = lengths
        self._rows.settle()

        def saved() -> bool:
            self._partial.add(entry)
            return self.stop.asked

        if agreed(saved):
            raise Preempted

    @property
    def stop(self) -> Stop:
        """Whether the process was asked to end."""
        return self._group.stop

    @property
    def other_load(self) -> float | None:
        """Cores that others kept busy while prompts were decoded, in any start; None where one could not tell."""
        loads = [*self._loads, self._load()]
        if any(load["other_load"] is None for load in loads):
            return None
        total = sum(load["wall_s"] for load in loads)
        return sum(load["other_load"] * load["wall_s"] for load in loads) / total if total else None

    def _load(self) -> dict[str, Any]:
        now = provenance.cpu_times()
        wall_s = now.wall_s - self._before.wall_s if now and self._before else 0.0
        return {"other_load": provenance.other_load(self._before, now), "wall_s": wall_s}

    def _lengths(self) -> dict[str, int]:
        tables = {field.name: getattr(self._rows, field.name) for field in fields(Rows)}
        return {name: len(rows) for name, rows in tables.items() if isinstance(rows, list | Blocks)}


def _resumable(run: CellRun, header: Mapping[str, Any], *, leads: bool) -> EarlierStarts | None:
    """The earlier starts if this one may go on behind them: their headers are equal. A warning says what differs.

    A number of threads that nobody chose is then theirs, where this cell `leads` those that are measured together. A
    wait policy that nobody chose may differ.
    """
    if run.runtime.force:
        return None
    path, earlier = run.partial.path, run.partial.read()
    if earlier is None:
        if path.is_file() and path.stat().st_size:
            log.warning("%s: %s is damaged or of another version, and all is decoded anew", run.label, path)
        return None
    differing = [name for name in header if earlier.header.get(name) != header[name]]
    if {earlier.header.get("wait_policy"), header.get("wait_policy")} <= {None, f"GOMP_SPINCOUNT={SPINS}"}:
        differing = [name for name in differing if name != "wait_policy"]
    if leads and differing == ["num_threads"] and not (run.runtime.num_threads or os.environ.get("OMP_NUM_THREADS")):
        torch.set_num_threads(earlier.header["num_threads"])
        differing = []
    if differing:
        log.warning("%s: %s", run.label, _dropped(earlier, differing, header))
        return None
    return earlier


def _dropped(earlier: EarlierStarts, differing: Sequence[str], header: Mapping[str, Any]) -> str:
    count = sum(entry.turn is not END for entry in earlier.entries)
    shown = ", ".join(f"{name} {earlier.header.get(name)} then, {header[name]} now" for name in differing)
    return f"{count} prompts of an earlier start are dropped and decoded anew, since they are of another state: {shown}"
