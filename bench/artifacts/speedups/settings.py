"""The settings of a paper's table: its rows for a block of ours, all where nothing was run, and their words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pandas as pd

from bench.artifacts import tables
from bench.artifacts.blocks import NO_DRAFT, Block
from bench.artifacts.speedups.arms import params_of
from bench.artifacts.speedups.layout import Layout
from bench.artifacts.wording import models

ITSELF = "itself"
"""What stands under Draft where the target drafts for itself."""


def drafted(paper: pd.DataFrame) -> pd.DataFrame:
    """The rows about a target with a draft."""
    return paper[paper["draft"] != NO_DRAFT]


def setting_of(paper: pd.DataFrame, layout: Layout, block: Block) -> pd.DataFrame:
    """The paper's rows for a block's models, prompts and decoding; empty if it has none."""
    target, draft = block.published_as or ("", "")
    keep = (paper["target"] == target) & paper["draft"].isin([draft, NO_DRAFT])
    for column in layout.match:
        keep &= paper[column] == block.first[column]
    rows = paper[keep]
    return rows[_top_p(rows) == float(block.first["top_p"])] if layout.top_p else rows


def settings(paper: pd.DataFrame, layout: Layout) -> Iterator[tuple[dict[str, str], pd.DataFrame]]:
    """All rows of the paper's table: the words for the setting, and its published rows."""
    with_draft = drafted(paper)
    columns = ["target", *layout.match]
    keys = [with_draft["draft"], *(with_draft[column] for column in columns)]
    keys += [_top_p(with_draft)] if layout.top_p else []
    for _, rows in with_draft.groupby(keys, sort=False):
        first = rows.iloc[0]
        alone = paper[(paper["draft"] == NO_DRAFT) & (paper[columns] == first[columns]).all(axis=1)]
        who = {"Target": first["target"], "Draft": first["draft"], "Dataset": first["dataset"]}
        who["temperature"] = tables.ABSENT if pd.isna(first["temperature"]) else f"{first['temperature']:g}"
        yield who | ({"top-p": params_of(first["params"])["top_p"]} if layout.top_p else {}), pd.concat([rows, alone])


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


def _top_p(rows: pd.DataFrame) -> pd.Series:
    values = [float(params_of(text).get("top_p", "nan")) for text in rows["params"]]
    return pd.Series(values, index=rows.index, dtype=float, name="top_p")
