"""DySpec's trees that grow to a threshold: how deep they are, and how often the cap on their nodes ends them."""

from __future__ import annotations

from collections.abc import Sequence

from bench.artifacts import tables
from bench.artifacts.metric import Metric
from bench.artifacts.runs import Run


def at_cap(run: Run) -> float | None:
    """The share of steps whose tree has as many nodes as it may; None of a run without a threshold or a cap."""
    cap = run.params.get("n") if "threshold" in run.params else None
    return float((run.steps["num_drafted"] >= cap).mean()) if cap and len(run.steps) else None


def always(runs: Sequence[Run]) -> list[Run]:
    """The runs of which the cap ends every tree."""
    return [run for run in runs if at_cap(run) == 1]


AT_CAP = Metric(
    "at cap",
    at_cap,
    "share of the steps whose tree has as many nodes as it may: further layers are left out there; of trees that grow "
    "to a threshold",
    text=lambda share, _: tables.percent(share),
)
DEPTH = Metric(
    "depth mean",
    lambda run: run.steps["depth"].mean() if len(run.steps) else None,
    "of the deepest node, on average over steps",
    1,
)
ENDED = "has as many nodes as the cap: the cap ends it level by level, the threshold never does"
"""What is said of a tree in every step of such a run."""
