"""How a block of ours finds the paper's numbers, and what is said of blocks below every table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import pandas as pd

from bench import published
from bench.artifacts.blocks import Block, blocks
from bench.artifacts.speedups.settings import drafted, left_out, stand_ins
from bench.artifacts.wording import scale
from bench.papers.gsd.classes import is_greedy, is_sampled
from bench.results.store import Results

PAPER = "gsd"
DATASETS = {"wmt14": "wmt14_en_de"}
"""The published name of a dataset, where it is not ours."""
SWEPT = ("temperature", "top_p")
MEANS_TIED = (
    "Mean speedups of two methods are tied, too, where the autoregressive arms of either decoding lie as far apart."
)
NO_HARDWARE = "The paper does not state its hardware: speedups are judged by order alone."


def found_blocks(results: Results, paper: pd.DataFrame, *, greedy: bool = True, sampled: bool = True) -> list[Block]:
    """The blocks of the paper's decodings, stand-ins set against the models of these published rows.

    A block holds `greedy` decoding and what is `sampled` as the paper samples, or one of them.
    """
    keep = (is_greedy(results.runs) & greedy) | (is_sampled(results.runs) & sampled)
    found = blocks(replace(results, runs=results.runs[keep]), across=SWEPT)
    return [standing_in(replace(block, results=results), paper) for block in found]


def standing_in(block: Block, paper: pd.DataFrame) -> Block:
    """The block, if it is a stand-in for models that are not printed: for the first that are, with a draft."""
    printed = set(zip(paper["target"], paper["draft"], strict=True))
    return block if block.published_as in printed else block.standing_in(drafted(paper))


def of_main_pair(block: Block) -> Block:
    """A stand-in, for the pair of Table 1: the paper states no models of Figures 3 and 5 and of Table 5."""
    return standing_in(block, published.find(PAPER, "table1"))


def published_dataset(block: Block) -> str:
    """The name of a block's dataset in the published rows."""
    name = str(block.first["dataset"])
    return DATASETS.get(name, name)


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
