"""What looking at rows cannot tell: a name, a sentence, the columns it is about, and how many rows there are."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import pandas as pd

from specdec_trees.check.joined import Joined
from specdec_trees.check.rules import FAR, FAR_ARM
from specdec_trees.results.rows import OK

VERSIONS = ("package_version", "git_revision", "python_version", "torch_version", "transformers_version")
MACHINE = (
    *("device_name", "dtype", "num_threads", "wait_policy", "cuda_version", "driver_version", "attention", "graphs"),
    *("slurm_job_id", "slurm_array_task_id", "other_load", "limit_tokens_per_s", "waits_per_step"),
    *("launches_per_step", "attention_kernels"),
)
GPU = (
    *("sm_clock_mhz", "temperature_c", "power_w", "energy_j", "throttle_reasons", "foreign_processes"),
    "contaminated",
)
GRAPH = ("num_live", "num_prob_leaf", "num_sib_leaf", "num_alias", "capped", "recurring", "in_recurring", "merge_kl")
TIMES = (
    *("prefill_s", "decode_s", "wall_s", "draft_s", "tree_s", "score_s", "judge_s", "commit_s"),
    *("decision_s", "choice_s", "sampling_s", "layout_s"),
)


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
        "last steps",
        "what the last step of a cut answer accepted behind its end",
        ("num_accepted", "acceptance_length", "accepted_ranks"),
        _last,
    ),
    Unheld(
        "times",
        f"turns whose times are all scaled, in one arm or in both, or a single turn's by less than {FAR:g} of "
        f"its wall time and an arm's by less than {FAR_ARM:g}",
        TIMES,
        lambda frames: int(frames.prompts["timed"].sum()),
    ),
    Unheld(
        "drafting",
        "steps whose E(A), ranks, draft forwards, tokens or tree sizes are others within their bounds",
        (
            "expected_acceptance",
            "accepted_ranks",
            "draft_forwards",
            "draft_tokens",
            "decision_calls",
            "num_drafted",
            "depth",
            "visited_children",
            "num_behind_merge",
            "num_in_shared_subtree",
            "num_displaced",
        ),
        lambda frames: len(frames.steps),
    ),
    Unheld("token graphs", "sizes and recurrence of token graphs", GRAPH, lambda frames: _told(frames.steps, GRAPH)),
    Unheld(
        "failures",
        "whether what failed could not be decoded",
        ("status", "error"),
        lambda frames: int((~frames.prompts["ok"]).sum()),
    ),
    Unheld(
        "disturbances",
        "whether what is left out of times was disturbed",
        ("contaminated", "repeats", "other_load"),
        lambda frames: int(frames.prompts["contaminated"].notna().sum()),
    ),
    Unheld(
        "audit",
        "how close a call was where outputs part, and decodings in float32",
        ("divergence_gap", "largest_logit", "identical_float32"),
        lambda frames: _told(frames.prompts, ("divergence_gap", "identical_float32")),
    ),
    Unheld(
        "draws",
        "means over all draws of a replay",
        ("expected_steps", "expected_length"),
        lambda frames: _told(frames.prompts, ("expected_steps",)),
    ),
    Unheld("GPU", "clocks, temperature, power and energy", GPU, lambda frames: _told(frames.prompts, GPU[:-1])),
    Unheld(
        "prompts left out",
        "cells of fewer conversations than their limit: whether their dataset has no more",
        ("num_conversations", "limit"),
        _short,
    ),
    Unheld(
        "prompts",
        "cells whose prompts' texts and categories are known by digests alone",
        ("prompts_sha256", "prompt_ids_sha256", "dataset_id", "template_date", "category", "num_prompt_tokens"),
        _cells,
    ),
    Unheld(
        "renamed cells",
        "cells whose settings, name and rows were all written anew",
        ("config", "run_id", "seed"),
        _cells,
    ),
    Unheld(
        "labels",
        "cells whose drafter has another name of its class, or that no yaml here has",
        ("drafter", "method", "pair"),
        _cells,
    ),
    Unheld("versions", "cells by versions and revision", VERSIONS, _cells),
    Unheld("machine", "cells by machine, threads, load and limits", MACHINE, _cells),
    Unheld(
        "choices",
        "cells whose first answer, predicted figures, ends of intervals and day are as they say",
        (
            "excerpt",
            "predicted_mal",
            "predicted_speedup",
            "speedup_low",
            "speedup_high",
            "created_utc",
            "target_revision",
            "draft_revision",
            "num_starts",
            "num_repeated",
        ),
        _cells,
    ),
)


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
