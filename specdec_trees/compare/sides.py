"""The two sides of a comparison: a run by its id, an experiment's folder, or a folder of several experiments."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from pathlib import Path

import pandas as pd

from specdec_trees.results import failures, store
from specdec_trees.results.rows import METHOD
from specdec_trees.statistics.aggregates import STEP_COLUMNS

_RUN_ID = re.compile(r"[0-9a-f]{4,12}")


class ComparisonError(Exception):
    """There is nothing to compare; the message is a sentence that says why."""


@dataclass(frozen=True, slots=True)
class Run:
    """A run with its rows; `experiment` is its folder's path below the side's folder, "" if that is the side's own."""

    experiment: str
    row: pd.Series
    prompts: pd.DataFrame
    steps: pd.DataFrame

    @property
    def run_id(self) -> str:
        """The run's."""
        return str(self.row["run_id"])

    @property
    def ok(self) -> bool:
        """Whether it ended well."""
        return bool(self.row["status"] == "ok")

    @property
    def decoded(self) -> pd.DataFrame:
        """The turns of the method that ended well."""
        rows = self.prompts
        return rows[(rows["arm"] == METHOD) & (rows["status"] == "ok")]


@dataclass(frozen=True, slots=True)
class Side:
    """What was found under a name that was asked for; `kind` is `run`, `experiment` or `root`."""

    name: str
    kind: str
    runs: tuple[Run, ...]
    notes: tuple[str, ...] = ()

    @property
    def experiments(self) -> list[str]:
        """The experiments it holds."""
        return list(dict.fromkeys(run.experiment for run in self.runs))


def find(name: str, results: Path) -> Side:
    """The side of this name: a folder, a run id (or the start of one) below `results`, or `<folder>/<run id>`.

    ComparisonError if there is none, or more than one.
    """
    path = Path(name)
    if path.is_dir() or store.located(path)[1]:
        return _folder(name, path)
    root = path.parent if len(path.parts) > 1 else results
    known = root.is_dir() or store.located(root)[1]
    if not _RUN_ID.fullmatch(path.name) or not known or str(root) == path.anchor:
        where = "" if root is not results else f" in {results}"
        raise ComparisonError(
            f"{name} is neither a folder of results nor the id of a run{where} (12 hex digits, or its first 4)"
        )
    return _run(name, path.name, root)


def _folder(name: str, path: Path) -> Side:
    """Of runs of the same cell the newest counts, as in all reports."""
    experiments = _experiments(path)
    alone = "" in experiments
    runs = tuple(run for name, one in experiments.items() if not (alone and name) for run in _loaded(one, name))
    if not runs:
        raise ComparisonError(f"there are no runs in {name}; give an experiment's folder, or one that holds several")
    return Side(name, "experiment" if alone else "root", runs)


def _loaded(of: store.Store, experiment: str) -> Iterator[Run]:
    results = store.load(of.root, of.experiment, only={"steps": STEP_COLUMNS})
    prompts, steps = (dict(list(rows.groupby("run_id"))) for rows in (results.prompts, results.steps))
    for _, row in results.runs.iterrows():
        name = row["run_id"]
        yield Run(experiment, row, prompts.get(name, results.prompts[:0]), steps.get(name, results.steps[:0]))


def _run(name: str, start: str, root: Path) -> Side:
    """One run; of several experiments that hold it the one in which it was run last counts."""
    experiments = _experiments(root)
    cells = {name: one.rows("runs").ids() for name, one in experiments.items()}
    ids = sorted({run_id for run_ids in cells.values() for run_id in run_ids})
    matches = [one for one in ids if one.startswith(start)]
    if len(matches) > 1:
        raise ComparisonError(f"{start} is the start of {len(matches)} run ids: {_listed(matches)}; give more digits")
    if not matches:
        near = sorted(ids, key=lambda one: -SequenceMatcher(None, start, one[: len(start)]).ratio())[:3]
        raise ComparisonError(
            f"there is no run {start} in {root}; " + (f"the nearest ids are {_listed(near)}" if near else "it has none")
        )
    holders = [name for name, run_ids in cells.items() if matches[0] in run_ids]
    runs = [run for holder in holders for run in _read(experiments[holder], holder or ".", matches[0])]
    if not runs:
        raise ComparisonError(f"the file of run {matches[0]} in {root} cannot be read; run its cell again")
    latest = max(runs, key=lambda run: str(run.row["created_utc"]))
    others = [run.experiment for run in runs if run is not latest]
    said = f"{matches[0]} is also in {', '.join(others)}; the rows of {latest.experiment}, the newest, are taken."
    return Side(name, "run", (latest,), (said,) if others else ())


def _read(of: store.Store, experiment: str, run_id: str) -> Iterator[Run]:
    runs, prompts = (of.read(table, [run_id]) for table in ("runs", "prompts"))
    steps = of.read("steps", [run_id], STEP_COLUMNS)
    for _, row in runs.iterrows():
        yield Run(experiment, row, failures.whole(prompts, prompts), failures.whole(steps, prompts))


def _experiments(path: Path) -> dict[str, store.Store]:
    """Those with runs that a path holds, by their names below it; "" is the path itself."""
    root, name = store.located(path)
    known = {one.experiment: one for one in store.experiments(root, "runs")}
    if not name:
        return {"" if key == "." else key: one for key, one in known.items()}
    below = {key.removeprefix(name): one for key, one in known.items() if f"{key}/".startswith(f"{name}/")}
    return {key.removeprefix("/"): one for key, one in below.items()}


def _listed(names: Sequence[str], most: int = 6) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
