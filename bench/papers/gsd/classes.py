"""The parameters and the sampling that GSD's tables state, and its methods bound to them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import pandas as pd

from bench.artifacts.runs import Run
from bench.artifacts.speedups.arms import Arm

TEMPERATURE, TOP_P = 0.7, 0.7
"""Of all sampling in the paper (appendix A)."""
MAX_STEPS = 10
UNSTATED = frozenset({"draft_temperature", "draws", "draft_node_cap", "verify_cap", "unmerge_depth"})
"""Arguments of our drafters of which the paper states nothing in its tables, or of which a note tells."""


@dataclass(frozen=True, slots=True)
class ModelClass:
    """Thresholds of the models of one size."""

    tau: int | None
    theta_prob: float
    theta_sib: float


LARGE = ModelClass(tau=2, theta_prob=0.2, theta_sib=0.3)
"""70B: Tables 1 to 4 (appendix A)."""
SMALL = ModelClass(tau=1, theta_prob=0.4, theta_sib=0.1)
"""7B and 13B: Tables 6 to 9 (captions), and 10, which states tau alone."""


def bound(arm: Arm, models: ModelClass, *, k: int = 4) -> Arm:
    """The arm of the runs with the paper's parameters; one without runs of ours as it is."""
    if not arm.ours:
        return arm
    return replace(arm, given=_arguments(arm.ours[0], models, k), free=UNSTATED)


def _arguments(drafter: str, models: ModelClass, k: int) -> dict[str, Any]:
    """Of a drafter by its name: SSD drafts one child and, like TSD, neither merges nor prunes siblings."""
    given: dict[str, Any] = {"k": k, "max_steps": MAX_STEPS} | asdict(models)
    if drafter.startswith(("ssd", "tsd")):
        given["tau"] = None
    if drafter.startswith("ssd"):
        given["k"] = 1
    if drafter != "gsd" and not drafter.endswith("_sib"):
        given["theta_sib"] = 0.0
    if drafter == "ssd_noexit":
        given["theta_prob"] = 0.0
    return given


def off(arm: Arm, run: Run) -> Mapping[str, Any]:
    """The arguments of a run that are not the arm's, those that the paper does not state left out."""
    params = run.params
    others = params.keys() - arm.given.keys() - UNSTATED
    return {name: params.get(name) for name, value in arm.given.items() if params.get(name) != value} | {
        name: params[name] for name in sorted(others)
    }


def is_greedy(runs: pd.DataFrame) -> pd.Series:
    """Which runs decode greedily."""
    return runs["temperature"] == 0


def is_sampled(runs: pd.DataFrame) -> pd.Series:
    """Which runs sample as the paper does."""
    return (runs["temperature"] == TEMPERATURE) & (runs["top_p"] == TOP_P)
