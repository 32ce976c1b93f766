"""Cells that another experiment of the same results folder has measured: the same `run_id` is the same cell."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from bench.results.identity import identity
from bench.results.parquet import write_table
from bench.results.rows import AUTOREGRESSIVE, RECORDED, PromptRow
from bench.results.store import Store, explained


def take_over(
    store: Store, run_id: str, like: Mapping[str, Any], *, baseline: bool, recorded: Sequence[str] = ()
) -> str:
    """Take a finished cell from another experiment of the same results; its name, "" where there is none.

    Its `runs` row must have the values of `like`: whoever measures now would have written the same. Without a revision,
    or with changes to it, nobody knows what code a row is of, and nothing is taken. It needs the baseline's arm where
    `baseline` is asked for, and the tables in `recorded` beside the usual ones. Only the `runs` row is written anew,
    for its experiment; other rows say nothing of it.
    """
    if not is_committed(like):
        return ""
    for folder in sorted(store.root.glob("**/runs")):
        other = Store(store.root, folder.parent.relative_to(store.root).as_posix())
        if not other.has("runs", run_id):
            continue
        runs = other.read("runs", [run_id])
        # a folder of other results below these ones holds experiments by other names than its rows say
        wanted = {**like, "status": "ok", "experiment": other.experiment}
        if runs.empty or any(_plain(runs[key].iloc[0]) != value for key, value in wanted.items()):
            continue
        lacks = baseline and runs["autoregressive_tokens_per_s"].isna().all()
        if not lacks and _copied(store, other, run_id, ("prompts", "steps", *recorded)):
            return other.experiment
    return ""


def is_committed(like: Mapping[str, Any]) -> bool:
    """Whether rows name the code that they are of."""
    return like["git_revision"] is not None and like["git_dirty"] is False


def lent_baseline(
    store: Store, config: Mapping[str, Any], like: Mapping[str, Any], first: str | None = None
) -> tuple[str | None, dict[str, PromptRow]]:
    """A finished run of the experiment in the same setting that has an autoregressive arm of its own, and its rows.

    The setting is all of a config but drafter and rule. By conversation, of first turns alone: later ones are asked
    behind the method's own answers. Of several the run `first`, if it is one. None and nothing where there is no such
    run, and where rows do not name their code.
    """
    if not is_committed(like):
        return None, {}
    wanted, runs = {**like, "status": "ok"}, store.read("runs")
    for _, run in runs.sort_values("run_id", key=lambda ids: ids != first, kind="stable").iterrows():
        same = _setting(json.loads(run["config"])) == _setting(config) and pd.isna(run["baseline_of"])
        if same and not any(_plain(run[key]) != value for key, value in wanted.items()):
            rows = store.read("prompts", [run["run_id"]])
            rows = rows[(rows["arm"] == AUTOREGRESSIVE) & (rows["turn"] == 0) & (rows["status"] == "ok")]
            if len(rows):
                records: Any = rows.to_dict("records")
                found = (PromptRow(**{key: _value(value) for key, value in row.items()}) for row in records)
                return str(run["run_id"]), {row.prompt_id: row for row in found}
    return None, {}


def _setting(config: Mapping[str, Any]) -> dict[str, Any]:
    return {axis: value for axis, value in identity(config).items() if axis not in ("drafter", "verifier")}


def _value(value: Any) -> Any:
    """As it was written: plain numbers and lists, None where it is missing."""
    return value.tolist() if isinstance(value, np.ndarray) else value if isinstance(value, list) else _plain(value)


def _copied(store: Store, other: Store, run_id: str, needed: Sequence[str]) -> bool:
    """Copy all rows of a cell, if those of the needed tables can be read."""
    tables = [*("prompts", "steps", *RECORDED, "judgements"), "runs"]
    found = {name: own[0] for name in tables if (own := other.rows(name).tables([run_id]))}
    if any(found.get(name) is None for name in (*needed, "runs")):
        return False
    store.forget(run_id)
    for name, table in found.items():
        if table is not None:
            changed = {"experiment": store.experiment} if name == "runs" else {}
            path = store.path(name, run_id)
            with explained(path.parent):
                path.parent.mkdir(parents=True, exist_ok=True)
                write_table(path, table, changed)
    return True


def _plain(value: Any) -> Any:
    """A missing value of a row is None, as it was when it was written."""
    return None if pd.isna(value) else value
