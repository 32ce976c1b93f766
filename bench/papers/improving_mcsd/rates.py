"""The paper's acceptance rate of a run, with intervals over its conversations."""

from __future__ import annotations

import pandas as pd

from bench.artifacts.blocks import Block
from bench.artifacts.runs import Run, per_row
from bench.papers.improving_mcsd.settings import draft_levels, virtual
from bench.statistics import intervals, metrics
from bench.statistics.intervals import Interval
from bench.statistics.samples import Sample


def alpha(block: Block, run: Run) -> Interval:
    """`metrics.alpha` with its interval: accepted draft tokens / (steps x the most levels that the draft may add)."""
    return intervals.ratio_of_sums(_most(block, run), "accepted", "levels")


def alpha_sample(block: Block, run: Run) -> Sample | None:
    """What `alpha` is a ratio of, by conversation; None without a step."""
    return per_row(_most(block, run), "accepted", "levels")


def alpha_drafted(block: Block, run: Run) -> Interval:
    """`metrics.alpha_drafted` with its interval: accepted draft tokens / draft levels that were there."""
    steps = run.steps
    found = _accepted(steps, run).assign(levels=metrics.drafted_levels(steps, virtual=virtual(run)))
    return intervals.ratio_of_sums(found, "accepted", "levels")


def _most(block: Block, run: Run) -> pd.DataFrame:
    """The steps with their accepted draft tokens, and the most levels that there could have been."""
    return _accepted(run.steps, run).assign(levels=float(draft_levels(run)))


def _accepted(steps: pd.DataFrame, run: Run) -> pd.DataFrame:
    return steps.assign(accepted=metrics.accepted_drafts(steps, virtual=virtual(run)))
