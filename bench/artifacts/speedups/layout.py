"""The layout of one table of a paper: its columns, and how a row finds the paper's numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import pandas as pd

from bench.artifacts.blocks import Block
from bench.artifacts.speedups.arms import Arm


def silent(paper: pd.DataFrame, found: Sequence[Block]) -> Iterable[str]:
    """No remarks."""
    return ()


@dataclass(frozen=True, slots=True)
class Layout:
    """One table: its arms and what it shows beside speedup and tokens per step."""

    paper: str  # whose published numbers stand beside ours
    title: str
    arms: tuple[Arm, ...]
    match: tuple[str, ...] = ("dataset", "temperature")  # what the paper states of a row's setting
    tree: bool = True  # the tree of the first arm, and what was predicted for it
    top_p: bool = False
    seconds: bool = False  # s/token in the details, and of the first arm in the wide table
    in_seconds: bool = False  # cells are s/token (MAL), as some papers print them
    plain: bool = False  # autoregressive decoding in s/token: in the details, and beside cells that are in seconds
    against: bool = False  # how far the first arm is ahead of the second, in ours and in the paper's
    growing: bool = False  # trees differ from step to step: their mean size, and MAL - 1, stand in the details
    remarks: Callable[[pd.DataFrame, Sequence[Block]], Iterable[str]] = silent  # notes, of the paper's rows and ours

    @property
    def digits(self) -> int:
        """Of seconds per token, as the paper prints them."""
        return 5 if self.plain else 4
