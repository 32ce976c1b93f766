"""Blocks: the runs that may be set against each other, with their rows. The words for them are in `wording`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import pandas as pd

from bench.artifacts.outputs import NoResultsError
from bench.artifacts.runs import Run
from bench.results.roles import Role, columns
from bench.results.rows import RunRow
from bench.results.store import Results

_CELL = columns(RunRow, Role.SETTING, Role.OPTIONS)
NO_DRAFT = "none"
"""The published draft of a target without one, or with heads or layers of its own."""
_PLACE = columns(RunRow, Role.LOADED, Role.MACHINE)
"""What only runs that ended well are sure to know."""
_PROMPTS = ("prompts_sha256", "prompt_ids_sha256")
_CODE = tuple(column for column in columns(RunRow, Role.MACHINE) if column not in ("device_name", "dtype"))
_ALIKE = list(columns(RunRow, Role.OPTIONS))
"""What blocks have in common that stand beside each other."""


@dataclass(frozen=True, eq=False)
class Block:
    """Runs of the same weights, prompts and decoding on one machine by one code; drafters or what is swept differ."""

    results: Results
    runs: pd.DataFrame
    mark: str = ""  # what tells it from other blocks of its pair
    stands_for: tuple[str, str] | None = None  # models of whose numbers a stand-in takes the place, if not of its own

    @cached_property
    def first(self) -> pd.Series:
        """A run that stands for what all of them share."""
        return self.runs.iloc[0]

    @property
    def pair(self) -> str:
        """The name of the pair's config."""
        return str(self.first["pair"])

    @property
    def name(self) -> str:
        """The pair, and what tells the block from others of this pair."""
        return f"{self.pair}, {self.mark}" if self.mark else self.pair

    @cached_property
    def published_as(self) -> tuple[str, str] | None:
        """Target and draft of the published numbers this pair is set against; None if no paper has it."""
        if self.stands_for is not None:
            return self.stands_for
        names = _pair(self.first).get("published") or {}
        return (names["target"], names["draft"]) if names.get("target") and names.get("draft") else None

    @cached_property
    def stand_in(self) -> bool:
        """Whether the pair stands in for models that it is not."""
        return bool((_pair(self.first).get("published") or {}).get("stand_in"))

    @property
    def planted(self) -> bool:
        """Whether the pair has random weights whose agreement was set."""
        return bool(_pair(self.first).get("planted"))

    def standing_in(self, paper: pd.DataFrame) -> Block:
        """A stand-in for models that are not among these published rows stands for the first that are."""
        printed = list(zip(paper["target"], paper["draft"], strict=True))
        if not self.stand_in or not printed or self.published_as in printed:
            return self
        return replace(self, stands_for=printed[0])

    @cached_property
    def every(self) -> tuple[Run, ...]:
        """All runs, in order."""
        return tuple(Run(self, row) for _, row in self.runs.iterrows())

    @cached_property
    def incomplete(self) -> bool:
        """Whether conversations of its prompts count in no run, since one of them failed."""
        lost, columns = self.results.failed, ["pair", "prompts_sha256"]
        return not lost.empty and bool((lost[columns] == self.first[columns]).all(axis=1).any())

    @property
    def ok(self) -> list[Run]:
        """The runs that ended well, in order."""
        return [run for run in self.every if run.ok]

    @property
    def ran(self) -> bool:
        """Whether a run ended well: of others prompts, device and dtype need not be known."""
        return any(run.ok for run in self.every)


def blocks(results: Results, runs: pd.DataFrame | None = None, *, across: Sequence[str] = ()) -> list[Block]:
    """The blocks of these runs (of none given: of all), in the order in which their pairs were first run.

    A run that failed belongs to every block of its cell's setting, whatever it knew of prompts and device; `across` has
    the columns of a cell that are swept.
    """
    cell = [column for column in _CELL if column not in across]
    runs = (results.runs if runs is None else runs).sort_values("created_utc", kind="stable")
    ok, failed = runs[runs["status"] == "ok"], runs[runs["status"] != "ok"]
    found = [
        Block(results, _join(group, failed, cell))
        for _, group in ok.groupby([*cell, *_PLACE], sort=False, dropna=False)
    ]
    seen = set().union(*(block.runs["run_id"] for block in found))
    lost = failed[~failed["run_id"].isin(list(seen))]
    found += [Block(results, group) for _, group in lost.groupby(cell, sort=False, dropna=False)]
    return [replace(block, mark=_mark(block, found, [*cell, *_PLACE])) for block in found]


def measured_blocks(results: Results, *, across: Sequence[str] = ()) -> list[Block]:
    """The blocks that hold runs that ended well, with these runs alone; raises NoResultsError where there are none."""
    _require(results.runs, "any method")
    return blocks(results, results.runs[results.runs["status"] == "ok"], across=across)


def drafted(paper: pd.DataFrame) -> pd.DataFrame:
    """The paper's rows about a target with a draft."""
    return paper[paper["draft"] != NO_DRAFT]


def every_run(results: Results) -> tuple[Run, ...]:
    """All runs, of whatever block."""
    return Block(results, results.runs).every


def _require(runs: pd.DataFrame, what: str) -> None:
    """Raises NoResultsError where none of the runs ended well."""
    if not (runs["status"] == "ok").any():
        states = ", ".join(f"{status}: {count}" for status, count in runs["status"].value_counts().items())
        raise NoResultsError(f"no run of {what} ended well ({states or 'there is none'})")


def _mark(block: Block, found: list[Block], columns: list[str]) -> str:
    """The columns in which a block is not like the others of its pair, digests by their start.

    Of code and machine beyond the device those alone are named that tell it from a block which no other column does.
    """
    others = [other for other in found if other.pair == block.pair]

    def differs(column: str) -> bool:
        """Of another dataset the prompts are others anyway, and of what failed the place need not be known."""
        alike = [one for one in others if column not in _PLACE or (one.ran and block.ran)]
        alike = [one for one in alike if column not in _PROMPTS or one.first["dataset"] == block.first["dataset"]]
        return any(_apart(one, block, column) for one in alike)

    differ = [column for column in columns if column not in _CODE and differs(column)]
    same = [one for one in others if one is not block and not any(_apart(one, block, column) for column in differ)]
    for column in _CODE:
        if any(_apart(one, block, column) for one in same if one.ran and block.ran):
            differ.append(column)
            same = [one for one in same if not _apart(one, block, column)]
    return ", ".join(_words(column, str(block.first[column])) for column in differ)


def _apart(one: Block, other: Block, column: str) -> bool:
    """Whether blocks differ in a column; a missing value equals a missing value."""
    values = [block.first[column] for block in (one, other)]
    missing = [bool(pd.isna(value)) for value in values]
    return missing[0] != missing[1] if any(missing) else bool(values[0] != values[1])


def _words(column: str, value: str) -> str:
    if column.endswith(("_sha256", "_revision")):
        return f"{column.removesuffix('_sha256').replace('_', ' ')} {value.removeprefix('files:')[:6]}"
    return f"{column.replace('_', ' ')} {value}"


def _pair(run: pd.Series) -> dict[str, Any]:
    pair = json.loads(run["config"]).get("pair")
    return pair if isinstance(pair, dict) else {}


def _equal(rows: pd.DataFrame, one: pd.Series) -> pd.Series:
    """Which rows have the values of one; a missing value equals a missing value."""
    return ((rows == one).fillna(False) | (rows.isna() & one.isna())).all(axis=1)


def _join(group: pd.DataFrame, failed: pd.DataFrame, cell: list[str]) -> pd.DataFrame:
    same = _equal(failed[cell], group[cell].iloc[0])
    return pd.concat([group, failed[same]], ignore_index=True) if same.any() else group.reset_index(drop=True)
