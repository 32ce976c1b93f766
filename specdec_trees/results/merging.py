"""Results folders of several machines joined into one: what is there once is copied, what disagrees is refused.

All is read and decided before anything is written.
"""

from __future__ import annotations

import itertools
import warnings
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow as pa

from specdec_trees.results import pack, progress
from specdec_trees.results.finished import LIVE, Asked, state_of_row, unfinished
from specdec_trees.results.locks import held
from specdec_trees.results.parquet import copy_file, digest, write_table
from specdec_trees.results.progress import Planned
from specdec_trees.results.rows import RECORDED, TABLES
from specdec_trees.results.store import OK, Store, experiments, explained, within

CELL_TABLES = ("prompts", "steps", *RECORDED, "judgements", "runs")
"""Tables whose rows of a cell belong together; the `runs` row is written last."""
MADE_ANEW = ("predictions",)
"""Tables that follow from others, and are not joined: two copies of a cell may have other ones."""
DRAWN = "report"
"""A folder that is drawn from results, and not joined."""


class MergeError(RuntimeError):
    """Folders cannot be joined; the message has a line for each reason."""


@dataclass(frozen=True, slots=True)
class Rows:
    """A cell's rows of a table in a folder of results: their file, or where they are packed the rows themselves."""

    root: Path
    source: Path | pa.Table


@dataclass(slots=True)
class Merged:
    """What will be written, and what speaks against it."""

    rows: dict[tuple[str, str, str], Rows] = field(default_factory=dict)
    """By experiment, table and run id."""
    plans: dict[str, list[Planned]] = field(default_factory=dict)
    files: dict[Path, Path] = field(default_factory=dict)
    """Others, by their place below the root."""
    unfinished: list[str] = field(default_factory=list)
    """Cells that no source finished and that stay behind, in a sentence each."""
    problems: list[str] = field(default_factory=list)


def merge(sources: Sequence[Path], into: Path) -> Merged:
    """Join the sources, and what is in `into` already; MergeError with every reason where they disagree."""
    roots = [root for root in dict.fromkeys((into, *sources)) if root.is_dir()]
    merged = Merged()
    merged.problems += [
        f"{into} and {root} lie in one another, so that results would be there twice; choose a folder outside"
        for root in sources
        if root.resolve() in into.resolve().parents or into.resolve() in root.resolve().parents
    ]
    for name in sorted({store.experiment for root in roots for store in experiments(root)}):
        stores = [Store(root, name) for root in roots]
        merged.problems += [
            f"{store.folder}: a cell is being run there; wait until it ends" for store in stores if held(store.folder)
        ]
        with warnings.catch_warnings(record=True) as said:  # of files that cannot be read
            warnings.simplefilter("always")
            _cells(stores, merged)
            for table in [table for table in TABLES if table not in (*CELL_TABLES, *MADE_ANEW)]:
                _kept(stores, table, merged)
        merged.problems += dict.fromkeys(str(warning.message) for warning in said)
    merged.unfinished += [
        f"{name}: cell {run_id} was begun in {root} and stays behind; finish it there and merge again, or run it anew"
        for root in roots
        if root != into
        for name, run_id in unfinished(root, *roots)
    ]
    _plans(roots, merged)
    _files(roots, merged)
    if merged.problems:
        raise MergeError("\n".join(merged.problems))
    _write(merged, into)
    return merged


def _cells(stores: Sequence[Store], merged: Merged) -> None:
    """Of every cell the rows of one source: of one that decoded it, else replayed it, else of the newest."""
    name, sources = stores[0].experiment, _sources(stores, merged)
    copies: dict[str, dict[Store, list[tuple[str, str]]]] = defaultdict(lambda: defaultdict(list))
    for table, store in itertools.product(CELL_TABLES, stores):
        files = store.rows(table).files()
        for run_id, rows in store.rows(table).each():
            holders = sources.get(run_id, ())
            if len(holders) > 1 and store in holders:
                copies[run_id][store].append((table, digest([rows])))
            if holders and store is holders[0] and rows is not None:
                merged.rows[name, table, run_id] = Rows(store.root, files.get(run_id) or rows)
    for run_id, digests in copies.items():
        if len({*map(tuple, digests.values())}) > 1:
            runs = [(store.root, store.row(run_id) or {}) for store in sources[run_id]]
            where = " and ".join(f"{root} ({run['device_name']}, {run['git_revision']})" for root, run in runs)
            merged.problems.append(
                f"{name}: cell {run_id} ({runs[0][1]['drafter']}) was measured apart in {where}; "
                f"delete its files in all but one"
            )


def _sources(stores: Sequence[Store], merged: Merged) -> dict[str, list[Store]]:
    """Of every cell those that measured it best, which must agree."""
    rows = {store: {row["run_id"]: row for row in store.read("runs").to_dict("records")} for store in stores}
    chosen = {}
    for run_id in sorted({run_id for by_id in rows.values() for run_id in by_id}):
        ended = {store: by_id[run_id] for store, by_id in rows.items() if run_id in by_id}
        states = {store: state_of_row(store, row, Asked(live=True)) for store, row in ended.items()}
        sources = [store for store in ended if states[store].status == OK]
        merged.problems += [
            f"{store.experiment}: cell {run_id} in {store.root} is ok and lacks {table}; run it again with force=true"
            for store in sources
            for table in states[store].lacks
            if table != LIVE
        ]
        decoded = [store for store in sources if LIVE not in states[store].lacks]
        sources = decoded or sources  # a replay of the same cell has nothing that it has not
        chosen[run_id] = sources or [max(ended, key=lambda store: str(ended[store]["created_utc"]))]
    return chosen


def _kept(stores: Sequence[Store], table: str, merged: Merged) -> None:
    """What is measured once for many cells: cells rest on it, so that there must be one of each."""
    folders = [(store, store.rows(table).by_id(), store.rows(table).files()) for store in stores]
    for run_id in sorted({run_id for _, by_id, _ in folders for run_id in by_id}):
        copies = [
            (store, rows, files.get(run_id))
            for store, by_id, files in folders
            if (rows := by_id.get(run_id)) is not None
        ]
        if len(copies) > 1 and len({digest([rows]) for _, rows, _ in copies}) > 1:
            where = " and ".join(str(store.folder / table) for store, *_ in copies)
            merged.problems.append(
                f"{stores[0].experiment}: {run_id} was measured apart in {where}; delete all but one"
            )
        for store, rows, file in copies[:1]:
            merged.rows[store.experiment, table, run_id] = Rows(store.root, file or rows)


_PLACES = ("results_dir", "data_dir", "shard")
"""What the plans of two folders may differ in, beside the pairs."""


def _plans(roots: Sequence[Path], merged: Merged) -> None:
    """The plans of all folders; what two of them plan of a pair is of the same options."""
    for root in roots:
        for path in within(root, progress.FILE):
            plans = merged.plans.setdefault(path.parent.relative_to(root).as_posix(), [])
            for plan in (found := progress.read_plans(path.parent)):
                merged.problems += _unite(plans, plan, path)
            if not found:
                merged.problems.append(f"{path} cannot be read; `make reproduce` writes it again")


def _unite(plans: list[Planned], plan: Planned, path: Path) -> Iterator[str]:
    """Put a plan beside others, or into one of the same options; a sentence where its pairs have other options."""
    joined = [_joined(one, plan) for one in plans]
    pairs = [
        name for one, both in zip(plans, joined, strict=True) if not both for name in one.pairs if name in plan.pairs
    ]
    if pairs:
        yield f"{path}: the plan of {', '.join(pairs)} is of other options: {' '.join(plan.overrides)}"
    elif any(joined):
        plans[:] = [both or one for one, both in zip(plans, joined, strict=True)]
    else:
        plans.append(plan)


def _joined(first: Planned, other: Planned) -> Planned | None:
    """Both plans in one; None where they differ in more than the pairs and where they were run."""
    apart = [[text for text in plan.options if text.partition("=")[0] not in _PLACES] for plan in (first, other)]
    if sorted(apart[0]) != sorted(apart[1]) or first.tables != other.tables or first.case_study != other.case_study:
        return None
    names = dict.fromkeys((*first.chosen, *other.chosen))
    measures: dict[str, Mapping[str, int]] = {
        table: {**first.measures.get(table, {}), **other.measures.get(table, {})}
        for table in {**first.measures, **other.measures}
    }
    return replace(
        first,
        overrides=(*apart[0], *([f"pair={','.join(names)}"] if names else [])),
        pairs=tuple(dict.fromkeys((*first.pairs, *other.pairs))),
        cells=(*first.cells, *(cell for cell in other.cells if cell not in first.cells)),
        measures=measures,
    )


def _files(roots: Sequence[Path], merged: Merged) -> None:
    """Whatever else lies beside the tables, such as case studies."""
    for root in roots:
        for place in _others(root):
            path = root / place
            if merged.files.setdefault(place, path).read_bytes() != path.read_bytes():
                merged.problems.append(f"{place} differs between {merged.files[place]} and {path}; delete one")


def _others(root: Path) -> Iterator[Path]:
    for path in within(root, "*"):
        place = path.relative_to(root)
        hidden = any(part.startswith(".") for part in place.parts)
        told = path.name == progress.FILE or (path.suffix == ".parquet" and path.parent.name in TABLES)
        if path.is_file() and not (hidden or told) and place.parts[0] not in (DRAWN, pack.FOLDER):
            yield place


def _write(merged: Merged, into: Path) -> None:
    """Rows that are not there yet; a cell that was not finished there is unmarked first, and marked last."""
    order = {table: place for place, table in enumerate((*(name for name in TABLES if name != "runs"), "runs"))}
    new = {key: rows.source for key, rows in merged.rows.items() if rows.root != into}
    cells = {(name, run_id) for name, table, run_id in new if table in CELL_TABLES}
    stores = [Store(into, name) for name in {name for name, _ in cells}]
    known = {(one.experiment, run_id) for one in stores for table in TABLES for run_id in one.rows(table).ids()}
    for name, run_id in cells & known:
        Store(into, name).forget(run_id)
    for (name, table, run_id), source in sorted(new.items(), key=lambda item: (item[0][0], order[item[0][1]])):
        path = Store(into, name).path(table, run_id)
        with explained(path.parent):
            path.parent.mkdir(parents=True, exist_ok=True)
            if isinstance(source, Path):
                copy_file(source, path)
            else:
                write_table(path, source)
    for place, path in merged.files.items():
        if path != into / place:
            (into / place).parent.mkdir(parents=True, exist_ok=True)
            copy_file(path, into / place)
    for name, plans in merged.plans.items():
        (into / name).mkdir(parents=True, exist_ok=True)
        progress.write_plans(plans, into / name)
