"""What was decoded, in words: by category, how much of it repeats itself, and how it begins."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd

from bench.artifacts.blocks import Block
from bench.artifacts.tables import Table
from bench.results.rows import AUTOREGRESSIVE, METHOD
from bench.statistics import metrics

LOOPS = 0.5
"""Share of repeated 4-grams from which an output is called a loop; texts of people have a few percent."""


def categories(block: Block) -> str:
    """`1 each of writing, roleplay` or `3 of writing, 2 of roleplay`; nothing where there are no two."""
    rows = _prompts(block).drop_duplicates("prompt_id")
    counts = rows["category"].value_counts(sort=False)
    if len(counts) < 2:
        return ""
    if counts.nunique() == 1:
        return f"{counts.iloc[0]} each of {', '.join(map(str, counts.index))}"
    return ", ".join(f"{count} of {name}" for name, count in counts.items())


def repetition(block: Block) -> str:
    """A sentence: the share of repeated 4-grams in both arms, and which runs are above `LOOPS`; "" without a run."""
    prompts = _prompts(block)
    arms = {"the method outputs'": METHOD, "the autoregressive": AUTOREGRESSIVE}
    shares = {words: metrics.repeated_4grams(prompts, arm) for words, arm in arms.items()}
    said = ", ".join(f"{share:.0%} of {words}" for words, share in shares.items() if share == share)
    by_run = {run.drafter: metrics.repeated_4grams(run.prompts, METHOD) for run in block.ok}
    loops = [drafter for drafter, share in by_run.items() if share >= LOOPS]
    which = "every run" if len(loops) == len(by_run) else ", ".join(loops)
    marked = f"; loops ({LOOPS:.0%} or more): {which}" if loops else ""
    return f"Repeated 4-grams: {said}{marked}." if said else ""


def shown(runs: pd.DataFrame, table: Table) -> Table:
    """The table with a note: the excerpt of the first of its runs that has one; itself where none has."""
    known = runs[runs["run_id"].isin(list(table.run_ids)) & runs["excerpt"].notna()]
    if known.empty:
        return table
    run = known.iloc[0]
    text = f'What was decoded, for instance ({run["pair"]}, {run["dataset"]}): "{run["excerpt"]}"'
    return replace(table, notes=(*table.notes, text))


def _prompts(block: Block) -> pd.DataFrame:
    """The turns of all runs of a block that ended well."""
    every, runs = block.results.prompts, [run.run_id for run in block.ok]
    return every[every["run_id"].isin(runs) & (every["status"] == "ok")]
