"""Rows of synthetic runs: made through the row types, with the averages that a test asks for."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np

from specdec_trees.results.kept_rows import AcceptanceRow, GrowthRow, LatencyRow
from specdec_trees.results.rows import SCHEMA_VERSION, NodeRow, PromptRow, RunRow, StepRow

TINY = {"target": "llama2_7b", "draft": "jf68m", "stand_in": True}
BASE_STEP_S = 0.004
PROVENANCE: dict[str, Any] = {
    **dict.fromkeys(
        ("draft_revision", "target_revision", "cuda_version", "driver_version", "git_revision", "git_dirty")
    ),
    **dict.fromkeys(("slurm_job_id", "slurm_array_task_id")),
    "package_version": "0.1.0",
    "python_version": "3.11",
    "torch_version": "2",
    "transformers_version": "5",
    "attention": "sdpa",
    "num_threads": 2,
}

DEFAULTS: dict[str, Any] = {
    "pair": "tiny",
    "published": TINY,
    "dataset": "mt_bench",
    "params": {},
    "mal": 2.5,
    "speedup": 1.2,
    "temperature": 0.0,
    "device": "Test CPU",
    "status": "ok",
    "conversations": 6,
    "steps": 12,
    "size": 25,
    "seed": 0,
    "nodes": False,
    "lossless": True,
    "spread": True,
    "verifier": "greedy",
    "draws": "topk",
    "top_p": 1.0,
    "depth": 8,
    "predicted_mal": None,
    "predicted_speedup": None,
}


def run_row(run_id: str, experiment: str, options: dict[str, Any]) -> RunRow:
    pair = {"name": options["pair"], "published": options["published"]}
    pair |= {"draft": options["draft"]} if options.get("draft") else {}
    config = {"pair": pair, "dataset": {"name": options["dataset"]}, "seed": options["seed"]}
    ok = options["status"] == "ok"
    return RunRow(
        **{name: options[name] for name in ("pair", "dataset", "drafter", "method", "status", "temperature", "seed")},
        **{name: options[name] for name in ("verifier", "draws", "top_p", "predicted_mal", "predicted_speedup")},
        **PROVENANCE,
        **dict.fromkeys(("mal", "mal_prompt_mean", "expected_acceptance", "acceptance_rate_depth"), -1.0),
        **dict.fromkeys(("acceptance_rate_node", "tokens_per_s", "autoregressive_tokens_per_s"), -1.0),
        **dict.fromkeys(("speedup", "speedup_low", "speedup_high"), -1.0),  # reports compute their own
        run_id=run_id,
        schema_version=SCHEMA_VERSION,
        experiment=experiment,
        error=None if ok else "out of memory",
        created_utc=f"2026-01-01T00:00:{options['created']:02d}",
        target_id="tiny/target",
        draft_id=options.get("draft_id", "tiny/draft"),
        dataset_id="bundled",
        prompts_sha256=f"{options['conversations']}" if ok else "",
        drafter_params=json.dumps(options["params"]),
        lossless=options["lossless"],
        max_new_tokens=64,
        config=json.dumps(config),
        num_conversations=options["conversations"] if ok else 0,
        num_failed=0,
        limit_tokens_per_s=options.get("limit"),
        recording=options.get("recording"),
        identical=1.0 if ok and options["temperature"] == 0 else None,
        device_name=options["device"] if ok else "",
        dtype="float32" if ok else "",
    )


def step_rows(run_id: str, turn: tuple[str, int], options: dict[str, Any], rng: np.random.Generator) -> list[StepRow]:
    bare = options["method"] == "autoregressive"
    depth = 0 if bare else options["depth"]
    rows = []
    for step in range(options["steps"]):
        chance = (options["mal"] - 1) / 8 * (float(rng.uniform(0.5, 1.5)) if options["spread"] else 1.0)
        accepted = 0 if bare else int(rng.binomial(8, min(chance, 1.0)))
        rows.append(
            StepRow(
                run_id=run_id,
                prompt_id=turn[0],
                turn=turn[1],
                step=step,
                num_drafted=0 if bare else options["params"].get("n", options["size"]),
                depth=depth,
                draft_forwards=depth,
                draft_tokens=depth * 4,
                expected_acceptance=1.0 if bare else 1 + 8 * chance * 0.9,
                num_accepted=accepted,
                accepted_ranks=options["ranks"](step)[:accepted] if "ranks" in options else None,
                acceptance_length=accepted + 1,
                kept=accepted + 1,
                draft_s=math.nan if options.get("recording") else depth * 0.0008 * float(rng.lognormal(0, 0.1)),
                tree_s=depth * 0.00005,
                score_s=BASE_STEP_S,
                judge_s=0.0001,
                commit_s=0.0002,
            )
        )
    return rows


def prompt_rows(
    run_id: str, turn: tuple[str, int], steps: list[StepRow], options: dict[str, Any], rng: np.random.Generator
) -> list[PromptRow]:
    mine = [step for step in steps if (step.prompt_id, step.turn) == turn]
    decoded = sum(step.kept for step in mine)
    base = decoded * options.get("base_step_s", BASE_STEP_S) * float(rng.lognormal(0, 0.03))
    if options.get("recording"):
        base = math.nan
    seconds = {"autoregressive": base, "method": base / options["speedup"] * float(rng.lognormal(0, 0.03))}
    return [
        PromptRow(
            run_id=run_id,
            prompt_id=turn[0],
            category=options.get("category", lambda _: "writing")(turn[0]),
            turn=turn[1],
            arm=arm,
            status="ok",
            error=None,
            num_prompt_tokens=20,
            num_new_tokens=decoded + 1,
            num_decoded_tokens=decoded,
            num_steps=decoded if arm == "autoregressive" else len(mine),
            finish="length",
            prefill_s=options.get("prefill_s", 0.01),
            decode_s=decode_s,
            wall_s=decode_s,
            output_sha256="",
            output_ids=[1, 2],
            identical=True if options["temperature"] == 0 else None,
            first_divergence=None,
            divergence_gap=None,
        )
        for arm, decode_s in seconds.items()
    ]


def node_rows(step: StepRow, rng: np.random.Generator) -> list[NodeRow]:
    probs = rng.uniform(0, 1, size=4)
    return [
        NodeRow(
            run_id=step.run_id,
            prompt_id=step.prompt_id,
            turn=step.turn,
            step=step.step,
            node=node + 1,
            depth=1,
            edge_prob=float(prob),
            path_prob=float(prob),
            target_prob=float(prob),
            parent_accepted=node < 3,
            accepted=node < 3 and bool(rng.uniform() < prob**0.7),
        )
        for node, prob in enumerate(probs)
    ]


def latency_rows(pair: str, sizes: tuple[int, ...], run_id: str) -> list[LatencyRow]:
    rng = np.random.default_rng(0)
    return [
        LatencyRow(
            run_id=run_id,
            pair=pair,
            role=role,
            model_id=f"tiny/{role}",
            device_name="Test CPU",
            dtype="float32",
            num_tokens=size,
            num_prefix=128,
            repeat=repeat,
            forward_s=scale * (1 + size / 100) * float(rng.lognormal(0, 0.1)),
        )
        for role, scale in (("target", 0.004), ("draft", 0.0008))
        for size in sizes
        for repeat in range(9)
    ]


VECTOR: dict[str, Any] = {
    "pair": "tiny",
    "dataset": "c4",
    "device_name": "Test CPU",
    "verifier": "without_replacement",
    "draws": "without_replacement",
    "temperature": 0.6,
    "top_p": 1.0,
}


def acceptance_rows(
    run_id: str, p: list[float], measured: bool, exponent: float | None, **given: Any
) -> list[AcceptanceRow]:
    """A vector whose rejection rates are 1 - p_1 - ... - p_k, or nan where they are not `measured`."""
    rates = [1 - total if measured else float("nan") for total in np.cumsum(p)]
    return [
        AcceptanceRow(
            run_id=run_id,
            **VECTOR
            | {"draft_temperature": 0.6, "draft_top_p": 1.0, "estimator": "analytic", "num_positions": 999}
            | given,
            width=len(p),
            num_prompts=7,
            k=k,
            p=value,
            p_low=value * 0.9,
            p_high=value * 1.1,
            rejection=rate,
            rejection_low=rate * 0.9,
            rejection_high=rate * 1.1,
            exponent=exponent,
        )
        for k, (value, rate) in enumerate(zip(p, rates, strict=True), 1)
    ]


def growth_rows(run_id: str, values: dict[str, dict[int, float]], **given: Any) -> list[GrowthRow]:
    """Expected tokens by structure and drafted nodes n; the best k of every size is 4, depths are n's binary length."""
    branches = {"sequoia": None, "sequence": 1, "binary": 2}
    return [
        GrowthRow(
            run_id=run_id,
            **VECTOR | given,
            structure=structure,
            n=n,
            num_branches=branches.get(structure, 4),
            depth=n.bit_length(),
            expected_tokens=value,
            parents=[-1, *((node - 1) // 2 for node in range(1, n + 1))],
        )
        for structure, line in values.items()
        for n, value in line.items()
    ]
