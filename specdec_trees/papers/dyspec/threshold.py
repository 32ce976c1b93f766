"""DySpec's trees that grow to a threshold: how deep they are, and how often the cap on their nodes ends them."""

from __future__ import annotations

from typing import Any

from specdec_trees.artifacts.metrics import Metric


def at_cap(run: Any) -> float | None:
    """The share of steps whose tree has as many nodes as it may; None of a run without a threshold or a cap."""
    cap = run.params.get("n") if "threshold" in run.params else None
    return float((run.steps["num_drafted"] >= cap).mean()) if cap and len(run.steps) else None


AT_CAP = Metric(
    "at_cap",
    "at cap",
    "share of the steps whose tree has as many nodes as it may: further layers are left out there; of trees that grow "
    "to a threshold",
    at_cap,
    percent=True,
)
DEPTH = Metric(
    "mean_depth",
    "depth mean",
    "of the deepest node, on average over steps",
    lambda run: run.steps["depth"].mean() if len(run.steps) else None,
    1,
)
