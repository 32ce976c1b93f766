"""Rows and columns of the paper's tables: a setting and a method in a row, a target in a column."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import pandas as pd

from bench.artifacts.blocks import Block
from bench.artifacts.speedups.settings import who

_SAME = ("seed", "max_new_tokens", "ignore_eos", "attention", "node_order")
_PLACE = ("device_name", "dtype")


@dataclass(frozen=True, slots=True)
class Column:
    """A target: our word for it and the paper's."""

    words: str
    target: str


@dataclass(frozen=True)
class Setting:
    """Dataset, draft and temperature; the paper's rows for them, and our blocks by the words for their target."""

    dataset: str
    draft: str  # our words
    temperature: float
    paper: pd.DataFrame = field(repr=False)
    blocks: dict[str, Block] = field(default_factory=dict, repr=False)

    def of(self, column: Column) -> pd.DataFrame:
        """The paper's rows for a target."""
        return self.paper[self.paper["target"] == column.target]

    def takes(self, block: Block) -> bool:
        """Whether a block belongs beside the others: nothing but its target differs, and that is not here yet."""
        names = who(block)
        mine = (self.dataset, self.draft, self.temperature)
        same = mine == (names["Dataset"], names["Draft"], float(block.first["temperature"]))
        return same and names["Target"] not in self.blocks and _fits(block, list(self.blocks.values()))


def settings_of(paper: pd.DataFrame, found: Sequence[Block]) -> list[Setting]:
    """The settings that were run and those that the paper has, in its order; what it does not have comes last.

    A setting that was run twice, with other seeds or on another device, has rows of its own for each.
    """
    settings: list[Setting] = []
    for block in found:
        home = next((one for one in settings if one.takes(block)), None)
        if home is None:
            home = _empty(paper, block)
            settings.append(home)
        home.blocks[who(block)["Target"]] = block
    places = list(dict.fromkeys(_keys(paper)))
    run = {key for one in settings for key in _keys(one.paper)}
    settings += [_unrun(paper, key) for key in places if key not in run]
    return sorted(settings, key=lambda one: next((places.index(key) for key in _keys(one.paper)), len(places)))


def columns_of(paper: pd.DataFrame, found: Sequence[Block]) -> list[Column]:
    """The targets that were run, and the paper's others, in the paper's order."""
    run = {who(block)["Target"]: (block.published_as or ("", ""))[0] for block in found}
    printed = list(dict.fromkeys(paper["target"]))
    columns = [
        Column(words, target)
        for target in printed
        for words in ([words for words, name in run.items() if name == target] or [target])
    ]
    return columns + [Column(words, name) for words, name in run.items() if name not in printed]


def _empty(paper: pd.DataFrame, block: Block) -> Setting:
    names, temperature = who(block), float(block.first["temperature"])
    draft = (block.published_as or ("", ""))[1]
    rows = _rows(paper, (names["Dataset"], draft, temperature))
    return Setting(names["Dataset"], names["Draft"], temperature, rows)


def _unrun(paper: pd.DataFrame, key: tuple[str, str, float]) -> Setting:
    return Setting(*key, _rows(paper, key))


def _rows(paper: pd.DataFrame, key: tuple[str, str, float]) -> pd.DataFrame:
    dataset, draft, temperature = key
    return paper[(paper["dataset"] == dataset) & (paper["draft"] == draft) & (paper["temperature"] == temperature)]


def _keys(paper: pd.DataFrame) -> Iterator[tuple[str, str, float]]:
    yield from zip(paper["dataset"], paper["draft"], paper["temperature"], strict=True)


def _fits(block: Block, members: Sequence[Block]) -> bool:
    """Whether they were run alike, those that ran in one place: what failed may know neither device nor dtype."""
    every = [block, *members]
    same = all(len({one.first[name] for one in every}) == 1 for name in _SAME)
    return same and all(len({one.first[name] for one in every if one.ran}) < 2 for name in _PLACE)
