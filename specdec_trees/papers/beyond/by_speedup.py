"""Runs by their speedup: a table whose main columns fit a terminal. For `make smoke` and any runs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pandas as pd

from specdec_trees.artifacts import definitions, frame, notes, ties
from specdec_trees.artifacts.findings import BUSY, findings
from specdec_trees.artifacts.metrics import (
    EXPECTED,
    FORWARDS,
    IDENTICAL,
    IS_LOSSLESS,
    MAL,
    MEAN_SIZE,
    SPEEDS,
    SPEEDUP,
    Metric,
)
from specdec_trees.artifacts.table import table
from specdec_trees.artifacts.tables import Table, named_rows
from specdec_trees.results.store import Results
from specdec_trees.statistics import metrics


def _by_depth(depth: int, means: str = "") -> Metric:
    return Metric(f"depth_{depth}", f"d={depth}", means, lambda run: metrics.acceptance_by_depth(run.steps).get(depth))


WITHOUT_INTERVAL = replace(EXPECTED, key="expected_value", of=lambda run: metrics.expected_acceptance(run.steps))
DEPTHS = (
    _by_depth(
        1, "share of steps that accepted 1 drafted token or more, of those whose tree is so deep (d=2: 2 or more, ...)"
    ),
    *map(_by_depth, (2, 3, 4)),
)
A_STEP = replace(FORWARDS, header="forwards", means="draft forwards per decoding step")
CONTROLLED = replace(SPEEDUP, means=definitions.CONTROLLED_SPEEDUP)
SHORT = (MEAN_SIZE, MAL, WITHOUT_INTERVAL, A_STEP, CONTROLLED, IDENTICAL)
MORE = (*DEPTHS, *SPEEDS, IS_LOSSLESS)
FULL = (*SHORT, *MORE)
MEANS = {"n": f"the most {definitions.SIZE}"}


def by_speedup(name: str, title: str, results: Results) -> Table:
    """A row per run, with what they show; the setting where there are several.

    The fastest of each setting stands first, or the longest where times are too noisy. Only times are marked: larger
    trees accept more, and `bench/budget` compares trees of one size.
    """
    runs = frame.load(results)
    title, long = notes.titled(title, runs), _ranked(runs)
    rows = (*["setting"] * (long["block"].nunique() > 1), "who", "n")
    below = notes.of_blocks(runs)
    made = table(name, title, long, rows, FULL, aside=[metric.key for metric in MORE], notes=below, means=MEANS)
    return _unmarked(replace(made, findings=findings(runs)))


def _ranked(runs: pd.DataFrame) -> pd.DataFrame:
    """The long frame in the table's order, with marks behind times alone."""
    sizes = [frame.size_words(size, ok=ok) for size, ok in zip(runs["size"], runs["ok"], strict=True)]
    runs = frame.put(runs, who=told_apart(runs), n=sizes)
    long = frame.measure(runs, FULL)
    speeds, lengths = (long.loc[long["metric"].isin([one]), "value"].astype(float) for one in (CONTROLLED, MAL))
    busy = runs.groupby("block")["busy"].transform("any").astype(bool)
    values = [length if too_noisy else speed for speed, length, too_noisy in zip(speeds, lengths, busy, strict=True)]
    long = long.assign(first=values * len(FULL)).sort_values(["block", "first"], ascending=[True, False], kind="stable")
    return frame.rank(long, only=~long["metric"].isin([MAL]))


def told_apart(runs: pd.DataFrame) -> Iterator[str]:
    """The drafter, with what tells it from others of its block and config."""
    facts = [{**one.params, "judged by": definitions.rule_label(one.verifier)} for one in named_rows(runs)]
    configs = [*zip(runs["block"], runs["drafter"], strict=True)]
    for name, config, own in zip(runs["name"], configs, facts, strict=True):
        alike = [fact for fact, other in zip(facts, configs, strict=True) if other == config]
        words = ", ".join(f"{key} {value}" for key, value in definitions.differing(own, alike).items())
        yield f"{name} ({words})" if words else name


def _unmarked(table: Table) -> Table:
    """The table without the marks of times that are too noisy to rank, and with a warning in their place."""
    frame = table.frame.apply(lambda column: column.str.removesuffix(ties.UNRANKED))
    busy = not frame.equals(table.frame)
    below = tuple(note for note in table.notes if note != ties.BUSY_NOTE)
    return replace(table, frame=frame, notes=below, warning=BUSY * busy)
