"""What looking at rows cannot tell: a name, a sentence, the columns it is about, and how many rows there are."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import pandas as pd

from specdec_trees.check.joined import Joined
from specdec_trees.check.rules import FAR, FAR_ARM, GPU, GRAPH, LAUNCHES, LEAST_PREFILL
from specdec_trees.results.rows import OK
from specdec_trees.statistics.metrics import PHASES

VERSIONS = ("package_version", "git_revision", "python_version", "torch_version", "transformers_version")
MACHINE = (
    *("device_name", "dtype", "num_threads", "wait_policy", "cuda_version", "driver_version", "attention", "graphs"),
    *("slurm_job_id", "slurm_array_task_id", "other_load", "limit_tokens_per_s", "attention_kernels"),
)
TIMES = ("prefill_s", "decode_s", "wall_s", *(f"{phase}_s" for phase in PHASES))
FILLED = {
    "runs": ("target_revision", "prompt_ids_sha256", "node_order", "ignore_eos", "graphs", "num_starts", "excerpt"),
    "prompts": ("prompt_ids_sha256", "category", "wall_s", "contaminated"),
    "steps": ("accepted_ranks", "expected_acceptance", "layout_s"),
}
"""Columns that files of today fill, where there is something to say."""
OF_TIMED = ("wall_s", "contaminated", "layout_s")
"""Those that replays lack."""


@dataclass(frozen=True, slots=True)
class Unheld:
    """One thing that another run alone, or who ran it, can tell."""

    name: str
    says: str
    columns: Sequence[str]
    count: Callable[[Joined], int]


def _answers(frames: Joined) -> int:
    rows = frames.prompts[frames.prompts["ok"] & frames.prompts["greedy"]]
    return int(rows.groupby(["target_id", "prompt_ids_sha256"], dropna=False)["output_sha256"].nunique().sum())


def _told(rows: pd.DataFrame, columns: Sequence[str]) -> int:
    """Rows in which any of these columns has a value."""
    return int(rows[list(columns)].notna().any(axis=1).sum())


def _last(frames: Joined) -> int:
    return int((frames.steps["last"] & (frames.steps["finish"] == "length")).sum())


def _short(frames: Joined) -> int:
    """Cells of fewer conversations than their limit, or of a dataset of unknown size."""
    runs = frames.runs[frames.runs["status"] == OK]
    return int((~((runs["num_conversations"] + runs["num_failed"]).astype(float) == runs["limit"])).sum())


def _cells(frames: Joined) -> int:
    return len(frames.runs)


def _decoded(frames: Joined) -> int:
    return int(frames.prompts["ok"].sum())


def _timed(frames: Joined) -> int:
    return int(frames.prompts["timed"].sum())


UNHELD = (
    Unheld(
        "greedy answers",
        "tokens that are changed alike wherever the answer stands, in both arms",
        ("output_ids", "output_sha256", "identical", "first_divergence"),
        _answers,
    ),
    Unheld(
        "drawn answers",
        "tokens of sampled outputs, which no other row repeats",
        ("output_ids", "output_sha256"),
        lambda frames: int((frames.prompts["ok"] & ~frames.prompts["greedy"]).sum()),
    ),
    Unheld(
        "steps taken",
        "whether steps were merged, split or exchanged; `--rerun` holds those of first turns against decoding again",
        ("num_accepted", "acceptance_length", "kept", "num_steps"),
        lambda frames: len(frames.steps),
    ),
    Unheld(
        "last steps",
        "what the last step of a cut answer accepted behind its end",
        ("num_accepted", "acceptance_length", "accepted_ranks"),
        _last,
    ),
    Unheld(
        "guesses and trees",
        "whether E(A), ranks, depths, tree sizes, draft forwards and tokens are others within their bounds",
        ("expected_acceptance", "accepted_ranks", "depth", "num_drafted", "draft_forwards", "draft_tokens"),
        lambda frames: len(frames.steps),
    ),
    Unheld(
        "sizes of graphs",
        "sizes and recurrence of token graphs, and calls of decision models",
        (*GRAPH, "decision_calls"),
        lambda frames: _told(frames.steps, (*GRAPH, "decision_calls")),
    ),
    Unheld(
        "all turns",
        "whether conversations have all their turns, and none that was added",
        ("turn",),
        _decoded,
    ),
    Unheld(
        "answers to prompts",
        "whether an answer, with its steps and times, is its own prompt's",
        ("output_ids", "prompt_ids_sha256"),
        _decoded,
    ),
    Unheld(
        "prompts left out",
        "cells of fewer conversations than their limit: whether their dataset has no more",
        ("num_conversations", "limit"),
        _short,
    ),
    Unheld(
        "prompts themselves",
        "texts, lengths, ids, order and categories of prompts, and the template's date",
        ("prompts_sha256", "prompt_id", "dataset_id", "template_date", "category", "num_prompt_tokens"),
        lambda frames: len(frames.prompts),
    ),
    Unheld(
        "scaled times",
        f"turns whose times are all scaled, or alone by less than {FAR:g} of the wall time, {FAR_ARM:g} in a whole arm",
        TIMES,
        _timed,
    ),
    Unheld(
        "phases and prefills",
        f"how a step's time is split among its phases; prefills shorter by less than {LEAST_PREFILL:g}",
        (*TIMES, "decision_s", "choice_s", "sampling_s", "layout_s"),
        _timed,
    ),
    Unheld(
        "lenders",
        "whether a baseline's lender is the one that is named; one that is not here, or has other turns throughout",
        ("baseline_of",),
        lambda frames: int((~frames.prompts["method"] & frames.prompts["baseline_of"].notna()).sum()),
    ),
    Unheld(
        "starts and disturbances",
        "how often cells were started and turns repeated, and whether what is left out of times was disturbed",
        ("start", "num_starts", "num_repeated", "contaminated", "repeats", "other_load"),
        _timed,
    ),
    Unheld(
        "reasons of failures",
        "whether what failed could not be decoded",
        ("status", "error"),
        lambda frames: int((~frames.prompts["ok"]).sum()),
    ),
    Unheld(
        "close calls",
        "how close a call was where outputs part, and decodings in float32",
        ("divergence_gap", "largest_logit", "identical_float32"),
        lambda frames: _told(frames.prompts, ("divergence_gap", "identical_float32")),
    ),
    Unheld(
        "sensors",
        "a GPU's clocks, temperature, power and energy",
        GPU,
        lambda frames: _told(frames.prompts, GPU),
    ),
    Unheld(
        "renamed settings",
        "whether a config, with its name anew, or an experiment's name is that of these rows",
        ("config", "run_id", "seed", "experiment"),
        _cells,
    ),
    Unheld(
        "unknown names",
        "cells whose drafter has another name of its class, or that no yaml here has",
        ("drafter", "method", "pair"),
        _cells,
    ),
    Unheld(
        "machine and versions",
        "cells by versions, revision, weights, machine, threads, waiting policy, kernels, load, limits and jobs",
        (*VERSIONS, *MACHINE, *LAUNCHES, "target_revision", "draft_revision"),
        _cells,
    ),
    Unheld(
        "other figures",
        "cells whose first answer, day, predictions, means over draws and ends of intervals are as they say",
        (
            *("excerpt", "created_utc", "predicted_mal", "predicted_speedup", "speedup_low", "speedup_high"),
            *("expected_steps", "expected_length"),
        ),
        _cells,
    ),
    Unheld(
        "empty columns",
        "rows that lack what files of today have, as older files do: what stood there",
        tuple(dict.fromkeys(column for columns in FILLED.values() for column in columns)),
        lambda frames: sum(count for _, count in empty(frames)),
    ),
)


def empty(frames: Joined) -> Iterator[tuple[str, int]]:
    """Of each column of `FILLED` that has no value somewhere in how many rows."""
    tables = {"runs": frames.runs, "prompts": frames.prompts, "steps": frames.steps}
    for table, columns in FILLED.items():
        frame = tables[table]
        for column in columns:
            lacking = frame[column].isna() & (frame["timed"] if column in OF_TIMED else frame.get("ok", True))
            if count := int(lacking.sum()):
                yield f"{table}.{column}", count


def unheld(frames: Joined) -> Iterator[tuple[str, int]]:
    """Of each entry how many rows it is about."""
    for entry in UNHELD:
        yield entry.name, entry.count(frames)


def named(runs: pd.DataFrame) -> list[str]:
    """`torch_version: 2.8.0 (12 cells), 2.9.1 (4 cells)`: what the cells of a folder name."""
    counted = {column: runs[column].fillna("none").astype(str).value_counts() for column in (*VERSIONS, "device_name")}
    return [
        f"{column}: {', '.join(f'{str(value)[:40]} ({count})' for value, count in values.items())}"
        for column, values in counted.items()
    ]
