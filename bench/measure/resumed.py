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

from bench.measure import provenance
from bench.measure.cell import Cell, Runtime
from bench.measure.preemption import Preempted, Stop
from bench.measure.to_rows import Outcome, Rows
from bench.prompts.conversations import Conversation, labels_fingerprint
from bench.results.partial import Begun, Entry, Partial
from bench.results.roles import Role, columns
from bench.results.rows import RECORDED, RunRow
from bench.results.store import Store
from specdec_core.models.ranks import agreed
from specdec_core.openmp import SPINS

log = logging.getLogger(__name__)
LOADED = columns(RunRow, Role.LOADED)
"""What is known of weights and prompts before the first token is decoded."""


def header(
    cell: Cell, runtime: Runtime, outcome: Outcome, like: Mapping[str, Any], conversations: Sequence[Conversation]
) -> dict[str, Any]:
    """What the rows of a start must share with those of the others: code, machine, models, prompts, what is recorded.

    `like` is what rows of other experiments must share to be taken over. A revision whose checkout is dirty says
    nothing of the code, which has a digest of its own.
    """
    found = [name for name in (*LOADED, "dtype", "attention", "baseline_of") if hasattr(outcome, name)]
    return {
        "run_id": cell.run_id,
        **like,
        "code_sha256": code_sha256(),
        **{name: getattr(outcome, name) for name in found},
        "labels_sha256": labels_fingerprint(conversations),
        "baseline": runtime.baseline,
        "recorded": [table for table in RECORDED if getattr(runtime, f"record_{table}")],
        "case_study": runtime.case_study,
    }


@functools.cache
def code_sha256() -> str:
    """Of the Python files of both packages, as they were when it was first asked."""
    root = Path(__file__).resolve().parents[2]
    digest = hashlib.sha256()
    for path in sorted(path for package in ("bench", "specdec_core") for path in (root / package).rglob("*.py")):
        digest.update(f"{path.relative_to(root)}\n".encode() + path.read_bytes())
    return digest.hexdigest()


class Kept:
    """The rows of a cell over all its starts, of which this is the last one."""

    def __init__(self, cell: Cell, runtime: Runtime, store: Store, rows: Rows, of: Mapping[str, Any]) -> None:
        """Fill `rows` with those of the earlier starts, unless they are of something else, and note this start."""
        self._partial, self._rows = Partial(store.folder, cell.run_id), rows
        begun = agreed(lambda: _continued(self._partial, of, cell, runtime))
        entries = begun.entries if begun else []
        for entry in entries:
            for table, found in entry.rows.items():
                getattr(rows, table).extend(found)
        self._ended = {entry.prompt_id for entry in entries if entry.turn is None}
        self._loads = [start[-1].facts for start in begun.starts if start] if begun else []
        self.missed = any(facts.get("missed") for facts in self._loads)
        rows.start = 1 + (len(begun.starts) if begun else 0)
        if begun:
            log.info("%s: start %d goes on behind %d prompts", cell.label, rows.start, len(entries) - len(self._ended))
        agreed(lambda: self._partial.begin(of, begun))
        self._before, self._written = provenance.cpu_times(), self._lengths()

    def has_ended(self, conversation: Conversation) -> bool:
        """Whether a conversation was decoded to its end."""
        return conversation.id in self._ended

    def keep(self, prompt_id: str, turn: int | None, stop: Stop, *, missed: bool) -> None:
        """Write the rows that are new; Preempted then, where the process was asked to end. `missed`: graphs were."""
        lengths = self._lengths()
        new = {table: getattr(self._rows, table)[self._written[table] :] for table in lengths}
        entry = Entry(prompt_id, turn, new, {**self._load(), "missed": missed})
        self._written = lengths

        def written() -> bool:
            self._partial.add(entry)
            return stop.asked

        if agreed(written):
            raise Preempted

    @property
    def other_load(self) -> float | None:
        """Cores that others kept busy while prompts were decoded, in any start; None where one could not tell."""
        every = [*self._loads, self._load()]
        if any(facts["other_load"] is None for facts in every):
            return None
        total = sum(facts["wall_s"] for facts in every)
        return sum(facts["other_load"] * facts["wall_s"] for facts in every) / total if total else None

    def _load(self) -> dict[str, Any]:
        now = provenance.cpu_times()
        wall_s = now.wall_s - self._before.wall_s if now and self._before else 0.0
        return {"other_load": provenance.other_load(self._before, now), "wall_s": wall_s}

    def _lengths(self) -> dict[str, int]:
        return {
            each.name: len(found) for each in fields(Rows) if isinstance(found := getattr(self._rows, each.name), list)
        }


def _continued(partial: Partial, of: Mapping[str, Any], cell: Cell, runtime: Runtime) -> Begun | None:
    """What is begun if it is of the same; says what is not.

    Threads that nobody chose are then those it began with. How they wait, if nobody said, is the machine's matter.
    """
    if runtime.force:
        return None
    if (begun := partial.read()) is None:
        if partial.path.is_file() and partial.path.stat().st_size:
            log.warning("%s: %s is damaged or of another version, and all is decoded anew", cell.label, partial.path)
        return None
    other = [name for name in of if begun.of.get(name) != of[name]]
    if {begun.of.get("wait_policy"), of.get("wait_policy")} <= {None, f"GOMP_SPINCOUNT={SPINS}"}:
        other = [name for name in other if name != "wait_policy"]
    if other == ["num_threads"] and not (runtime.num_threads or os.environ.get("OMP_NUM_THREADS")):
        torch.set_num_threads(begun.of["num_threads"])
        other = []
    if other:
        log.warning("%s: %s", cell.label, _dropped(begun, other, of))
        return None
    return begun


def _dropped(begun: Begun, other: Sequence[str], of: Mapping[str, Any]) -> str:
    count = sum(entry.turn is not None for entry in begun.entries)
    shown = ", ".join(f"{name} {begun.of.get(name)} then, {of[name]} now" for name in other)
    return f"{count} prompts of an earlier start are dropped and decoded anew, since they are of another state: {shown}"
