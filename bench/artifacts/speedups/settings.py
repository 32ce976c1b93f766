"""The settings of a paper's table: its rows for a block of ours, all where nothing was run, and their words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pandas as pd

from bench.artifacts import tables
from bench.artifacts.blocks import NO_DRAFT, Block
from bench.artifacts.wording import models

ITSELF = "itself"
"""What stands under Draft where the target drafts for itself."""


def drafted(paper: pd.DataFrame) -> pd.DataFrame:
    """The rows about a target with a draft."""
    return paper[paper["draft"] != NO_DRAFT]


def setting_of(paper: pd.DataFrame, match: Sequence[str], block: Block) -> pd.DataFrame:
    """The paper's rows for a block's models and for what it has in the columns of `match`; empty if there are none."""
    target, draft = block.published_as or ("", "")
    keep = (paper["target"] == target) & paper["draft"].isin([draft, NO_DRAFT])
    for column in match:
        keep &= paper[column] == block.first[column]
    return paper[keep]


def settings(paper: pd.DataFrame, match: Sequence[str]) -> Iterator[tuple[dict[str, str], pd.DataFrame]]:
    """All rows of the paper's table: the words for the setting, and its published rows."""
    with_draft = drafted(paper)
    columns = ["target", *match]
    for _, rows in with_draft.groupby(["draft", *columns], sort=False):
        first = rows.iloc[0]
        alone = paper[(paper["draft"] == NO_DRAFT) & (paper[columns] == first[columns]).all(axis=1)]
        who = {"Target": first["target"], "Draft": first["draft"], "Dataset": first["dataset"]}
        yield who | sampling(first, match), pd.concat([rows, alone])


def sampling(row: pd.Series, match: Sequence[str]) -> dict[str, str]:
    """What stands under temperature, and under top-p where the paper states it, for a row of the paper's or of ours."""
    words = {"temperature": tables.ABSENT if pd.isna(row["temperature"]) else f"{row['temperature']:g}"}
    return words | ({"top-p": f"{row['top_p']:.1f}"} if "top_p" in match else {})


def who(block: Block) -> dict[str, str]:
    """What stands in a row under Target, Draft and Dataset."""
    target, draft = block.published_as or (block.pair, block.pair)
    if block.stand_in:
        target, draft = f"{block.pair} (for {target})", draft if draft == NO_DRAFT else f"{block.pair} (for {draft})"
    draft = ITSELF if draft == NO_DRAFT else draft
    return {"Target": target, "Draft": draft, "Dataset": str(block.first["dataset"])}


def stand_ins(found: Sequence[Block]) -> Iterator[str]:
    """A sentence for every pair that stands in for others."""
    for pair in dict.fromkeys(block.pair for block in found if block.stand_in):
        yield f"{pair} stands in for the paper's models: absolute values are not comparable; rows are judged by order."


def left_out(paper: pd.DataFrame, found: Sequence[Block]) -> Iterator[str]:
    """A sentence on the paper's models that no block is set against; none where nothing was run at all."""
    done = {block.published_as for block in found}
    missing = dict.fromkeys(zip(paper["target"], paper["draft"], strict=True)) if found else {}
    if left := [models(*names) for names in missing if names not in done]:
        yield f"Not run: {', '.join(left)}."
