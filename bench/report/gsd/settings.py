"""How a block of ours finds the paper's numbers, and what is said of blocks below every table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pandas as pd

from bench.report.blocks import Block, blocks, scale
from bench.report.speedups.settings import drafted, left_out, stand_ins
from bench.store import Results

PAPER = "gsd"
DATASETS = {"wmt14": "wmt14_en_de"}
"""The published name of a dataset, where it is not ours."""
NO_DRAFT = "none"
"""The draft of a row about a target without one, or with heads or layers of its own."""
SWEPT = ("temperature", "top_p")
NO_HARDWARE = "The paper does not state its hardware: speedups are judged by order alone."


def found_blocks(results: Results, paper: pd.DataFrame) -> list[Block]:
    """The blocks of all decodings, stand-ins set against the models of these published rows."""
    printed = set(zip(paper["target"], paper["draft"], strict=True))
    found = blocks(results, across=SWEPT)
    return [block if block.published_as in printed else block.standing_in(drafted(paper)) for block in found]


def published_dataset(block: Block) -> str:
    """The name of a block's dataset in the published rows."""
    name = str(block.first["dataset"])
    return DATASETS.get(name, name)


def drafts_for_itself(block: Block) -> bool:
    """Whether a block stands beside the numbers of a target without a draft model."""
    return (block.published_as or ("", ""))[1] == NO_DRAFT


def of_setting(paper: pd.DataFrame, block: Block) -> pd.DataFrame:
    """The paper's rows for a block's models and prompts; empty if it has none."""
    rows = of_models(paper, block)
    return rows[rows["dataset"] == published_dataset(block)]


def of_models(paper: pd.DataFrame, block: Block) -> pd.DataFrame:
    """The paper's rows for a block's models."""
    target, draft = block.published_as or ("", "")
    return paper[(paper["target"] == target) & (paper["draft"] == draft)]


def said(paper: pd.DataFrame, found: Sequence[Block]) -> Iterator[str]:
    """Notes of every table: what was run, what stands in, what was not run."""
    for block in found:
        yield scale(block)
    yield from stand_ins(found)
    yield from left_out(paper, found)


def in_order(values: Iterable[str], of: Sequence[str]) -> list[str]:
    """Distinct values, those of a known order first."""
    distinct = list(dict.fromkeys(values))
    return [value for value in of if value in distinct] + [value for value in distinct if value not in of]
