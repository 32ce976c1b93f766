"""The columns of `runs` that follow from a cell's other tables."""

import math
from typing import Any

import pandas as pd

from specdec_trees.results import failures
from specdec_trees.results.rows import AUTOREGRESSIVE, METHOD
from specdec_trees.statistics import metrics, samples


def aggregates(prompts: pd.DataFrame, steps: pd.DataFrame) -> dict[str, Any]:
    """The averages of a cell by column, over the conversations that are whole; None where there are none.

    Outputs that are identical are those of all turns that were decoded.
    """
    failed, decoded = failures.failed(prompts)["prompt_id"].nunique(), prompts["prompt_id"].nunique()
    identical = prompts.loc[prompts["arm"] == METHOD, "identical"].dropna().astype(float)
    steps, prompts = (failures.whole(rows, prompts) for rows in (steps, prompts))
    speedup = samples.interval(samples.speedup(prompts))
    values = {
        "mal": metrics.mal(steps),
        "mal_prompt_mean": metrics.mal_prompt_mean(steps),
        "expected_acceptance": metrics.expected_acceptance(steps),
        "acceptance_rate_depth": metrics.acceptance_rate_depth(steps),
        "acceptance_rate_node": metrics.acceptance_rate_node(steps),
        "tokens_per_s": metrics.tokens_per_s(prompts, METHOD),
        "autoregressive_tokens_per_s": metrics.tokens_per_s(prompts, AUTOREGRESSIVE),
        "speedup": speedup.value,
        "speedup_low": speedup.low if speedup.known else math.nan,
        "speedup_high": speedup.high if speedup.known else math.nan,
        "identical": identical.mean(),
        "joules_per_token": metrics.joules_per_token(prompts, METHOD),
        "autoregressive_joules_per_token": metrics.joules_per_token(prompts, AUTOREGRESSIVE),
    }
    told = prompts["contaminated"].notna().any()
    again = prompts.loc[(prompts["arm"] == METHOD) & prompts["repeats"].notna(), "repeats"]
    counts = {
        "num_conversations": decoded - failed,
        "num_failed": failed,
        "num_repeated": int((again > 0).sum()) if len(again) else None,
        "num_contaminated": int(metrics.untimed(prompts).sum()) if told else None,
    }
    return {name: float(value) if math.isfinite(value) else None for name, value in values.items()} | counts
