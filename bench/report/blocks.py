"""Blocks: the runs that may be set against each other, with their rows and the words for their setting."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import pandas as pd

from bench.records import AUTOREGRESSIVE
from bench.report.outputs import NoResultsError
from bench.store import Results

_CELL = [
    *("pair", "dataset", "temperature", "top_p", "seed", "max_new_tokens", "ignore_eos"),
    *("attention", "node_order"),
]
NO_DRAFT = "none"
"""The published draft of a target without one, or with heads or layers of its own."""
_PLACE = ["prompts_sha256", "device_name", "dtype"]


@dataclass(frozen=True)
class Block:
    """Runs of one pair on the same prompts, decoding, device and dtype; they differ in drafter or in what is swept."""

    results: Results
    runs: pd.DataFrame
    mark: str = ""  # what tells it from other blocks of its pair
    stands_for: tuple[str, str] | None = (
        None  # models whose published numbers a stand-in is set against, if not its own
    )

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

    def standing_in(self, paper: pd.DataFrame) -> Block:
        """A stand-in for models that are not among these published rows stands for the first that are."""
        printed = list(zip(paper["target"], paper["draft"], strict=True))
        if not self.stand_in or not printed or self.published_as in printed:
            return self
        return replace(self, stands_for=printed[0])

    @property
    def ok(self) -> Iterator[pd.Series]:
        """The runs that ended well, in order."""
        return (run for _, run in self.runs[self.runs["status"] == "ok"].iterrows())

    @cached_property
    def ran(self) -> bool:
        """Whether a run ended well: of others prompts, device and dtype need not be known."""
        return any(True for _ in self.ok)

    def steps(self, run_id: str) -> pd.DataFrame:
        """The decoding steps of a run."""
        return _rows(self.results.steps, run_id)

    def prompts(self, run_id: str) -> pd.DataFrame:
        """The turns of a run, both arms."""
        return _rows(self.results.prompts, run_id)

    def nodes(self, run_id: str) -> pd.DataFrame:
        """The drafted nodes of a run; empty if they were not recorded."""
        return _rows(self.results.nodes, run_id)

    def masks(self, run_id: str) -> pd.DataFrame:
        """The masks of a run's trees; empty if they were not recorded."""
        return _rows(self.results.masks, run_id)

    def variation(self, run_id: str) -> pd.DataFrame:
        """How far the laws of a run's steps are off; empty if it was not recorded, or the rule keeps the law."""
        return _rows(self.results.variation, run_id)

    def quality(self, run_id: str) -> pd.DataFrame:
        """Scores of a run's answers, both arms; empty if they were not recorded."""
        return _rows(self.results.quality, run_id)


def blocks(results: Results, *, across: Sequence[str] = ()) -> list[Block]:
    """All blocks, in the order in which their pairs were first run; `across` names cell columns that are swept.

    A run that failed belongs to every block of its cell's setting, whatever it knew of prompts and device.
    """
    cell = [column for column in _CELL if column not in across]
    runs = results.runs.sort_values("created_utc", kind="stable")
    ok, failed = runs[runs["status"] == "ok"], runs[runs["status"] != "ok"]
    found = [Block(results, _join(group, failed, cell)) for _, group in ok.groupby([*cell, *_PLACE], sort=False)]
    seen = set().union(*(block.runs["run_id"] for block in found))
    lost = failed[~failed["run_id"].isin(list(seen))]
    found += [Block(results, group) for _, group in lost.groupby(cell, sort=False)]
    return [replace(block, mark=_mark(block, found, [*cell, *_PLACE])) for block in found]


def measured_blocks(results: Results, *, across: Sequence[str] = ()) -> list[Block]:
    """The blocks that hold runs that ended well, with these runs alone; raises NoResultsError where there are none."""
    keep = results.runs[results.runs["status"] == "ok"]
    if keep.empty:
        raise _nothing(results.runs, "any method")
    return [replace(block, results=results) for block in blocks(replace(results, runs=keep), across=across)]


def drafted_blocks(results: Results, methods: Sequence[str] = (), *, across: Sequence[str] = ()) -> list[Block]:
    """The blocks of the runs of these methods (of none given: of all but the autoregressive), failed ones too.

    Raises NoResultsError where none of them ended well.
    """
    runs = results.runs
    keep = runs[runs["method"].isin(list(methods)) if methods else runs["method"] != AUTOREGRESSIVE]
    if not (keep["status"] == "ok").any():
        raise _nothing(keep, ", ".join(methods) or "any tree method")
    return [replace(block, results=results) for block in blocks(replace(results, runs=keep), across=across)]


def setting(found: Iterable[Block], *, but: Sequence[str] = ()) -> str:
    """The words of a title: pair, dataset, temperature, device, dtype of all blocks; `but` leaves out what is swept.

    Blocks whose runs all failed count where there are no others, and know neither device nor dtype.
    """
    listed = list(found)
    every = [block for block in listed if block.ran] or listed
    words = {
        "pair": _several(_pair_words(block) for block in every),
        "dataset": _several(block.first["dataset"] for block in every),
        "temperature": "temperature " + _several(f"{block.first['temperature']:g}" for block in every),
        "device": _several(block.first["device_name"] for block in every if block.ran),
        "dtype": _several(block.first["dtype"] for block in every if block.ran),
    }
    return ", ".join(text for name, text in words.items() if name not in but and text)


def scale(block: Block) -> str:
    """One sentence of what was run: conversations, tokens, seed, device."""
    temperatures = _several((f"{value:g}" for value in block.runs["temperature"].sort_values()), most=9)
    marks = [mark for mark in block.mark.split(", ") if not mark.startswith(("dataset ", "temperature "))]
    more = f" ({', '.join(marks)})" if any(marks) else ""
    first, counts = block.first, block.runs.loc[block.runs["status"] == "ok", "num_conversations"]
    prompts = "no" if counts.empty else " to ".join(str(count) for count in dict.fromkeys((counts.min(), counts.max())))
    place = f", {first['dtype']} on {first['device_name']}" if block.ran else ""
    return (
        f"{_pair_words(block)}, {first['dataset']}, temperature {temperatures}{more}: "
        f"{prompts} conversations, at most {first['max_new_tokens']} new tokens a turn, seed {first['seed']}{place}."
    )


def models(target: str, draft: str) -> str:
    """The words for models by their published names."""
    return f"{target} drafting for itself" if draft == NO_DRAFT else f"{target} + {draft}"


def drafter_params(run: pd.Series) -> dict[str, Any]:
    """The arguments of a run's drafter, such as n and delta."""
    params = json.loads(run["drafter_params"])
    return params if isinstance(params, dict) else {}


def _nothing(runs: pd.DataFrame, what: str) -> NoResultsError:
    states = ", ".join(f"{status}: {count}" for status, count in runs["status"].value_counts().items())
    return NoResultsError(f"no run of {what} ended well ({states or 'there is none'})")


def _mark(block: Block, found: list[Block], columns: list[str]) -> str:
    """The columns in which a block is not like the others of its pair, prompts by the start of their hash."""
    others = [other for other in found if other.pair == block.pair]

    def differs(column: str) -> bool:
        """Of another dataset the prompts are others anyway, and of what failed the place need not be known."""
        alike = [one for one in others if column not in _PLACE or (one.ran and block.ran)]
        alike = [one for one in alike if column != "prompts_sha256" or one.first["dataset"] == block.first["dataset"]]
        return any(one.first[column] != block.first[column] for one in alike)

    differ = [column for column in columns if differs(column)]
    values = {column: str(block.first[column]) for column in differ}
    return ", ".join(
        f"prompts {value[:6]}" if column == "prompts_sha256" else f"{column.replace('_', ' ')} {value}"
        for column, value in values.items()
    )


def _pair_words(block: Block) -> str:
    names, planted = models(*block.published_as) if block.published_as else "", bool(_pair(block.first).get("planted"))
    notes = ["synthetic"] * planted + [f"stands in for {names}"] * (block.stand_in and bool(names))
    return f"{block.pair} ({', '.join(notes)})" if notes else block.pair


def _pair(run: pd.Series) -> dict[str, Any]:
    pair = json.loads(run["config"]).get("pair")
    return pair if isinstance(pair, dict) else {}


def _join(group: pd.DataFrame, failed: pd.DataFrame, cell: list[str]) -> pd.DataFrame:
    same = (failed[cell] == group[cell].iloc[0]).all(axis=1)
    return pd.concat([group, failed[same]], ignore_index=True) if same.any() else group.reset_index(drop=True)


def _rows(frame: pd.DataFrame, run_id: str) -> pd.DataFrame:
    return frame[frame["run_id"] == run_id]


def _several(words: Iterable[object], most: int = 3) -> str:
    distinct = list(dict.fromkeys(str(word) for word in words))
    return " / ".join(distinct) if len(distinct) <= most else f"{distinct[0]} and {len(distinct) - 1} others"
