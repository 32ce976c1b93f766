"""The settings of a paper's table: its rows for one of our blocks, and all of them where nothing was run."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from bench.report import tables
from bench.report.blocks import Block
from bench.report.speedups.arms import params_of
from bench.report.speedups.layout import Layout

_NO_DRAFT = "none"
"""The draft of a row about the target alone, such as its plain decoding."""


def drafted(paper: pd.DataFrame) -> pd.DataFrame:
    """The rows about a target with a draft."""
    return paper[paper["draft"] != _NO_DRAFT]


def setting_of(paper: pd.DataFrame, layout: Layout, block: Block) -> pd.DataFrame:
    """The paper's rows for a block's models, prompts and decoding; empty if it has none."""
    target, draft = block.published_as or ("", "")
    keep = (paper["target"] == target) & paper["draft"].isin([draft, _NO_DRAFT])
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
        alone = paper[(paper["draft"] == _NO_DRAFT) & (paper[columns] == first[columns]).all(axis=1)]
        who = {"Target": first["target"], "Draft": first["draft"], "Dataset": first["dataset"]}
        who["temperature"] = tables.ABSENT if pd.isna(first["temperature"]) else f"{first['temperature']:g}"
        yield who | ({"top-p": params_of(first["params"])["top_p"]} if layout.top_p else {}), pd.concat([rows, alone])


def _top_p(rows: pd.DataFrame) -> pd.Series:
    values = [float(params_of(text).get("top_p", "nan")) for text in rows["params"]]
    return pd.Series(values, index=rows.index, dtype=float, name="top_p")
