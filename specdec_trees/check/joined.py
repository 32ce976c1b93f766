"""A folder's tables, joined so that a rule reads one frame: steps with their turns, turns with their cells."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from specdec_trees.results.rows import AUTOREGRESSIVE, METHOD, OK

TURN = ["run_id", "prompt_id", "turn"]
_OF_RUN = (
    *("run_status", "target_id", "target_revision", "temperature", "max_new_tokens", "ignore_eos", "recording"),
    *("device_name", "dtype", "torch_version", "driver_version", "lossless", "baseline_of", "draws", "limit"),
    *("data", "template", "room", "parameters", "class", "cpu", "recent"),
)
GRAPHS = ("TokenGraph", "AdaptiveExit", "MergeProbe")
"""Drafters whose trees come from a token graph."""
LENT = ("prefill_s", "decode_s", "wall_s", "output_sha256", "num_steps")
"""Of a turn of the target alone, what a cell that borrows it has too."""
_OURS = "specdec_core.drafters."


@dataclass(frozen=True, slots=True)
class Joined:
    """Frames of one experiment: `runs` with their configs' values, `prompts` with their run's, `steps` with both."""

    runs: pd.DataFrame
    prompts: pd.DataFrame
    steps: pd.DataFrame
    nodes: pd.DataFrame


def joined(tables: Mapping[str, pd.DataFrame]) -> Joined:
    """Of tables as they are read; a config that is none has no values."""
    runs = _runs(tables["runs"])
    prompts = _prompts(runs, tables["prompts"])
    steps = _steps(prompts, tables["steps"])
    return Joined(runs, prompts, steps, _nodes(steps, tables["nodes"]))


def _runs(runs: pd.DataFrame) -> pd.DataFrame:
    configs = [_config(text) for text in runs["config"]]
    drafters = [config.get("drafter") or {} for config in configs]
    plain = {
        "run_status": [*runs["status"]],
        "limit": [config.get("limit") for config in configs],
        "data": [json.dumps(config.get("dataset"), sort_keys=True) for config in configs],
        "room": [(config.get("dataset") or {}).get("max_total_tokens") for config in configs],
        "template": [json.dumps((config.get("pair") or {}).get("template")) for config in configs],
        "parameters": drafters,
        "class": [str(drafter.get("_target_", "")).removeprefix(_OURS) for drafter in drafters],
        "configs": configs,
    }
    frame = runs.assign(**{name: pd.Series(values, runs.index, dtype=object) for name, values in plain.items()})
    for role in ("target", "draft"):
        digests = [((config.get("pair") or {}).get(role) or {}).get("files_sha256") for config in configs]
        files = pd.Series(digests, runs.index, dtype=object)
        frame[f"{role}_files"] = files.map(lambda one: f"files:{one}", na_action="ignore")
    return frame.assign(
        limit=pd.to_numeric(frame["limit"]),
        room=pd.to_numeric(frame["room"]),
        cpu=frame["driver_version"].isna() & frame["cuda_version"].isna(),
        recent=frame["graphs"].notna(),
    )


def _config(text: str) -> dict[str, Any]:
    try:
        config = json.loads(text)
    except ValueError:
        return {}
    return config if isinstance(config, dict) else {}


def _prompts(runs: pd.DataFrame, prompts: pd.DataFrame) -> pd.DataFrame:
    rows = prompts.merge(runs[["run_id", *_OF_RUN]].drop_duplicates("run_id"), on="run_id")
    rows = rows.assign(
        ok=rows["status"] == OK,
        method=rows["arm"] == METHOD,
        timed=(rows["status"] == OK) & rows["recording"].isna(),
        greedy=rows["temperature"] == 0,
        virtual=rows["draws"].str.startswith("target"),
        share=rows["decode_s"] / rows["wall_s"],
    )
    arms = (rows[rows["arm"] == arm].set_index(TURN) for arm in (METHOD, AUTOREGRESSIVE))
    method, alone = (arm[~arm.index.duplicated()] for arm in arms)
    index = pd.MultiIndex.from_frame(rows[TURN])
    beside = {
        f"{column}_{name}": arm[column].reindex(index).to_numpy()
        for name, arm in (("method", method), ("alone", alone))
        for column in (
            *("prompt_ids_sha256", "num_prompt_tokens", "finish", "repeats", "contaminated", "start", "prefill_s"),
        )
    }
    lenders = pd.MultiIndex.from_frame(rows[["baseline_of", "prompt_id", "turn"]])
    beside |= {f"{column}_lender": alone[column].reindex(lenders).to_numpy() for column in LENT}
    rows = rows.assign(**beside, paired=index.isin(alone.index))
    return rows.assign(identical_turn=method["identical"].reindex(index).to_numpy())


def _steps(prompts: pd.DataFrame, steps: pd.DataFrame) -> pd.DataFrame:
    of_turn = [*TURN, "num_new_tokens", "num_decoded_tokens", "finish", "virtual", "timed", "class", "recent", "cpu"]
    of_turn += ["parameters", "prompt_ids_sha256"]
    turns = prompts.loc[prompts["method"], of_turn].drop_duplicates(TURN).reset_index(drop=True)
    theirs, parameters = turns["class"].str.contains(".", regex=False), turns["parameters"]
    turns = turns.assign(
        turn_code=turns.index,
        cell=pd.factorize(turns["run_id"])[0],
        prompt=pd.factorize(turns["prompt_ids_sha256"])[0],
        size=[*map(_size, parameters)],
        foreign=theirs,
        has_graph=theirs | turns["class"].isin(GRAPHS),
        has_decision=theirs | parameters.map(lambda one: bool(one.get("decision"))).astype(bool),
        has_parts=theirs | parameters.map(lambda one: bool(one.get("record_parts"))).astype(bool),
    )
    rows = steps.merge(turns.drop(columns=["parameters", "prompt_ids_sha256"]), on=TURN)
    ranks, visited = rows["accepted_ranks"], rows["visited_children"]
    num_ranks, num_visited = lengths(ranks), lengths(visited)
    return rows.assign(
        last=rows.groupby("turn_code")["step"].transform("max") == rows["step"],
        beyond=rows["acceptance_length"] - rows["num_accepted"],
        ranked=num_ranks >= 0,
        num_ranks=num_ranks,
        sum_ranks=_sums(ranks, num_ranks),
        num_visited=num_visited,
        sum_visited=_sums(visited, num_visited),
        parts=rows[["decision_s", "choice_s", "sampling_s", "layout_s"]].sum(axis=1),
    )


def _nodes(steps: pd.DataFrame, nodes: pd.DataFrame) -> pd.DataFrame:
    """Of every step that has nodes their number, and how many were accepted; the root is none of them."""
    key = [*TURN, "step"]
    rows = nodes.groupby(key).agg(
        num_nodes=("node", "size"), accepted_nodes=("accepted", "sum"), deepest=("depth", "max")
    )
    return rows.reset_index().merge(steps[[*key, "num_drafted", "num_accepted", "depth"]], on=key, how="left")


def lengths(lists: pd.Series) -> np.ndarray:
    """How long each list is; -1 where there is none."""
    return np.fromiter((len(one) if np.ndim(one) else -1 for one in lists), int, len(lists))


def _sums(lists: pd.Series, sizes: np.ndarray) -> np.ndarray:
    """Sums of lists of numbers from 0 on, 0 where there is none; a negative number counts as a large one."""
    numbers = np.concatenate([np.zeros(0, int), *lists[sizes > 0]])
    places = np.repeat(np.arange(len(lists)), np.maximum(sizes, 0))
    return np.bincount(places, np.where(numbers < 0, 1 << 30, numbers), len(lists)).astype(int)


def _size(drafter: Mapping[str, Any]) -> float:
    """The most nodes that a drafter's config allows a tree; infinite where it does not say."""
    sizes = (drafter.get(key) for key in ("n", "total", "verify_cap"))
    return next((float(size) for size in sizes if isinstance(size, int)), float("inf"))
