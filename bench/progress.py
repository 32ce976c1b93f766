"""How far an artifact is in a results folder, from its files alone: what is planned, done, running, failed, missing.

A plan is written before anything runs (`Planned`, `<results>/<artifact>/plan.json`): the config of every cell, with
`ANY` for what is measured first, and how many other measurements there are. A cell is done if a row says `ok` whose
config is the planned one; it is running while its lock is held on this machine.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from bench.identity import identity
from bench.locks import held
from bench.parquet import replace_text
from bench.store import Store

ANY = "*"
"""Stands in a planned config for a value that is measured before the cell runs."""
FILE = "plan.json"
SWEEP = "sweep"
"""The lock that is held while an artifact is being reproduced."""
DONE, RUNNING, FAILED, PARTLY, MISSING = STATES = ("done", "running", "failed", "partly", "missing")


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """What an artifact will run: overrides of its experiment, its cells' configs, measurements by table."""

    overrides: tuple[str, ...]
    pairs: tuple[str, ...]
    cells: tuple[Mapping[str, Any], ...] = ()
    tables: tuple[str, ...] = ()
    """What its cells record beside the usual rows."""
    measures: Mapping[str, int] = field(default_factory=dict)
    case_study: bool = False

    def write(self, folder: Path) -> None:
        """Write it into an artifact's folder, which is made if needed."""
        folder.mkdir(parents=True, exist_ok=True)
        replace_text(folder / FILE, json.dumps(asdict(self), separators=(",", ":")))


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Counts of cells and other measurements; `planned` is None where no plan was written."""

    planned: int | None
    done: int
    failed: int
    running: int
    detail: str = ""
    """Of the first that failed: what went wrong."""

    @property
    def missing(self) -> int:
        """What is planned and has not ended, running ones left out."""
        return max((self.planned or 0) - self.done - self.failed - self.running, 0)

    @property
    def state(self) -> str:
        """One word for all."""
        if self.running:
            return RUNNING
        if self.failed:
            return FAILED
        if not self.done:
            return MISSING
        return PARTLY if self.missing else DONE


def words(found: Progress) -> str:
    """`partly: 4 of 6, 1 running, 1 missing`."""
    if found.planned is None:
        parts = [f"{found.done} ok"] * bool(found.done) + ["not planned"]
    else:
        parts = [f"{found.done} of {found.planned}"]
    counts = {"failed": found.failed, "running": found.running, "missing": found.missing}
    parts += [f"{count} {name}" for name, count in counts.items() if count]
    return f"{found.state}: {', '.join(parts)}" + (f" ({found.detail})" if found.detail else "")


def read_plan(folder: Path) -> Planned | None:
    """The plan in an artifact's folder; None if there is none that can be read."""
    try:
        plain = json.loads((folder / FILE).read_text(encoding="utf-8"))
        return Planned(
            overrides=tuple(plain["overrides"]),
            pairs=tuple(plain["pairs"]),
            cells=tuple(plain["cells"]),
            tables=tuple(plain["tables"]),
            case_study=plain["case_study"],
            measures=plain["measures"],
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None


def read(root: Path, artifact: str) -> Progress:
    """The progress of an artifact; without a plan all rows count that are there."""
    store, plan = Store(root, artifact), read_plan(root / artifact)
    runs = store.read("runs")
    if plan is None:
        ok = runs["status"] == "ok"
        return _counted(store, None, int(ok.sum()), runs[~ok])
    found = _by_identity(runs)
    rows = [row for cell in plan.cells if (row := _row_of(cell, found)) is not None]
    whole = [row for row in rows if all(store.has(table, row["run_id"]) for table in plan.tables)]
    ended = pd.DataFrame(whole, columns=runs.columns)
    ok = ended["status"] == "ok"
    measured = sum(min(count, _measured(store, table, plan.pairs)) for table, count in plan.measures.items())
    planned = len(plan.cells) + sum(plan.measures.values())
    return _counted(store, planned, int(ok.sum()) + measured, ended[~ok])


def _counted(store: Store, planned: int | None, done: int, failed: pd.DataFrame) -> Progress:
    now = held(store.folder)
    again = failed["run_id"].isin(now)
    errors = [str(error) for error in failed.loc[~again, "error"].dropna()]
    cells = len(now - {SWEEP}) or int(SWEEP in now)
    if planned is not None and done >= planned:
        cells = 0
    detail = errors[0].strip().splitlines()[-1] if errors else ""
    return Progress(planned=planned, done=done, failed=int((~again).sum()), running=cells, detail=detail)


def _by_identity(runs: pd.DataFrame) -> list[tuple[Mapping[str, Any], pd.Series]]:
    """The newest row first."""
    rows = [row for _, row in runs.sort_values("created_utc", ascending=False, kind="stable").iterrows()]
    configs = [(json.loads(row["config"]), row) for row in rows]
    return [(identity(config), row) for config, row in configs if "pair" in config]


def _row_of(cell: Mapping[str, Any], found: list[tuple[Mapping[str, Any], pd.Series]]) -> pd.Series | None:
    rows = [row for config, row in found if _same(cell, config)]
    return next((row for row in rows if row["status"] == "ok"), rows[0] if rows else None)


def _same(planned: Any, config: Any) -> bool:
    """Whether a config is the planned one, whatever was measured for it."""
    if planned == ANY:
        return True
    if isinstance(planned, Mapping) and isinstance(config, Mapping):
        return planned.keys() == config.keys() and all(_same(value, config[key]) for key, value in planned.items())
    return bool(planned == config)


def _measured(store: Store, table: str, pairs: tuple[str, ...]) -> int:
    """Measurements of a table that are there, of these pairs where they are of one."""
    rows = store.read(table)
    if "pair" in rows:
        rows = rows[rows["pair"].isin(pairs)]
    return int(rows["run_id"].nunique())
