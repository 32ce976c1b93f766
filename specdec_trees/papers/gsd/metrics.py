"""What is measured of GSD's runs, for its tables and figures, and how it is called in the paper's rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

from specdec_trees.artifacts import definitions, frame
from specdec_trees.artifacts.metrics import LOSSLESS, MAL, SPEEDUP, Metric, per_row
from specdec_trees.artifacts.tables import named_rows
from specdec_trees.statistics import graph_metrics, samples
from specdec_trees.statistics.samples import Sample


def per_sample(key: str, header: str, means: str, digits: int = 1) -> Metric:
    """The mean over samples of a column of `graph_metrics.samples`."""
    return Metric(key, header, means, lambda run: per_row(run.samples.dropna(subset=[key]), key), digits)


def _share_of_steps(key: str, header: str, means: str) -> Metric:
    """The share of the steps in which a count is above 0; of rows without it, as older ones, none."""

    def sums(run: Any) -> Sample | None:
        known = run.steps.reindex(columns=["prompt_id", key]).dropna(subset=[key])
        return per_row(known.assign(happened=(known[key] > 0).astype(float)), "happened", most=1.0)

    return Metric(key, header, means, sums, percent=True)


def _variation(run: Any) -> Sample | None:
    return per_row(run.variation.dropna(subset=["total_variation"]), "total_variation", most=1.0)


RATE = per_sample("acceptance_rate", "acceptance rate", definitions.ACCEPTANCE_RATE, 3)
DRAFTED = per_sample("drafted", "drafted tokens", definitions.DRAFTED_TOKENS)
CREATED = per_sample("created", "created nodes", definitions.CREATED)
MERGES = per_sample("aliases", "merge edges", definitions.ALIASES)
PRUNED = per_sample("sib_leaves", "sibling leaves", definitions.SIB_LEAVES)
VERIFIED = per_sample("verified", "verified nodes", definitions.VERIFIED)
CAPPED = Metric("capped", "capped", definitions.CAPPED, lambda run: graph_metrics.capped_share(run.steps), percent=True)
SUCCESS = replace(_share_of_steps("num_displaced", "Graph Success", definitions.GRAPH_SUCCESS), unit=0.01)
CROSSED = _share_of_steps("num_behind_merge", "crosses a merge", definitions.CROSSED)
SHARED = _share_of_steps("num_in_shared_subtree", "shared subtrees", definitions.SHARED_SUCCESS)
VARIATION = Metric("variation", "variation", definitions.VARIATION, _variation, 3)
RANKED_RATE = replace(RATE, ranked=True)
MEAN = replace(SPEEDUP, key="mean_speedup", means=f"{definitions.MEAN_SPEEDUP}; each is {definitions.SPEEDUP}")
"""Of greedy and of sampled decoding; it is made of their rows by `mean_of`."""
COUNTS = (MAL, DRAFTED, SUCCESS, CROSSED, LOSSLESS)
NAMES = {
    RATE.key: "acceptance_rate",
    DRAFTED.key: "drafted_tokens",
    SUCCESS.key: "graph_success",
    SPEEDUP.key: "speedup",
    MEAN.key: "speedup",
}
"""The paper's metrics by the key of ours."""
ROWS = ("target_words", "draft_words", "dataset", "label")
"""What a row of a table is of."""


def mean_of(several: Sequence[pd.DataFrame], metric: Metric) -> pd.DataFrame:
    """Measured rows of the same lines as one row each: the mean over the conversations of all, as this metric.

    A line has none where one of the rows has none; it ended as the first of its runs that did not end well.
    """
    lines = list(zip(*(named_rows(rows) for rows in several), strict=True))
    sums = [[row.sample for row in line if row.sample is not None] for line in lines]
    means = [samples.mean_of(*own) if len(own) == len(several) else None for own in sums]
    made = frame.put(
        several[0],
        metric=[metric] * len(lines),
        ok=[all(row.ok for row in line) for line in lines],
        status=[next((row.status for row in line if not row.ok), line[0].status) for line in lines],
        lossless=[all(row.lossless for row in line if row.ok) for line in lines],
        busy=[any(row.busy for row in line) for line in lines],
    )
    return frame.of_values(made, [one if one is not None and len(one.sums) else None for one in means])
