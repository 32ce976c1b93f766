"""Ratios between the arms of `specdec_trees.speed.peers`, in pairs over prompts, from seconds by prompt and round."""

from __future__ import annotations

import pandas as pd

from specdec_core.models.graphs import EAGER
from specdec_trees.artifacts.tables import ABSENT, Table, frame, interval
from specdec_trees.statistics import samples
from specdec_trees.statistics.intervals import Interval
from specdec_trees.statistics.samples import Sample

EAGER_COLUMN, PLAIN_COLUMN = "to eager", "to plain decoding"
COLUMNS = ("arm", "drafter", "graphs", "prompt_id", "round", "tokens", "seconds")
"""Of the rows, one for each arm, prompt and round: `peers_prompts.csv`. A peer's `drafter` and `graphs` are empty."""
PLAIN = "autoregressive"
"""The drafter of plain decoding."""
LEGEND = {
    EAGER_COLUMN: "tokens/s divided by those of the same method whose forwards run in no graphs",
    PLAIN_COLUMN: "tokens/s divided by those of plain decoding in our loop whose forwards run alike",
}


def ratio(rows: pd.DataFrame, arm: str, other: str) -> Interval:
    """Tokens per second of an arm / those of another one on the same prompts, with the interval of a speedup.

    The rounds of a prompt are averaged, so that each prompt counts once.
    """
    means = rows.groupby(["arm", "prompt_id"])[["tokens", "seconds"]].mean()
    sums = means.loc[arm].join(means.loc[other].add_suffix("_other"), how="inner")
    return samples.interval(Sample(sums, ("tokens", "seconds_other"), ("tokens_other", "seconds")))


def table(rows: pd.DataFrame, title: str) -> Table:
    """Each of our arms against itself in eager mode, against plain decoding and against every peer."""
    arms = rows[["arm", "drafter", "graphs"]].fillna("").drop_duplicates().astype(str)
    names = {(drafter, graphs): arm for arm, drafter, graphs in arms.to_numpy().tolist() if drafter}
    peers = arms.loc[arms["drafter"] == "", "arm"].tolist()
    lines = []
    for (drafter, graphs), arm in names.items():
        others = {EAGER_COLUMN: names.get((drafter, EAGER), arm), PLAIN_COLUMN: names.get((PLAIN, graphs), arm)}
        others |= {peer: peer for peer in peers}
        cells = {header: _cell(rows, arm, other) for header, other in others.items()}
        lines.append({"Arm": arm, **cells})
    legend = LEGEND | dict.fromkeys(peers, "tokens/s divided by this peer's")
    notes = (
        "Above 1 the arm of the row is the faster one. In brackets: the interval of the ratio, paired over prompts, "
        "of which each counts once with the mean of its rounds.",
    )
    return Table("peers_ratios", title, frame(lines, ("Arm", EAGER_COLUMN, PLAIN_COLUMN, *peers)), notes, legend)


def _cell(rows: pd.DataFrame, arm: str, other: str) -> str:
    return ABSENT if arm == other else interval(ratio(rows, arm, other))
