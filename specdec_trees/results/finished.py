"""Is a cell finished, and if not, why? The one answer for whoever runs, takes over, merges, counts or checks cells.

A finished cell has a `runs` row that says `ok`, of the weights that would be loaded now, and all rows asked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from specdec_trees.results import partial
from specdec_trees.results.store import OK, Store

BASELINE = "a baseline"
"""What a run lacks whose rows are there and that decoded nothing autoregressively."""
LIVE = "times"
"""What a run lacks that was replayed on a recording of the target."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a finished cell must have."""

    tables: Sequence[str] = ()
    """Tables beside prompts and steps."""
    baseline: bool = False
    live: bool = False
    """Decoded, not replayed."""
    weights: Mapping[str, str] = field(default_factory=dict)
    """Revisions by column of `runs`, where they are known."""


@dataclass(frozen=True, slots=True)
class State:
    """How a cell ended, and what speaks against calling it finished."""

    status: str | None
    """`ok`, `oom`, `failed` or `interrupted`; None: it has no `runs` row."""
    other_weights: tuple[str, ...] = ()
    """A phrase for each model whose weights have changed since; empty unless the status is `ok`, like the next one."""
    lacks: tuple[str, ...] = ()
    """Tables that are asked for and not there, `LIVE` or `BASELINE`."""

    @property
    def finished(self) -> bool:
        """Whether nothing is left to be measured."""
        return self.status == OK and not self.other_weights and not self.lacks


def state(store: Store, run_id: str, asked: Asked) -> State:
    """The state of a cell in an experiment."""
    row = store.row(run_id, only=("status", "recording", "autoregressive_tokens_per_s", *asked.weights))
    return State(None) if row is None else state_of_row(store, row, asked)


def state_of_row(store: Store, row: Mapping[Any, Any], asked: Asked) -> State:
    """The same, for a `runs` row that was read before; of other tables the footers alone are read."""
    status = str(row["status"])
    if status != OK:
        return State(status)
    lacks = store.lacking(row["run_id"], asked.tables)
    if asked.live and not pd.isna(row["recording"]):
        lacks.append(LIVE)
    if asked.baseline and pd.isna(row["autoregressive_tokens_per_s"]):
        lacks.append(BASELINE)
    return State(status, tuple(_changes(row, asked.weights)), tuple(lacks))


def unfinished(root: Path, *others: Path) -> list[tuple[str, str]]:
    """Experiment and run id of cells that were begun below `root`, and ended well neither there nor in the others."""
    return [
        (experiment, run_id)
        for experiment, run_id in partial.cells(root)
        if all(Store(folder, experiment).status(run_id) != OK for folder in (root, *others))
    ]


def _changes(row: Mapping[Any, Any], weights: Mapping[str, str]) -> Iterator[str]:
    """What differs from the weights of a row; what the row does not know is no difference."""
    for column, revision in weights.items():
        if not pd.isna(row[column]) and row[column] != revision:
            yield f"{column} {row[column]} then, {revision} now"
