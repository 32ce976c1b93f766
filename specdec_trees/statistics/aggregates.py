"""The columns of `runs` that follow from a cell's other tables, of one cell or of many at once."""

import math
from collections.abc import Iterable
from typing import Any

import pandas as pd

from specdec_trees.results import failures
from specdec_trees.results.rows import AUTOREGRESSIVE, METHOD, OK
from specdec_trees.statistics import metrics, samples

ENDS = ("speedup_low", "speedup_high")
"""Columns that are as the revision that measured a cell made intervals."""
_COUNTS = ("num_conversations", "num_failed", "num_repeated", "num_contaminated")
"""Whole numbers among them."""
STEP_COLUMNS = (
    *("run_id", "prompt_id", "turn", "num_drafted", "depth"),
    *("expected_acceptance", "num_accepted", "acceptance_length"),
)
"""What they need of `steps`."""
_CONVERSATION, _TURN = ["run_id", "prompt_id"], ["run_id", "prompt_id", "turn"]


def aggregates(prompts: pd.DataFrame, steps: pd.DataFrame) -> dict[str, Any]:
    """The averages of a cell by column, over the conversations that are whole; None where there are none.

    Outputs that are identical are those of all turns that were decoded.
    """
    one = prompts.assign(run_id=""), steps.assign(run_id="")
    row = of_all(*one, [""]).loc[""].to_dict()
    speedup = samples.interval(samples.speedup(failures.whole(prompts, prompts)))
    ends = (speedup.low, speedup.high) if speedup.known else (math.nan, math.nan)
    values = {str(name): value for name, value in (row | dict(zip(ENDS, ends, strict=True))).items()}
    counts = {name: None if pd.isna(value) else int(value) for name, value in values.items() if name in _COUNTS}
    return {name: float(value) if math.isfinite(value) else None for name, value in values.items()} | counts


def of_all(prompts: pd.DataFrame, steps: pd.DataFrame, run_ids: Iterable[str]) -> pd.DataFrame:
    """The same of many cells, a row each but for `ENDS`; nan where there are none."""
    lost = pd.MultiIndex.from_frame(failures.failed(prompts)[_CONVERSATION]).unique()
    turns, whole = (rows[~pd.MultiIndex.from_frame(rows[_CONVERSATION]).isin(lost)] for rows in (prompts, steps))
    identical = prompts[prompts["arm"] == METHOD].dropna(subset=["identical"])
    decoded = prompts.drop_duplicates(_CONVERSATION).groupby("run_id").size()
    failed = lost.get_level_values("run_id").value_counts()
    columns = {
        **_of_steps(whole),
        **_of_times(turns),
        "identical": identical["identical"].astype(float).groupby(identical["run_id"]).mean(),
        **_of_disturbances(turns),
    }
    averages = pd.DataFrame(columns).reindex([*run_ids])
    counts = {name: of.reindex(averages.index).fillna(0) for name, of in (("all", decoded), ("failed", failed))}
    return averages.assign(num_conversations=counts["all"] - counts["failed"], num_failed=counts["failed"])


def _of_steps(steps: pd.DataFrame) -> dict[str, pd.Series]:
    """What `metrics` calls by these names."""
    by_run = steps.groupby("run_id")
    lengths, sizes = by_run["acceptance_length"].sum(), by_run.size()
    known = steps["expected_acceptance"].notna().groupby([steps[name] for name in _CONVERSATION]).transform("any")
    knowing = steps[known | ~known.groupby(steps["run_id"]).transform("any")].groupby("run_id")["expected_acceptance"]
    accepted = by_run["num_accepted"].sum()
    return {
        "mal": lengths / sizes,
        "mal_prompt_mean": steps.groupby(_TURN)["acceptance_length"].mean().groupby("run_id").mean(),
        "expected_acceptance": knowing.mean().where(knowing.count() == knowing.size()),
        "acceptance_rate_depth": accepted / by_run["depth"].sum().replace(0, math.nan),
        "acceptance_rate_node": accepted / by_run["num_drafted"].sum().replace(0, math.nan),
    }


def _of_times(turns: pd.DataFrame) -> dict[str, pd.Series]:
    timed = turns[~metrics.untimed(turns) & (turns["status"] == OK)]
    values: dict[str, pd.Series] = {"speedup": samples.speedup_of_each(turns)}
    for arm, prefix in ((METHOD, ""), (AUTOREGRESSIVE, "autoregressive_")):
        by_run = timed[timed["arm"] == arm].groupby("run_id")
        sums = by_run[["num_decoded_tokens", "decode_s", "energy_j", "num_new_tokens"]].sum()
        energy = sums["energy_j"].where(by_run["energy_j"].count() == by_run.size())
        values[f"{prefix}tokens_per_s"] = sums["num_decoded_tokens"] / sums["decode_s"].replace(0, math.nan)
        values[f"{prefix}joules_per_token"] = energy / sums["num_new_tokens"].replace(0, math.nan)
    return values


def _of_disturbances(turns: pd.DataFrame) -> dict[str, pd.Series]:
    """Counts, of runs whose rows tell of them."""
    again = turns[(turns["arm"] == METHOD) & turns["repeats"].notna()]
    told = turns["contaminated"].notna().groupby(turns["run_id"]).any()
    left_out = metrics.untimed(turns).groupby(turns["run_id"]).sum()
    return {
        "num_repeated": (again["repeats"] > 0).astype(float).groupby(again["run_id"]).sum(),
        "num_contaminated": left_out.astype(float).where(told),
    }
