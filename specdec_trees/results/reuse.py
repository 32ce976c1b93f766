"""Cells that another experiment of the same results folder has measured: the same `run_id` is the same cell."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from specdec_trees.results.finished import BASELINE, LIVE, Asked, state_of_row
from specdec_trees.results.identity import identity
from specdec_trees.results.parquet import renamed, write_table
from specdec_trees.results.rows import AFTERWARDS, AUTOREGRESSIVE, RECORDED, PromptRow
from specdec_trees.results.store import OK, Store, experiments, explained


def take_over(store: Store, run_id: str, here: Mapping[str, Any], asked: Asked) -> str:
    """Copy a finished cell from another experiment of the same results; the experiment's name, "" if there is none.

    `here` are columns of `runs` as this process would write them, and the row must have the same: code, machine and
    weights. Nothing is taken unless the code is committed. Only the `runs` row names an experiment, and is changed.
    """
    if not is_committed(here):
        return ""
    for source in experiments(store.root, "runs"):
        if not source.has("runs", run_id):
            continue
        # a folder of other results below these ones holds experiments by other names than its rows say
        same = {**here, "experiment": source.experiment}
        for row in source.read("runs", [run_id]).to_dict("records"):
            state = state_of_row(source, row, asked)
            # tables that it lacks are left to `_copy`, which reads them, so that a warning names a damaged file
            usable = state.status == OK and not {BASELINE, LIVE} & {*state.lacks} and _equals(row, same)
            if usable and _copy(source, store, run_id, asked.tables):
                return source.experiment
    return ""


def is_committed(here: Mapping[str, Any]) -> bool:
    """Whether rows name the code that they are of."""
    return here["git_revision"] is not None and here["git_dirty"] is False


def shared_baseline(
    store: Store, config: Mapping[str, Any], here: Mapping[str, Any], preferred: str | None = None
) -> tuple[str | None, dict[str, PromptRow]]:
    """A run of the experiment that decoded the same prompts autoregressively, and these rows by conversation.

    It ended well, with the columns `here`, and its config differs in drafter and rule alone. Rows are of first turns,
    since later prompts contain the method's own answers. The `preferred` run is tried first. (None, {}) if there is no
    such run, or the code is not committed.
    """
    if not is_committed(here):
        return None, {}
    same = {**here, "status": OK}
    runs = store.read("runs", only=("run_id", "config", "baseline_of", *same))
    runs = runs.sort_values("run_id", key=lambda ids: ids != preferred, kind="stable")
    for run in runs[runs["baseline_of"].isna()].to_dict("records"):
        if _equals(run, same) and setting(json.loads(run["config"])) == setting(config):
            rows = _first_baseline_turns(store, run["run_id"])
            if rows:
                return run["run_id"], rows
    return None, {}


def _first_baseline_turns(store: Store, run_id: str) -> dict[str, PromptRow]:
    """First turns of a run that were decoded autoregressively, by conversation."""
    rows = store.read("prompts", [run_id])
    rows = rows[(rows["arm"] == AUTOREGRESSIVE) & (rows["turn"] == 0) & (rows["status"] == OK)]
    records: Any = rows.to_dict("records")
    return {row["prompt_id"]: PromptRow(**{key: _value(value) for key, value in row.items()}) for row in records}


def _equals(row: Mapping[Any, Any], columns: Mapping[str, Any]) -> bool:
    """Whether a row has these values, None where they are missing."""
    return all(_plain(row[name]) == value for name, value in columns.items())


def setting(config: Mapping[str, Any]) -> dict[str, Any]:
    """What makes a cell the same cell, but for its drafter and rule."""
    return {axis: value for axis, value in identity(config).items() if axis not in ("drafter", "verifier")}


def _value(value: Any) -> Any:
    """As it was written: plain numbers and lists, None where it is missing."""
    return value.tolist() if isinstance(value, np.ndarray) else value if isinstance(value, list) else _plain(value)


def _copy(source: Store, into: Store, run_id: str, asked: Sequence[str]) -> bool:
    """Copy all rows of a cell, if those of all tables that are asked for can be read; whether they were copied."""
    names = [*("prompts", "steps", *RECORDED, *AFTERWARDS), "runs"]
    tables = {name: next(source.rows(name).tables([run_id]), None) for name in names}
    if any(tables.get(name) is None for name in ("prompts", "steps", *asked, "runs")):
        return False
    into.forget(run_id)
    for name, table in tables.items():
        if table is not None:
            path = into.path(name, run_id)
            with explained(path.parent):
                path.parent.mkdir(parents=True, exist_ok=True)
                write_table(path, renamed(table, source.experiment, into.experiment))
    return True


def _plain(value: Any) -> Any:
    """A missing value of a row is None, as it was when it was written."""
    return None if pd.isna(value) else value
