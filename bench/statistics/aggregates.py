"""The columns of `runs` that follow from a cell's other tables."""

import math
from typing import Any

import pandas as pd

from bench.results.rows import AUTOREGRESSIVE, METHOD
from bench.statistics import metrics, samples


def aggregates(prompts: pd.DataFrame, steps: pd.DataFrame) -> dict[str, Any]:
    """The averages of a cell by column; None where there is nothing to average."""
    failed = prompts.loc[prompts["status"] != "ok", "prompt_id"].nunique()
    identical = prompts.loc[prompts["arm"] == METHOD, "identical"].dropna().astype(float)
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
    counts = {
        "num_conversations": prompts["prompt_id"].nunique() - failed,
        "num_failed": failed,
        "num_contaminated": int(metrics.contaminated(prompts).sum()) if told else None,
    }
    return {name: float(value) if math.isfinite(value) else None for name, value in values.items()} | counts
