"""Runs of this repository under the names of engines."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from specdec_trees.engines.records import NAMES, Record
from specdec_trees.results import store
from specdec_trees.results.rows import AUTOREGRESSIVE, METHOD, OK
from specdec_trees.statistics import metrics, positions

_STEPS = ("run_id", "prompt_id", "turn", "num_drafted", "depth", "num_accepted", "acceptance_length", "accepted_ranks")
_NODES = ("run_id", "prompt_id", "turn", "depth", "rank", "parent_accepted")


@dataclass(frozen=True, slots=True)
class Run:
    """A run that drafted, of one experiment, with the turns of its method, their steps and the recorded nodes."""

    experiment: str
    row: pd.Series
    prompts: pd.DataFrame
    steps: pd.DataFrame
    nodes: pd.DataFrame

    @property
    def record(self) -> Record:
        """What an engine would have counted."""
        return _record(self.steps)

    @property
    def virtual(self) -> bool:
        """Whether trees begin at the target's own distribution, so that a step has no token beside the path."""
        return str(self.row["draws"]).startswith("target")


def runs_of(folder: Path, start: str = "") -> Iterator[Run]:
    """The runs of a folder that ended well and drafted, whose id begins so; each once, of its first experiment."""
    root, name = store.located(folder)
    seen: set[str] = set()
    for one in store.experiments(root, "runs"):
        if not f"{one.experiment}/".startswith(f"{name}/" if name else ""):
            continue
        results = store.load(root, one.experiment, only={"steps": _STEPS, "nodes": _NODES})
        tables = [dict(list(rows.groupby("run_id"))) for rows in (results.prompts, results.steps, results.nodes)]
        for _, row in results.runs[results.runs["status"] == OK].iterrows():
            key = str(row["run_id"])
            if key in seen or row["method"] == AUTOREGRESSIVE or not key.startswith(start) or key not in tables[1]:
                continue
            seen.add(key)
            prompts, steps, nodes = (rows.get(key, results.nodes[:0]) for rows in tables)
            yield Run(one.experiment, row, prompts[prompts["arm"] == METHOD], steps, nodes)


def exported(run: Run, engine: str) -> dict[str, Any]:
    """The object of a run: its labels, acceptance by position and by depth and rank, and the engine's own record.

    A virtual root has no record: its steps begin with a token that the target drew.
    """
    labels = {name: run.row[name] for name in ("run_id", "pair", "dataset", "drafter", "verifier")}
    record, ranks, tested = run.record, positions.accepted_by_rank(run.steps), positions.tested_by_rank(run.nodes)
    by_rank = {"accepted": ranks, "tested": tested}
    found = {
        **labels,
        "experiment": run.experiment,
        "temperature": float(run.row["temperature"]),
        "mal": metrics.mal(run.steps),
        "by_position": {"joint": record.joint, "conditional": record.conditional},
        "by_depth_and_rank": {name: None if counts is None else counts.tolist() for name, counts in by_rank.items()},
    }
    if run.virtual:
        return found | {engine: None, "why": "trees begin at the target's own token, which no engine's count has"}
    own: Any = _named(run.steps, engine) if engine != "aiperf" else [*_requests(run)]
    return found | {engine: own}


def _record(steps: pd.DataFrame) -> Record:
    rows = positions.drafting(steps)
    reached = positions.reached(positions.histogram(steps))
    return Record(int(rows["num_drafted"].sum()), int(rows["num_accepted"].sum()), len(rows), tuple(reached))


def _named(steps: pd.DataFrame, engine: str) -> dict[str, Any]:
    """What an engine counts of these steps, under its names."""
    record, counts = _record(steps), positions.histogram(steps)
    known = {name: getattr(record, name) for name in ("steps", "drafted", "accepted", "reached", "length", "rate")}
    known |= {"joint": record.joint, "depth": len(counts) - 1}
    known |= {"counts": {str(accepted): count for accepted, count in enumerate(counts) if count}}
    return {names[engine]: known[name] for name, names in NAMES.items() if engine in names}


def _requests(run: Run) -> Iterator[dict[str, Any]]:
    """AIPerf's record of each turn, which it calls a request."""
    of_turn = dict(list(run.steps.groupby(["prompt_id", "turn"])))
    turns = zip(*(run.prompts[name] for name in ("prompt_id", "turn", "num_new_tokens")), strict=True)
    for prompt, turn, tokens in turns:
        labels = {"engine": "specdec-trees", "prompt_id": prompt, "turn": int(turn), "completion_tokens": int(tokens)}
        if (prompt, turn) in of_turn:
            yield labels | _named(of_turn[prompt, turn], "aiperf")
