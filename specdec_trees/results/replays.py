"""A cell that was decoded, and replayed on more prompts: its times are of the first, acceptance is of all."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence

import pandas as pd

from specdec_trees.results.rows import AUTOREGRESSIVE, METHOD, OK

_WEIGHTS = ("target_revision", "draft_revision", "dtype")
"""Columns of `runs` in which both agree as far as both know them, beside those that make them one cell."""


def joined(
    runs: pd.DataFrame,
    replayed: pd.DataFrame,
    tables: Mapping[str, pd.DataFrame],
    cell: Sequence[str],
    block: Sequence[str],
    read: Callable[[str, Sequence[str]], pd.DataFrame],
) -> tuple[pd.DataFrame, dict[str, pd.DataFrame]]:
    """The runs and tables, with rows of conversations that replays of the same cells have beside them.

    Runs that agree in the columns `block` are compared with each other: to all of them the same conversations are
    added, or none, where a method was not replayed on them or saw other tokens in a first turn. Later turns see
    answers, in which a tie may be broken otherwise. A joined run's `recording` and `num_conversations` are of all its
    rows, `prompts_sha256` of those decoded; `run_ids` names both runs, `replay_device` where the replay ran. `read`
    gives a table's rows of some runs.
    """
    runs = runs.assign(run_ids=runs["run_id"], replay_device="")
    if replayed.empty:
        return runs, dict(tables)
    decoded = runs[runs["recording"].isna() & (runs["status"] == OK)]
    partners = _partners(decoded, replayed, cell)
    asked = _of_runs(read("prompts", list(partners["run_id_replayed"].unique())))
    known, pairs = _of_runs(tables["prompts"]), {}
    for _, group in decoded.groupby(list(block), dropna=False, sort=False):
        pairs.update(_together(group, partners, known, asked))
    if not pairs:
        return runs, dict(tables)
    steps = _of_runs(read("steps", list(pairs.values())))
    more = {table: [rows] for table, rows in tables.items()}
    for run_id, partner in pairs.items():
        decoded_before = set(known[run_id]["prompt_id"])
        both = asked[partner], steps.get(partner, tables["steps"].iloc[:0])
        turns, taken = (rows[~rows["prompt_id"].isin(decoded_before)] for rows in both)
        more["prompts"].append(turns.assign(run_id=run_id))
        more["steps"].append(taken.assign(run_id=run_id))
        failed, place = turns.loc[turns["status"] != OK, "prompt_id"].nunique(), runs["run_id"] == run_id
        replay = replayed.loc[replayed["run_id"] == partner].iloc[0]
        runs.loc[place, "recording"] = replay["recording"]
        runs.loc[place, "run_ids"] = f"{run_id} {partner}"
        runs.loc[place, "replay_device"] = replay["device_name"]
        runs.loc[place, "num_conversations"] += turns["prompt_id"].nunique() - failed
        runs.loc[place, "num_failed"] += failed
    return runs, {table: pd.concat(several, ignore_index=True) for table, several in more.items()}


def _of_runs(rows: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """The rows of each run."""
    return {str(run_id): own for run_id, own in rows.groupby("run_id")}


def _partners(decoded: pd.DataFrame, replayed: pd.DataFrame, cell: Sequence[str]) -> pd.DataFrame:
    """Of each run that was decoded the replays of the same cell and weights, those of most conversations first."""
    needed = list(dict.fromkeys([*cell, "run_id", "config", "prompts_sha256", "num_conversations", *_WEIGHTS]))
    both = decoded[needed].merge(replayed[needed], on=list(cell), suffixes=("", "_replayed"))
    for column in _WEIGHTS:
        own, other = both[column], both[f"{column}_replayed"]
        both = both[own.isna() | other.isna() | (own == other)]
    both = both[both["config"].map(files) == both["config_replayed"].map(files)]
    return both.sort_values("num_conversations_replayed", kind="stable", ascending=False)


def files(config: str) -> tuple[str | None, ...]:
    """The digests of folders that a pair's models are in; older rows have these alone, and no revision."""
    pair = json.loads(config).get("pair") or {}
    return tuple((pair.get(role) or {}).get("files_sha256") for role in ("target", "draft"))


def _together(
    group: pd.DataFrame,
    partners: pd.DataFrame,
    known: Mapping[str, pd.DataFrame],
    asked: Mapping[str, pd.DataFrame],
) -> dict[str, str]:
    """Of each run of a block its replay on the same prompts as the others'; plain decoding may do without."""
    drafting = set(group.loc[group["method"] != AUTOREGRESSIVE, "run_id"])
    partners = partners[partners["run_id"].isin(set(group["run_id"]))]
    for _, same in partners.groupby("prompts_sha256_replayed", sort=False):
        pairs = dict(zip(same["run_id"], same["run_id_replayed"], strict=True))
        alike = (_alike(known[run_id], asked[partner]) for run_id, partner in pairs.items())
        if drafting <= pairs.keys() and all(alike):
            return pairs
    return {}


def _alike(decoded: pd.DataFrame, replayed: pd.DataFrame) -> bool:
    """Whether the first turns of both are of the same tokens, as far as both know them."""
    decoded, replayed = (
        rows.loc[(rows["arm"] == METHOD) & (rows["turn"] == 0), ["prompt_id", "prompt_ids_sha256"]]
        for rows in (decoded, replayed)
    )
    both = decoded.merge(replayed, on="prompt_id", suffixes=("", "_replayed"))
    own, other = both["prompt_ids_sha256"], both["prompt_ids_sha256_replayed"]
    return bool((own.isna() | other.isna() | (own == other)).all())
