"""The paper's acceptance rate of a run, with intervals over its conversations."""

from __future__ import annotations

import pandas as pd

from bench import metrics, stats
from bench.report.blocks import Block
from bench.report.improving_mcsd.settings import draft_levels, virtual
from bench.stats import Interval


def alpha(block: Block, run: pd.Series) -> Interval:
    """`metrics.alpha` with its interval: accepted draft tokens / (steps x the most levels that the draft may add)."""
    steps = block.steps(str(run["run_id"]))
    return _rate(steps, run, pd.Series(float(draft_levels(run)), index=steps.index))


def alpha_drafted(block: Block, run: pd.Series) -> Interval:
    """`metrics.alpha_drafted` with its interval: accepted draft tokens / draft levels that were there."""
    steps = block.steps(str(run["run_id"]))
    return _rate(steps, run, metrics.drafted_levels(steps, virtual=virtual(run)))


def _rate(steps: pd.DataFrame, run: pd.Series, levels: pd.Series) -> Interval:
    accepted = metrics.accepted_drafts(steps, virtual=virtual(run))
    return stats.ratio_of_sums(steps.assign(accepted=accepted, levels=levels), "accepted", "levels")
