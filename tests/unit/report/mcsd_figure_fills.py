"""Synthetic results of the figures of improved MCSD: static and fork-shaped trees, and scores of decision models."""

from __future__ import annotations

import itertools
from dataclasses import fields
from typing import Any

import numpy as np

from specdec_trees.results.kept_rows import DecisionRow
from specdec_trees.results.rows import StepRow

SETTING: dict[str, Any] = {"dataset": "mt_bench", "temperature": 0.7, "draws": "targets_without_replacement"}
SETTING |= {"verifier": "independent_longest", "lossless": False}
DRAWN: dict[str, Any] = {"draws": "without_replacement", "draft_temperature": 0.7}
"""What the arguments of a drafter say at the temperature of `SETTING`."""
AT_ONE = SETTING | {"temperature": 1.0}
LLAMA: dict[str, Any] = {"pair": "llama2_7b_chat_jf68m"}
LLAMA |= {"published": {"target": "llama2_7b_chat", "draft": "jf68m", "stand_in": False}}
LARGE: dict[str, Any] = {"pair": "llama2_7b_chat_tinyllama"}
LARGE |= {"published": {"target": "llama2_7b_chat", "draft": "tinyllama_1_1b", "stand_in": False}}
FORK: dict[str, Any] = {"depth": 5, "init": "target", "decision": None, "beta": 0.4}
HIDDEN, TOPK = ({"kind": kind, "sha256": "0123456789ab"} for kind in ("hidden", "topk"))
WIDTHS = (1, 2, 4, 8, 12)


def add(cells, drafter: str, method: str, *, levels: int, chance: float, stops: float = 0.0, **given: Any) -> str:
    """One run of trees with `levels` draft levels below the target's own, of which each token is accepted by `chance`.

    A tree ends after every level but the last with the probability `stops`; above 0 a decision model was asked.
    """
    run_id = cells.add(drafter, method, **given)
    frame = cells.store.read("steps", [run_id])
    rng, names = np.random.default_rng(int(run_id, 16) % 2**32), [field.name for field in fields(StepRow)]
    rows = [{name: row[name] for name in names} for row in frame.to_dict("records")]
    virtual = int(given["draws"].startswith("target"))
    changed = [StepRow(**row | _step(rng, levels, chance, stops, virtual)) for row in rows]
    if changed:
        cells.store.write("steps", run_id, changed)
    return run_id


def _step(rng: np.random.Generator, levels: int, chance: float, stops: float, virtual: int) -> dict[str, Any]:
    drafted = next((level for level in range(1, levels) if rng.uniform() < stops), levels)
    accepted = next((level for level in range(drafted) if rng.uniform() > chance), drafted)
    calls = min(drafted, levels - 1) if stops else None
    return {
        "depth": drafted + virtual,
        "draft_forwards": drafted,
        "num_accepted": accepted + virtual,
        "acceptance_length": accepted + 1,
        "kept": accepted + 1,
        "decision_calls": calls,
        "decision_s": calls and calls * 1e-4,
    }


def fill_fig4(cells, **given: Any) -> dict[tuple[int, int], str]:
    """Trees (2, a, b, 1, 1), faster up to a = 2 and b = 3; one has failed and one was not run."""
    runs = {}
    for a, b in itertools.product((1, 2, 4), (1, 3)):
        if (a, b) == (4, 1):
            continue
        options = SETTING | {"params": {"widths": [2, a, b, 1, 1]} | DRAWN, "size": 2 + 2 * a + 6 * a * b} | given
        options |= {"speedup": 1 + 0.2 * min(a, 2) + 0.1 * b, "status": "oom" if (a, b) == (4, 3) else "ok"}
        runs[a, b] = add(cells, "ti_mcsd", "target_init_mcsd", levels=4, chance=0.3 + 0.05 * (a + b), **options)
    return runs


def fork(cells, width: int, *, chance: float, stops: float = 0.0, **given: Any) -> str:
    """A fork of this width, 5 draft levels deep."""
    params = FORK | {"width": width} | given.pop("params", {})
    options = {**AT_ONE, "size": 6 * width, **given, "params": params}
    if width == 1 and params["init"] == "target":
        options |= {"draws": "target_without_replacement", "verifier": "longest_subtree", "lossless": True}
    return add(cells, "dyn_mcsd", "dynamic_mcsd", levels=5, chance=chance, stops=stops, **options)


def fill_fig6(cells) -> dict[tuple[str, int], str]:
    """Two pairs; acceptance rises with the width, and speed falls at the largest."""
    return {
        (pair["pair"], width): fork(
            cells, width, chance=0.9 - 0.5 / width - 0.1 * place, speedup=2 - 1 / width - (width > 8), **pair
        )
        for place, pair in enumerate((LARGE, LLAMA))
        for width in WIDTHS
    }


def fill_fig8(cells, **given: Any) -> dict[tuple[str, int], str]:
    """No decision model, `hidden` that is faster at W = 1 alone, `topk` that is never told from none."""
    runs = {}
    for decision, width in itertools.product((None, HIDDEN, TOPK), (1, 4, 12)):
        speedup = {None: 1.5, "hidden": 1.9 if width == 1 else 1.1, "topk": 1.5}[decision and decision["kind"]]
        options = {"stops": 0.2 if decision else 0.0, "speedup": speedup, "params": {"decision": decision}} | given
        kind = decision["kind"] if decision else "none"
        runs[kind, width] = fork(cells, width, chance=0.8 - 0.4 / width, **options)
    return runs


def decision_rows(run_id: str, kind: str, *, apart: float, prompts: int = 6, **given: Any) -> list[DecisionRow]:
    """Scores of 30 tokens of each prompt; those of accepted ones are higher by `apart` on average."""
    rng = np.random.default_rng(len(kind) + prompts)
    shared: dict[str, Any] = {"pair": "tiny", "dataset": "mt_bench", "device_name": "Test CPU", "temperature": 1.0}
    shared |= {"num_prompts": 40, "kind": kind, "run_id": run_id} | given
    rows = []
    for place in range(30 * prompts):
        label = float(rng.uniform())
        accepted = bool(rng.uniform() < label)
        score = float(np.clip(rng.normal(0.4 + apart * accepted, 0.15), 0.001, 0.999))
        rows.append(DecisionRow(**shared, prompt_id=f"p{place % prompts}", label=label, accepted=accepted, score=score))
    return rows


def fill_fig7(cells) -> None:
    for run_id, kind, apart in (("aaaaaaaaaaaa", "topk", 0.3), ("bbbbbbbbbbbb", "hidden", 0.1)):
        cells.store.write("decisions", run_id, decision_rows(run_id, kind, apart=apart))
