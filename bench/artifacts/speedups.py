"""The columns of speedup and tokens per step that grids still have, and the paper's rows of a block."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from bench.artifacts import definitions, metric, tables
from bench.artifacts.blocks import NO_DRAFT, Block
from bench.artifacts.grid import Column


def times(speedup: float | None) -> str:
    """`2.31x`."""
    return f"{tables.number(speedup)}{'' if speedup is None else 'x'}"


SPEEDUP = Column(
    metric.measured("speedup", "speedup", f"{definitions.SPEEDUP}; in brackets the 95% interval"),
    paper="speedup",
    ended=True,
    timed=True,
)


def of_block(paper: pd.DataFrame, match: Sequence[str], block: Block) -> pd.DataFrame:
    """The paper's rows for a block's models and for what it has in the columns of `match`; empty if there are none."""
    target, draft = block.published_as or ("", "")
    keep = (paper["target"] == target) & paper["draft"].isin([draft, NO_DRAFT])
    for column in match:
        keep &= paper[column] == block.first[column]
    return paper[keep]
