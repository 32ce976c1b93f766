"""How far an artifact is in a results folder, from its files alone: what is planned, done, running, failed, missing.

A plan is written before anything runs (`Planned`): the config of every cell, with `ANY` for what is measured first, and
how many other measurements there are. `<results>/<artifact>/plan.json` has one for each set of options, of other pairs
each. A cell is done if a row says `ok` whose config is the planned one and whose files are there; it is running while
its lock, which names its pair, is held on this machine. One that was interrupted is missing.
"""

from __future__ import annotations

import json
import operator
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import pandas as pd

from specdec_trees.results import finished
from specdec_trees.results.finished import Asked
from specdec_trees.results.identity import identity
from specdec_trees.results.locks import held, lock
from specdec_trees.results.parquet import replace_text
from specdec_trees.results.rows import TABLES
from specdec_trees.results.store import OK, Store, at

ANY = "*"
"""Stands in a planned config for a value that is measured before the cell runs."""
FILE = "plan.json"
SWEEP = "sweep"
"""The lock that is held while an artifact is being reproduced."""
_PLAN = "plan"
"""The lock that is held while a plan is written."""
DONE, RUNNING, FAILED, PARTLY, MISSING = STATES = ("done", "running", "failed", "partly", "missing")

_OF_STATE = ("recording", "autoregressive_tokens_per_s")
_COLUMNS = (
    *("run_id", "status", "error", "created_utc", "pair", "config"),
    *_OF_STATE,
)
"""Of `runs`, what counting needs."""
_UNREADABLE = (ValueError, LookupError, TypeError, AttributeError, RecursionError)
"""What text that is not ours raises on its way to values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """What an artifact will run: overrides of its experiment, its cells' configs, measurements by table."""

    overrides: tuple[str, ...]
    pairs: tuple[str, ...]
    cells: tuple[Mapping[str, Any], ...] = ()
    """Of each the name of its `pair` and its `config`, which has no names."""
    tables: tuple[str, ...] = ()
    """What its cells record beside the usual rows."""
    measures: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Of each table how many by pair, "" for what belongs to none."""
    case_study: bool = False

    @property
    def options(self) -> tuple[str, ...]:
        """Its overrides but for `pair=`."""
        return tuple(text for text in self.overrides if not text.startswith("pair="))

    @property
    def chosen(self) -> tuple[str, ...]:
        """The names that `pair=` gives, which are those of yamls."""
        texts = (text.removeprefix("pair=") for text in self.overrides if text.startswith("pair="))
        return tuple(name for text in texts for name in text.split(","))

    def write(self, folder: Path) -> None:
        """Write it into an artifact's folder, which is made if needed, in place of what was planned of its pairs."""
        folder.mkdir(parents=True, exist_ok=True)
        with lock(folder, _PLAN, wait=True):
            rest = (plan.without(self) for plan in read_plans(folder))
            write_plans([*(plan for plan in rest if plan.pairs), self], folder)

    def without(self, other: Planned) -> Planned:
        """What it has of pairs that the other has not."""
        pairs = tuple(name for name in self.pairs if name not in other.pairs)
        if pairs == self.pairs:
            return self
        names = [name for name in self.chosen if name not in other.chosen]
        return replace(
            self,
            overrides=(*self.options, *([f"pair={','.join(names)}"] if names else [])),
            pairs=pairs,
            cells=tuple(cell for cell in self.cells if cell["pair"] in pairs),
            measures={
                table: {name: count for name, count in counts.items() if name in ("", *pairs)}
                for table, counts in self.measures.items()
            },
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Counts of cells and other measurements; `planned` is None where no plan was written."""

    planned: int | None
    done: int
    failed: int
    running: int
    detail: str = ""
    """Of the first that failed: what went wrong."""
    others: int = 0
    """Finished cells that the plan does not ask for, such as those of an earlier one."""
    unreadable: bool = False
    """Whether a plan lies there that cannot be read; nothing is done then."""

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
        return PARTLY if self.missing or self.unreadable else DONE


def words(found: Progress, unplanned: str = "not planned") -> str:
    """`partly: 4 of 6, 1 running, 1 missing`; `unplanned` stands where there is no plan."""
    if found.planned is None:
        parts = [f"{found.done} ok"] * bool(found.done)
        parts += [f"its {FILE} cannot be read" if found.unreadable else unplanned]
    else:
        parts = [f"{found.done} of {found.planned}"]
    counts = {"failed": found.failed, "running": found.running, "missing": found.missing}
    parts += [f"{count} {name}" for name, count in counts.items() if count]
    parts += [f"{found.others} of other plans done"] * bool(found.others)
    return f"{found.state}: {', '.join(parts)}" + (f" ({found.detail})" if found.detail else "")


def write_plans(plans: Iterable[Planned], folder: Path) -> None:
    """Write plans of other pairs each into an artifact's folder, in place of all that was planned."""
    replace_text(folder / FILE, json.dumps([asdict(plan) for plan in plans], separators=(",", ":")))


def read_plans(folder: Path) -> list[Planned]:
    """The plans in an artifact's folder, the newest last; none if they cannot be read."""
    try:
        plain = json.loads((folder / FILE).read_text(encoding="utf-8"))
        return [_plan(one) for one in (plain if isinstance(plain, list) else [plain])]  # older files are of one
    except (OSError, *_UNREADABLE):
        return []


def read_plan(folder: Path, pair: str | None = None) -> Planned | None:
    """The newest plan in an artifact's folder, or of one of these pairs (`a,b`); None if none can be read."""
    return next((plan for plan in reversed(read_plans(folder)) if not pair or {*pair.split(",")} & {*plan.pairs}), None)


def _plan(plain: Mapping[str, Any]) -> Planned:
    return Planned(
        overrides=tuple(map(str, plain["overrides"])),
        pairs=tuple(map(str, plain["pairs"])),
        cells=tuple({"pair": str(cell["pair"]), "config": dict(cell["config"])} for cell in plain["cells"]),
        tables=tuple(map(_known, plain["tables"])),
        case_study=bool(plain["case_study"]),
        measures={
            _known(table): {pair: operator.index(count) for pair, count in counts.items()}
            for table, counts in plain["measures"].items()
        },
    )


def read(root: Path, artifact: str, *pairs: str, whole: bool = False) -> Progress:
    """The progress of an artifact, of some pairs if given; without a plan of them all rows count that are there.

    Of rows of `runs` some columns are read, or with `whole` all: damage elsewhere in a file is then seen too.
    """
    store = Store(root, artifact)
    return of(store, store.read("runs", only=None if whole else _COLUMNS), *pairs)


def of(store: Store, runs: pd.DataFrame, *pairs: str) -> Progress:
    """The same of rows of `runs` that were read before."""
    plans = [plan for plan in read_plans(store.folder) if not pairs or {*pairs} & {*plan.pairs}]
    if not plans:
        ended = _ended(store, runs, pairs, ())
        ok = ended["status"] == OK
        counted = _counted(store, None, int(ok.sum()), ended[~ok], pairs)
        return replace(counted, unreadable=(store.folder / FILE).exists() and not read_plans(store.folder))
    by_tables = {tables: _ended(store, runs, pairs, tables) for tables in {plan.tables for plan in plans}}
    cells = [
        (plan.tables, cell["config"]) for plan in plans for cell in plan.cells if not pairs or cell["pair"] in pairs
    ]
    ended = pd.concat(
        [_newest([config for asked, config in cells if asked == tables], rows) for tables, rows in by_tables.items()]
    )
    ok = ended["status"] == OK
    measures = [(table, *one) for plan in plans for table, counts in plan.measures.items() for one in counts.items()]
    counts = {(table, name): count for table, name, count in measures if not pairs or name in ("", *pairs)}
    measured = sum(min(count, _measured(store, *key)) for key, count in counts.items())
    known = pairs or [name for plan in plans for name in plan.pairs]
    counted = _counted(store, len(cells) + sum(counts.values()), int(ok.sum()) + measured, ended[~ok], known)
    finished = {name for rows in by_tables.values() for name in rows.loc[rows["status"] == OK, "run_id"]}
    return replace(counted, others=len(finished - {*ended.loc[ok, "run_id"]}))


def _newest(configs: Sequence[Mapping[str, Any]], runs: pd.DataFrame) -> pd.DataFrame:
    """Of planned configs the rows that they have."""
    statuses = runs["status"].tolist()
    rows = (_row_of(places, statuses) for places in _places(configs, runs))
    return runs.iloc[[place for place in rows if place is not None]]


def planned_runs(folder: Path) -> set[str]:
    """The runs of an artifact's folder that its plan asks for; none without a plan."""
    if not (plans := read_plans(folder)):
        return set()
    runs = at(folder).read("runs", only=_COLUMNS)
    places = _places([cell["config"] for plan in plans for cell in plan.cells], runs)
    return {str(runs["run_id"].iloc[place]) for found in places for place in found}


def _known(table: str) -> str:
    if table not in TABLES:
        raise ValueError(f"there is no table {table}")
    return table


def _ended(store: Store, runs: pd.DataFrame, pairs: Collection[str], tables: Iterable[str]) -> pd.DataFrame:
    """The `runs` rows of cells that failed, or ended well and have their other rows too."""
    runs = runs[runs["status"] != "interrupted"]
    runs = runs[runs["pair"].isin(pairs)] if pairs else runs
    asked, rows = Asked(tables=tuple(tables)), runs[["run_id", "status", *_OF_STATE]].to_dict("records")
    states = [finished.state_of_row(store, row, asked) for row in rows]
    ended = [state.finished or state.status != OK for state in states]
    return runs[pd.Series(ended, index=runs.index, dtype=bool)]


def _counted(store: Store, planned: int | None, done: int, failed: pd.DataFrame, pairs: Collection[str]) -> Progress:
    """`pairs`: those whose running cells count; all, if there are none."""
    now = held(store.folder)
    cells = now.keys() - {SWEEP, _PLAN}
    ours = [name for name in cells if not (now[name] and pairs) or now[name] in pairs]
    again = failed["run_id"].isin(list(now))
    errors = [lines[-1] for error in failed.loc[~again, "error"].dropna() if (lines := error.strip().splitlines())]
    count = 0 if planned is not None and done >= planned else len(ours) if cells else int(SWEEP in now)
    return Progress(planned=planned, done=done, failed=int((~again).sum()), running=count, detail="".join(errors[:1]))


def _places(planned: Sequence[Mapping[str, Any]], runs: pd.DataFrame) -> list[list[int]]:
    """Of each planned config the places of the rows that it is of, whatever was measured for them, the newest first."""
    newest = runs["created_utc"].reset_index(drop=True).sort_values(ascending=False, kind="stable").index
    texts = runs["config"].tolist()
    configs = {place: config for place in newest if (config := _identity(texts[place])) is not None}
    open_paths = [frozenset(_open(config)) for config in planned]
    by_key: dict[tuple[frozenset[tuple[str, ...]], str], list[int]] = defaultdict(list)
    for paths in set(open_paths):
        for place, config in configs.items():
            by_key[paths, _key(config, paths)].append(place)
    return [by_key.get((paths, _key(config, paths)), []) for config, paths in zip(planned, open_paths, strict=True)]


def _identity(text: str) -> Mapping[str, Any] | None:
    try:
        return identity(json.loads(text))
    except _UNREADABLE:
        return None


def _row_of(places: Sequence[int], statuses: Sequence[str]) -> int | None:
    """The newest that ended well, else the newest."""
    return next((place for place in places if statuses[place] == OK), places[0] if places else None)


def _open(config: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Where a planned config leaves a value open."""
    if config == ANY:
        yield path
    elif isinstance(config, Mapping):
        for key, value in config.items():
            yield from _open(value, (*path, key))


def _key(config: Any, paths: Collection[tuple[str, ...]]) -> str:
    """What two configs share that are equal but for the values at these paths."""
    return json.dumps(_opened(config, paths), sort_keys=True)


def _opened(config: Any, paths: Collection[tuple[str, ...]]) -> Any:
    """A config with `ANY` at these paths, where it has them; 1.0 is 1."""
    if () in paths:
        return ANY
    if isinstance(config, Mapping):
        below = {path[0]: {other[1:] for other in paths if other[0] == path[0]} for path in paths}
        return {key: _opened(value, below.get(key, ())) for key, value in config.items()}
    if isinstance(config, list | tuple):
        return [_opened(value, ()) for value in config]
    return int(config) if isinstance(config, float) and config.is_integer() else config


def _measured(store: Store, table: str, pair: str) -> int:
    """Measurements of a table that are there, of this pair unless it is ""."""
    rows = store.read(table)
    rows = rows[rows["pair"] == pair] if pair and "pair" in rows else rows
    return int(rows["run_id"].nunique())
