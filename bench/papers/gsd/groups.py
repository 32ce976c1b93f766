"""Blocks of several datasets that belong into one row of a table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pandas as pd

from bench.artifacts.blocks import NO_DRAFT, Block
from bench.artifacts.speedups.settings import drafted, who
from bench.papers.gsd import settings

_CELL = ("pair", "seed", "max_new_tokens", "ignore_eos", "attention", "node_order")


@dataclass(frozen=True)
class Group:
    """The blocks of one pair, seed and place on several datasets, or models of the paper of which none was run."""

    who: dict[str, str]
    paper: pd.DataFrame
    blocks: tuple[Block, ...] = ()

    def column(self, dataset: str) -> Block | None:
        """The block of a dataset, by its published name."""
        return next((block for block in self.blocks if settings.published_dataset(block) == dataset), None)

    @property
    def datasets(self) -> list[str]:
        """Those that were run, by their published names."""
        return [settings.published_dataset(block) for block in self.blocks]


def groups_of(paper: pd.DataFrame, found: Sequence[Block]) -> Iterator[Group]:
    """Blocks that differ in their prompts alone; of one dataset that was run twice the second starts a new group."""
    sets: list[list[Block]] = []
    for block in found:
        home = next((members for members in sets if _fits(block, members)), None)
        if home is None:
            sets.append([block])
        else:
            home.append(block)
    for members in sets:
        names = who(members[0])
        yield Group({name: names[name] for name in ("Target", "Draft")}, _of_target(paper, members[0]), tuple(members))


def _fits(block: Block, members: Sequence[Block]) -> bool:
    """Whether nothing but the dataset differs; a run that failed may know neither device nor dtype."""
    every = [block, *members]
    same = all(len({one.first[name] for one in every}) == 1 for name in _CELL)
    placed = all(len({one.first[name] for one in every if one.first[name]}) < 2 for name in ("device_name", "dtype"))
    return same and placed and len({one.first["dataset"] for one in every}) == len(every)


def _of_target(paper: pd.DataFrame, block: Block) -> pd.DataFrame:
    """The paper's rows for a block's models, methods without a draft of their own among them."""
    target = (block.published_as or ("", ""))[0]
    alone = paper[(paper["target"] == target) & (paper["draft"] == NO_DRAFT)]
    return pd.concat([settings.of_models(paper, block), alone]).drop_duplicates()


def unrun(paper: pd.DataFrame) -> Iterator[Group]:
    """The paper's models, of which none was run."""
    for names, rows in drafted(paper).groupby(["target", "draft"], sort=False):
        target, draft = map(str, names)
        alone = paper[(paper["target"] == target) & (paper["draft"] == NO_DRAFT)]
        yield Group({"Target": target, "Draft": draft}, pd.concat([rows, alone]))
