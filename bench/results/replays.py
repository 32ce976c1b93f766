"""A cell that was decoded, and replayed on more prompts: its times are of the first, acceptance is of all."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import pandas as pd

from bench.results.rows import METHOD, OK

TABLES = ("prompts", "steps")
"""What a replay has rows of."""
_WEIGHTS = ("target_revision", "draft_revision", "dtype")
"""Columns of `runs` in which both agree as far as both know them, beside those that make them one cell."""


def joined(
    runs: pd.DataFrame,
    replayed: pd.DataFrame,
    tables: Mapping[str, pd.DataFrame],
    cell: Sequence[str],
    read: Callable[[str, Sequence[str]], pd.DataFrame],
) -> tuple[pd.DataFrame, dict[str, pd.DataFrame]]:
    """The runs and tables, with rows of conversations that replays of the same cells have beside them.

    Such a run's `recording` and `num_conversations` are then of all its rows, `prompts_sha256` of those decoded. A
    replay is passed over where a first turn of both is of other tokens; later ones see answers, in which a tie may be
    broken otherwise. `read` gives a table's rows of some runs.
    """
    runs, more = runs.copy(), {table: [rows] for table, rows in tables.items()}
    for run_id, partner in _partners(runs, replayed, cell).items():
        prompts = tables["prompts"][tables["prompts"]["run_id"] == run_id]
        others = {table: read(table, [partner]) for table in TABLES}
        if not _alike(prompts, others["prompts"]):
            continue
        for table, rows in others.items():
            new = rows[~rows["prompt_id"].isin(set(prompts["prompt_id"]))]
            more[table].append(new.assign(run_id=run_id))
        place = runs["run_id"] == run_id
        turns = more["prompts"][-1]
        failed = turns.loc[turns["status"] != OK, "prompt_id"].nunique()
        runs.loc[place, "recording"] = replayed.loc[replayed["run_id"] == partner, "recording"].iloc[0]
        runs.loc[place, "num_conversations"] += turns["prompt_id"].nunique() - failed
        runs.loc[place, "num_failed"] += failed
    return runs, {table: pd.concat(several, ignore_index=True) for table, several in more.items()}


def _partners(runs: pd.DataFrame, replayed: pd.DataFrame, cell: Sequence[str]) -> dict[str, str]:
    """Of each run that was decoded the replay with most conversations, of the same cell and weights."""
    decoded = runs[runs["recording"].isna() & (runs["status"] == OK)]
    both = decoded.merge(replayed, on=list(cell), suffixes=("", "_replayed"))
    for column in _WEIGHTS:
        own, other = both[column], both[f"{column}_replayed"]
        both = both[own.isna() | other.isna() | (own == other)]
    both = both.sort_values("num_conversations_replayed", kind="stable").drop_duplicates("run_id", keep="last")
    return dict(zip(both["run_id"], both["run_id_replayed"], strict=True))


def _alike(decoded: pd.DataFrame, replayed: pd.DataFrame) -> bool:
    """Whether the first turns of both are of the same tokens, as far as both know them."""
    decoded, replayed = (rows[(rows["arm"] == METHOD) & (rows["turn"] == 0)] for rows in (decoded, replayed))
    both = decoded.merge(replayed, on="prompt_id", suffixes=("", "_replayed"))
    own, other = both["prompt_ids_sha256"], both["prompt_ids_sha256_replayed"]
    return bool((own.isna() | other.isna() | (own == other)).all())
