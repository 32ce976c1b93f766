"""OPT-Tree, Tables 1 to 3: each method of a block beside the paper's number, with a verdict.

Of a method that was run at several tree sizes every size is a row; the one with the largest speedup is marked and set
against the paper, which prints its best n of 25, 50 and 60. Published numbers stand beside ours as the paper's script
counts (steps - 1 a turn, prefill in the time), and are judged against those.
"""

from __future__ import annotations

from collections.abc import Iterable

import pandas as pd

from bench import published
from bench.artifacts import control, definitions, tables, ties
from bench.artifacts.blocks import Block, blocks
from bench.artifacts.metric import SPEEDS, legend
from bench.artifacts.outputs import Output
from bench.artifacts.speedups.settings import who
from bench.artifacts.tables import Table
from bench.artifacts.wording import draft_temperatures, models, scale, setting
from bench.papers.opt_tree.rows import COLUMNS, BlockRows
from bench.results.store import Results

PAPER = "opt_tree"
TABLES = {
    "table1": "OPT-Tree Table 1: MT-Bench, greedy",
    "table2": "OPT-Tree Table 2: GSM8K, greedy",
    "table3": "OPT-Tree Table 3: MT-Bench, temperature 1",
}
LEGEND = {
    "Tree size n": f"{definitions.SIZE}; (best) has the largest speedup with prefill, as the paper chooses; "
    "other n have no marks",
    "MAL": definitions.MAL,
    "MAL as published": "new tokens / (steps - 1 of each turn), as the paper's script counts: the same tokens as MAL, "
    "the one drawn from the prefill left out; the published MAL stands beside it and is judged against it. It exceeds "
    "MAL the more, the shorter the answers are (the paper's have up to 1,024 tokens)",
    **legend(SPEEDS),
    "tokens/s with prefill": "decoded tokens / seconds of prefill and decoding: the paper's script times both and "
    "leaves the token drawn from the prefill out; the published tokens/s are judged against it",
    "speedup": definitions.CONTROLLED_SPEEDUP,
    "speedup with prefill": "tokens/s with prefill of method / autoregressive, paired: the paper calculates speedups "
    "from its generation speeds, so that the published ones are judged against it",
    "lossless": f"{definitions.LOSSLESS}; at temperature 0 also the share of outputs identical to the target's own",
    "verdict MAL": f"{definitions.VERDICT}; the paper chose n of several by speedup and does not print which: of MAL "
    "there is a verdict where all of these n were run and give the same, else other tree",
}


def paper_table(artifact: str, results: Results) -> list[Output]:
    """One of the paper's tables: the blocks that were run, or all of the paper's rows if none was."""
    paper, found = published.find(PAPER, artifact), blocks(results)
    missing = _missing(paper, found)
    if not found:
        groups = [BlockRows(names, _of_models(paper, names)) for names in missing]
        return [_table(artifact, f"{TABLES[artifact]} (not run)", groups, ())]
    left_out = ", ".join(models(*names) for names in missing)
    notes = (*_notes(paper, found), *([f"Not run: {left_out}."] if missing else []))
    return [_table(artifact, f"{TABLES[artifact]} ({setting(found)})", [_rows(paper, block) for block in found], notes)]


def dataset_table(name: str, results: Results) -> list[Output]:
    """The same table for any dataset: beside it what the paper's tables have for that setting, if anything."""
    paper, found = published.load(PAPER), blocks(results)
    paper = paper[paper["artifact"].isin(list(TABLES))]
    title = f"Trees on {setting(found)}"
    return [_table(name, title, [_rows(paper, block) for block in found], tuple(_notes(paper, found)))]


def _table(name: str, title: str, groups: Iterable[BlockRows], notes: tuple[str, ...]) -> Table:
    pairs = [pair for group in groups for pair in group]
    frame = tables.frame([row for row, _ in pairs], COLUMNS)
    return Table(name, title, frame, (*notes, *ties.note(frame)), LEGEND, tuple(run for _, run in pairs))


def _rows(paper: pd.DataFrame, block: Block) -> BlockRows:
    runs = block.every
    return BlockRows(_names(block), _of_setting(paper, block), runs, block.stand_in, str(block.first["device_name"]))


def _of_setting(paper: pd.DataFrame, block: Block) -> pd.DataFrame:
    """The paper's rows for the block's models, prompts and temperature; empty if it has none."""
    rows = _of_models(paper, block.published_as or ("", ""))
    return rows[(rows["dataset"] == block.first["dataset"]) & (rows["temperature"] == block.first["temperature"])]


def _of_models(paper: pd.DataFrame, names: tuple[str, str]) -> pd.DataFrame:
    return paper[(paper["target"] == names[0]) & paper["draft"].isin(["none", names[1]])]


def _missing(paper: pd.DataFrame, found: list[Block]) -> list[tuple[str, str]]:
    """Models of the paper's table that no block is set against, in its order."""
    pairs = paper[paper["draft"] != "none"].drop_duplicates(["target", "draft"])
    done = {block.published_as for block in found}
    return [names for names in zip(pairs["target"], pairs["draft"], strict=True) if names not in done]


def _notes(paper: pd.DataFrame, found: list[Block]) -> Iterable[str]:
    for block in found:
        hardware = " / ".join(_of_setting(paper, block)["hardware"].unique())
        yield scale(block) + (f" Published: {hardware}." if hardware else " The paper has no numbers for this setting.")
        if block.stand_in:
            yield (
                f"{block.pair} stands in for the paper's models: absolute values are not comparable: other models; "
                "rows are judged by their order."
            )
    yield from draft_temperatures(run for block in found for run in block.ok)
    yield from control.notes(found)


def _names(block: Block) -> tuple[str, str]:
    mark = f" [{block.mark}]" if block.mark else ""
    names = who(block)
    return names["Target"] + mark, names["Draft"]
