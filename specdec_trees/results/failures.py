"""Conversations that failed: a turn could not be decoded, so that none of their turns counts, in either arm.

The first turn of a conversation that failed in its second is decoded, but other methods may have decoded both: a mean
over turns would then be of other prompts. Of runs that stand beside each other a conversation counts if all have it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping

import pandas as pd

from specdec_trees.results.rows import OK

NOTE = (
    "A conversation in which any turn failed, in any of these runs, counts in no number here, in either arm, its "
    "earlier turns included: all rows are of the same conversations."
)
_SELECTION, _CONVERSATION = ["pair", "prompts_sha256"], ["run_id", "prompt_id"]


def failed(prompts: pd.DataFrame) -> pd.DataFrame:
    """The rows of turns that could not be decoded."""
    return prompts[prompts["status"] != OK]


def whole(rows: pd.DataFrame, prompts: pd.DataFrame) -> pd.DataFrame:
    """The rows of a run that are of conversations without a failed turn; `prompts` are all turns of the run."""
    return rows[~rows["prompt_id"].isin(set(failed(prompts)["prompt_id"]))]


def common(runs: pd.DataFrame, tables: Mapping[str, pd.DataFrame]) -> tuple[dict[str, pd.DataFrame], pd.DataFrame]:
    """The tables of conversations that no run of the same pair and prompts failed in, and the rows that tell why.

    Runs that did not end well take part in no comparison, and leave nothing out.
    """
    selection = runs.loc[runs["status"] == OK, ["run_id", *_SELECTION]]
    lost = failed(tables["prompts"]).merge(selection, on="run_id")
    if lost.empty:
        return dict(tables), lost
    keys = lost[[*_SELECTION, "prompt_id"]].drop_duplicates()
    left_out = pd.MultiIndex.from_frame(selection.merge(keys, on=_SELECTION)[_CONVERSATION])
    counted = {
        name: rows[~pd.MultiIndex.from_frame(rows[_CONVERSATION]).isin(left_out)].reset_index(drop=True)
        for name, rows in tables.items()
    }
    return counted, lost


def errors(lost: pd.DataFrame) -> dict[str, str]:
    """Of each conversation among failed turns why it failed."""
    return dict(zip(lost["prompt_id"], lost["error"].astype(str), strict=True))


def sentence(errors: Mapping[str, str], total: int) -> str:
    """`4 of 8 conversations failed: the draft has 256 positions.`; reasons by the number of their conversations.

    `errors` are by conversation, `total` counts those that were asked for. Empty where nothing failed.
    """
    if not errors:
        return ""
    reasons = [error.partition(";")[0].partition(",")[0] for error in errors.values()]
    kinds = Counter(map(_kind, reasons))
    words = {_kind(reason): reason for reason in reversed(reasons)}
    told = [words[kind] + (f" ({count})" if len(kinds) > 1 else "") for kind, count in kinds.most_common()]
    return f"{len(errors)} of {total} conversations failed: {'; '.join(told)}."


def _kind(reason: str) -> str:
    """A reason without what is of one prompt alone."""
    return re.sub(r"\d+ tokens", "tokens", reason)
