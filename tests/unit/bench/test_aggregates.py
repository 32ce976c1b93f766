"""Averages of many cells at once are those that `metrics` and `samples` make of each cell by itself."""

import math
from pathlib import Path

import pandas as pd
import pytest
from edits import CELLS, copied, folder

from specdec_trees.results import failures
from specdec_trees.results.rows import AUTOREGRESSIVE, METHOD
from specdec_trees.statistics import metrics, samples
from specdec_trees.statistics.aggregates import ENDS, aggregates, of_all

REFERENCE = Path("results/reference")


def by_definition(prompts, steps):
    """The averages of one cell, by the functions that define them."""
    turns, whole = (failures.whole(rows, prompts) for rows in (prompts, steps))
    speedup = samples.interval(samples.speedup(turns))
    repeats = turns.loc[(turns["arm"] == METHOD) & turns["repeats"].notna(), "repeats"]
    failed = failures.failed(prompts)["prompt_id"].nunique()
    return {
        **{name: getattr(metrics, name)(whole) for name in OF_STEPS},
        "tokens_per_s": metrics.tokens_per_s(turns, METHOD),
        "autoregressive_tokens_per_s": metrics.tokens_per_s(turns, AUTOREGRESSIVE),
        "joules_per_token": metrics.joules_per_token(turns, METHOD),
        "autoregressive_joules_per_token": metrics.joules_per_token(turns, AUTOREGRESSIVE),
        "speedup": speedup.value,
        "speedup_low": speedup.low if speedup.known else math.nan,
        "speedup_high": speedup.high if speedup.known else math.nan,
        "identical": prompts.loc[prompts["arm"] == METHOD, "identical"].dropna().astype(float).mean(),
        "num_conversations": prompts["prompt_id"].nunique() - failed,
        "num_failed": failed,
        "num_repeated": (repeats > 0).sum() if len(repeats) else math.nan,
        "num_contaminated": metrics.untimed(turns).sum() if turns["contaminated"].notna().any() else math.nan,
    }


OF_STEPS = ("mal", "mal_prompt_mean", "expected_acceptance", "acceptance_rate_depth", "acceptance_rate_node")


def unchanged(tables):
    pass


def one_failed(tables):
    """The second turn of a conversation could not be decoded."""
    prompts = tables["prompts"]
    prompts.loc[(prompts["prompt_id"] == prompts["prompt_id"].iloc[0]) & (prompts["turn"] == 1), "status"] = "failed"


def disturbed(tables):
    """A conversation was disturbed, another decoded again."""
    prompts = tables["prompts"]
    names = prompts["prompt_id"].unique()
    prompts["contaminated"] = prompts["prompt_id"] == names[0]
    prompts["repeats"] = (prompts["prompt_id"] == names[1]).astype("Int64")


def partly_known(tables):
    """E(A) and energy are known of some."""
    tables["steps"].loc[tables["steps"]["prompt_id"] == tables["steps"]["prompt_id"].iloc[0], "expected_acceptance"] = (
        None
    )
    tables["prompts"]["energy_j"] = 2.0
    tables["prompts"].loc[tables["prompts"]["arm"] == METHOD, "energy_j"] = None


def without_baseline(tables):
    tables["prompts"] = tables["prompts"][tables["prompts"]["arm"] == METHOD].reset_index(drop=True)


def of_no_steps(tables):
    """A cell of answers that ended with their first token."""
    name = tables["runs"]["run_id"].iloc[0]
    tables["steps"] = tables["steps"][tables["steps"]["run_id"] != name].reset_index(drop=True)


@pytest.mark.parametrize("change", [unchanged, one_failed, disturbed, partly_known, without_baseline, of_no_steps])
@pytest.mark.parametrize("number", range(len(CELLS)))
def test_averages_follow_from_their_definitions(number, change):
    tables = copied(folder(REFERENCE, number)[1])
    change(tables)
    prompts, steps, names = tables["prompts"], tables["steps"], list(tables["runs"]["run_id"])
    found = of_all(prompts, steps, names)
    for name in names:
        one = prompts[prompts["run_id"] == name], steps[steps["run_id"] == name]
        alone = aggregates(*one)
        for column, value in by_definition(*one).items():
            expected = pytest.approx(float(value), rel=1e-12, nan_ok=True)
            assert (math.nan if alone[column] is None else alone[column]) == expected, column
            if column not in ENDS:
                assert float(pd.to_numeric(found.at[name, column])) == expected, column
