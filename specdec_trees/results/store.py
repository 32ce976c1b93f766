"""Results on disk: `<root>/<experiment>/<table>/run_id=<id>.parquet`, one file per cell and table, or packed.

Two jobs never share a file. The `runs` file marks a cell as finished, so it is written last; rows of a cell without it
are not read by `load`.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import pandas as pd

from specdec_trees.results import failures, locks, pack, replays
from specdec_trees.results.blocks import Blocks
from specdec_trees.results.identity import canonical
from specdec_trees.results.pack import PackError, TableFolder
from specdec_trees.results.parquet import file_name, frame, hidden_name, hidden_names, names_in, write_rows
from specdec_trees.results.roles import Role, columns
from specdec_trees.results.rows import AFTERWARDS, RECORDED, SCHEMA_VERSION, TABLES, RunRow
from specdec_trees.results.rows import OK as OK

CELL = columns(RunRow, Role.SETTING, Role.OPTIONS, Role.METHOD)
"""Columns of `runs` that say which cell it is; of runs that differ elsewhere (prompts, device) a report takes one."""
BLOCK = columns(RunRow, Role.SETTING, Role.OPTIONS, Role.LOADED, Role.MACHINE)
"""Those in which runs agree whose methods are compared with each other."""

REFERENCE = "reference"
"""The folder in `results` of the committed results."""
_OF_PROMPTS = ("prompts", "steps", *RECORDED, "judgements")
"""Tables with rows of conversations."""


class StoreError(RuntimeError):
    """The results folder cannot be used; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class Results:
    """The tables of an experiment, for reports: one run of each cell and the rows that belong to it."""

    runs: pd.DataFrame
    prompts: pd.DataFrame
    steps: pd.DataFrame
    nodes: pd.DataFrame
    masks: pd.DataFrame
    variation: pd.DataFrame
    rules: pd.DataFrame
    quality: pd.DataFrame
    answers: pd.DataFrame
    judgements: pd.DataFrame
    predictions: pd.DataFrame
    latency: pd.DataFrame
    acceptance: pd.DataFrame
    growth: pd.DataFrame
    attention: pd.DataFrame
    decisions: pd.DataFrame
    failed: pd.DataFrame
    """Turns that could not be decoded, for which the tables of prompts lack whole conversations (`failures`)."""


def run_id(config: Mapping[str, Any]) -> str:
    """Name of a cell: 12 hex digits over its resolved scientific config (plain JSON values) and the schema version."""
    text = canonical({"config": dict(config), "schema_version": SCHEMA_VERSION})
    return hashlib.sha256(text.encode()).hexdigest()[:12]


class Store:
    """The results of one experiment."""

    def __init__(self, root: Path, experiment: str) -> None:
        self.root, self.experiment = Path(root), experiment
        self.folder = self.root / experiment

    def write(self, table: str, run_id: str, rows: Sequence[Any] | Blocks) -> None:
        """Write a cell's rows of a table, replacing in one stroke those that were there."""
        names = rows.column("run_id").unique().to_pylist() if isinstance(rows, Blocks) else (row.run_id for row in rows)
        strangers = {*names} - {run_id}
        if strangers:
            raise ValueError(f"Rows of {sorted(strangers)} do not belong into the file of run {run_id}.")
        path = self.path(table, run_id)
        with explained(path.parent):
            path.parent.mkdir(parents=True, exist_ok=True)
            write_rows(path, TABLES[table], rows)

    def read(self, table: str, run_ids: Iterable[str] | None = None, only: Sequence[str] | None = None) -> pd.DataFrame:
        """Rows of a table, of all cells or of some, with `only` these columns; hidden files are not looked at."""
        return frame(self.rows(table).tables(run_ids, only), TABLES[table], only)

    def row(self, run_id: str, only: Sequence[str] | None = None) -> dict[str, Any] | None:
        """A cell's row of `runs` as it was written, or `only` some of it; None if there is none."""
        tables = self.rows("runs").tables([run_id], only)
        return next((table.to_pylist()[-1] for table in tables if table), None)

    def status(self, run_id: str) -> str | None:
        """How a cell ended (`ok`, `oom`, `failed`, `interrupted`); None if it has not."""
        row = self.row(run_id)
        return None if row is None else str(row["status"])

    def has(self, table: str, run_id: str) -> bool:
        """Whether a cell has rows of a table, be they none."""
        return self.rows(table).has(run_id)

    def lacking(self, run_id: str, tables: Iterable[str] = ()) -> list[str]:
        """Which of a cell's prompts, steps and these tables are not there; of each file the footer alone is read."""
        return [table for table in ("prompts", "steps", *tables) if not self.rows(table).whole(run_id)]

    def forget(self, run_id: str) -> None:
        """Unmark a cell before its rows are replaced, so that a kill leaves no old mark or instrument on new rows.

        Whoever does so holds its lock. What kills have left of its files in the middle of writing goes as well.
        """
        with explained(self.folder):
            for table in ("runs", *RECORDED, *AFTERWARDS):
                self.rows(table).forget(run_id)
            for table in ("runs", "prompts", "steps", *RECORDED, *AFTERWARDS):
                path = self.path(table, run_id)
                for left in hidden_names(path.parent, path.name):
                    (path.parent / left).unlink(missing_ok=True)

    def check_idle(self) -> None:
        """Raise PackError while a cell runs."""
        if locks.held(self.folder):
            raise PackError(f"{self.experiment} is being run or graded; pack it when that has ended.")

    def pack(self) -> int:
        """Pack the tables; returns how many files went. PackError while a cell runs, or where a pack is unreadable."""
        self.check_idle()
        with explained(self.root):
            return pack.pack(self.root, [self.experiment])[self.experiment]

    @contextlib.contextmanager
    def lock(self, run_id: str, *, wait: bool = False, note: str = "") -> Iterator[None]:
        """Hold a cell while it runs; raises CellBusyError if another process does, or waits. Ask for `status` then."""
        with explained(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
            held = contextlib.ExitStack()
            held.enter_context(locks.lock(self.folder, run_id, wait=wait, note=note))
        with held:
            yield

    def check_writable(self) -> None:
        """Raise StoreError unless files can be made in the experiment's folder and in those of its tables."""
        _probe(self.folder)
        for table in TABLES:
            if (self.folder / table).exists():
                _probe(self.folder / table)

    def path(self, table: str, run_id: str) -> Path:
        """The file of a cell's rows of a table."""
        return self.folder / table / file_name(run_id)

    def rows(self, table: str) -> TableFolder:
        """Where the rows of a table lie."""
        return TableFolder(self.root, self.experiment, table)


def within(root: Path, pattern: str) -> list[Path]:
    """The paths of a folder of results, but for its `reference`: the committed results are a folder of their own."""
    return sorted(path for path in root.rglob(pattern) if path.relative_to(root).parts[0] != REFERENCE)


def experiments(root: Path, table: str | None = None) -> list[Store]:
    """Those that have rows below a folder, of one table if asked, by name."""
    tables = TABLES if table is None else (table,)
    folders = [folder for folder in _folders(root) if any(_has_rows(folder / name) for name in tables)]
    names = {folder.relative_to(root).as_posix() for folder in folders} | pack.experiments(root, tables)
    return [Store(root, name) for name in sorted(names)]


def _folders(root: Path) -> Iterator[Path]:
    """A folder of results and all below it, but for `reference` and links."""
    for place, names, _ in os.walk(root):
        yield Path(place)
        if Path(place) == root and REFERENCE in names:
            names.remove(REFERENCE)


def _has_rows(folder: Path) -> bool:
    return any(name.endswith(".parquet") for name in names_in(folder))


def located(path: Path) -> tuple[Path, str]:
    """The folder of results whose packed rows have an experiment, or several, of this path, and their name there.

    Others are looked for in the path itself, under the name "".
    """
    for root in path.parents:
        name = path.relative_to(root).as_posix()
        if any(f"{known}/".startswith(f"{name}/") for known in pack.experiments(root)):
            return root, name
    return path, ""


def at(folder: Path) -> Store:
    """The experiment of a folder, be it packed or not."""
    return Store(*located(folder))


def one_run(store: Store, run_id: str) -> Results:
    """The tables of a single run."""
    tables = {each.name: store.read(each.name, [run_id]) for each in fields(Results) if each.name in TABLES}
    counted, failed = failures.common(tables["runs"], {name: tables[name] for name in _OF_PROMPTS})
    return Results(**tables | counted, failed=failed)


def load(
    root: Path,
    experiment: str,
    pair: str | None = None,
    dataset: str | None = None,
    *,
    first: Collection[str] = (),
    only: Mapping[str, Sequence[str]] | None = None,
) -> Results:
    """Tables of an experiment, of one pair (or several, with commas) or dataset if asked.

    Of the runs of the same cell one counts: one that ended well before others, then one that was decoded before a
    replay, then one of `first`, then the newest. Replays add their rows of conversations that were not decoded, to all
    methods that are compared with each other or to none.
    Of a table that `only` names these columns are read.
    Forward times belong to a pair, not to a run: `latency` is filtered by the pair alone, `acceptance`, `growth` and
    `decisions` also by dataset. Times of attention belong to neither.
    """
    store = Store(root, experiment)
    latency = _where(store.read("latency"), pair=pair)
    runs, acceptance, growth, decisions = (
        _where(store.read(table), pair=pair, dataset=dataset) for table in ("runs", "acceptance", "growth", "decisions")
    )
    runs = runs.sort_values("created_utc", kind="stable", ignore_index=True)
    runs = runs.fillna({"node_order": "creation", "graphs": "eager", "ignore_eos": False})
    ok, replayed = runs["status"] == "ok", runs["recording"].notna()
    rank = 4 * ok + 2 * ~replayed + runs["run_id"].isin(list(first))
    spare = runs[ok & replayed]
    ranked = runs.loc[rank.sort_values(kind="stable").index].drop_duplicates(list(CELL), keep="last")
    runs = ranked.sort_index().reset_index(drop=True)

    def read(table: str, run_ids: Iterable[str]) -> pd.DataFrame:
        return store.read(table, run_ids, (only or {}).get(table))

    own = {table: read(table, runs["run_id"]) for table in _OF_PROMPTS}
    _without_repeated_paths(runs, own["prompts"], own["steps"])
    runs, own = replays.joined(runs, spare, own, CELL, BLOCK, read)
    own, failed = failures.common(runs, own)
    measured = {"latency": latency, "acceptance": acceptance, "growth": growth, "decisions": decisions}
    measured |= {"attention": store.read("attention"), "predictions": store.read("predictions", runs["run_id"])}
    return Results(runs=runs, **own, **measured, failed=failed)


def _without_repeated_paths(runs: pd.DataFrame, prompts: pd.DataFrame, steps: pd.DataFrame) -> None:
    """Take E(A) out of rows that count a path of independent draws as often as it was drawn, as all once did.

    They are of before the loop's wall time was kept.
    """
    timed = prompts.loc[prompts["wall_s"].notna(), "run_id"]
    old = runs["run_id"][(runs["draws"] == "iid") & ~runs["run_id"].isin(list(timed)) & runs["recording"].isna()]
    for rows in (runs, steps):
        rows.loc[rows["run_id"].isin(list(old)), "expected_acceptance"] = math.nan


def _where(frame: pd.DataFrame, **wanted: str | None) -> pd.DataFrame:
    for column, value in wanted.items():
        frame = frame if value is None else frame[frame[column].isin(value.split(","))].reset_index(drop=True)
    return frame


def _probe(folder: Path) -> None:
    with explained(folder):
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / hidden_name("probe")
        probe.touch(exist_ok=False)
        probe.unlink()


@contextlib.contextmanager
def explained(folder: Path) -> Iterator[None]:
    """Raise StoreError in place of an OSError of what is written below a folder."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or error
        raise StoreError(
            f"Results cannot be written to {folder} ({reason}); set results_dir to another folder."
        ) from error
