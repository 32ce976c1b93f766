"""Results folders of several machines joined into one: what is there once is copied, what disagrees is refused.

All is read and decided before anything is written.
"""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow as pa

from specdec_trees.results import pack, progress
from specdec_trees.results.finished import LIVE, Asked, state_of_row, unfinished
from specdec_trees.results.locks import held
from specdec_trees.results.parquet import digest, replacing, write_table
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


@dataclass(slots=True)
class Merged:
    """What will be written, and what speaks against it."""

    rows: dict[tuple[str, str, str], pa.Table] = field(default_factory=dict)
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
    rows = {store: {row["run_id"]: row for row in store.read("runs").to_dict("records")} for store in stores}
    tables = {store: {table: store.rows(table).by_id() for table in CELL_TABLES} for store in stores}
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
        sources = sources or [max(reversed(ended), key=lambda store: str(ended[store]["created_utc"]))]
        copies = [
            {table: by_id[run_id] for table, by_id in tables[store].items() if by_id.get(run_id) is not None}
            for store in sources
        ]
        if len({digest(copy.values()) for copy in copies}) > 1:
            runs = [(store.root, ended[store]) for store in sources]
            where = " and ".join(f"{root} ({run['device_name']}, {run['git_revision']})" for root, run in runs)
            merged.problems.append(
                f"{stores[0].experiment}: cell {run_id} ({runs[0][1]['drafter']}) was measured apart in {where}; "
                f"delete its files in all but one"
            )
        for table, copied in copies[0].items():
            merged.rows[stores[0].experiment, table, run_id] = copied


def _kept(stores: Sequence[Store], table: str, merged: Merged) -> None:
    """What is measured once for many cells: cells rest on it, so that there must be one of each."""
    tables = [(store.rows(table).by_id(), store) for store in stores]
    for run_id in sorted({run_id for by_id, _ in tables for run_id in by_id}):
        every = [(own, store) for by_id, store in tables if (own := by_id.get(run_id)) is not None]
        if len({digest([own]) for own, _ in every}) > 1:
            where = " and ".join(str(store.folder / table) for _, store in every)
            merged.problems.append(
                f"{stores[0].experiment}: {run_id} was measured apart in {where}; delete all but one"
            )
        for own, _ in every[:1]:
            merged.rows[stores[0].experiment, table, run_id] = own


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
    there = {
        (name, table, run_id): rows
        for name, table in {key[:2] for key in merged.rows}
        for run_id, rows in Store(into, name).rows(table).by_id().items()
    }
    new = {key for key, rows in merged.rows.items() if digest([there.get(key)]) != digest([rows])}
    cells = {(name, run_id) for name, table, run_id in new if table in CELL_TABLES}
    stores = [Store(into, name) for name in {name for name, _ in cells}]
    known = {(one.experiment, run_id) for one in stores for table in TABLES for run_id in one.rows(table).ids()}
    for name, run_id in cells & known:
        Store(into, name).forget(run_id)
    every = [key for key in merged.rows if key in new or ((key[0], key[2]) in cells and key[1] in CELL_TABLES)]
    for key in sorted(every, key=lambda key: (key[0], order[key[1]])):
        (name, table, run_id), rows = key, merged.rows[key]
        path = Store(into, name).path(table, run_id)
        with explained(path.parent):
            path.parent.mkdir(parents=True, exist_ok=True)
            write_table(path, rows)
    for place, path in merged.files.items():
        if path != into / place:
            (into / place).parent.mkdir(parents=True, exist_ok=True)
            with replacing(into / place) as copy:
                shutil.copyfile(path, copy)
    for name, plans in merged.plans.items():
        (into / name).mkdir(parents=True, exist_ok=True)
        progress.write_plans(plans, into / name)
