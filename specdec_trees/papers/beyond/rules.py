"""Rules of acceptance by how children are drawn, on trees of the same shape: what is owed to draws, what to rules."""

from __future__ import annotations

from typing import Any

import pandas as pd

from specdec_trees.artifacts import draw, frame, notes
from specdec_trees.artifacts.definitions import rule_label
from specdec_trees.artifacts.metrics import MAL, MEAN_SIZE, Metric
from specdec_trees.artifacts.outputs import Output
from specdec_trees.artifacts.table import table
from specdec_trees.artifacts.tables import named_rows
from specdec_trees.results.store import Results
from specdec_trees.statistics import samples
from specdec_trees.statistics.intervals import Interval

ROUNDS = {
    "topk": "target_sample",
    "iid": "spec_infer",
    "without_replacement": "without_replacement",
    "greedy_one": "greedy_one",
}
"""Of each way to draw the rule that judges one child after another, from the root on."""
FIRST = "iid"
"""The draws that others are set against: of every token of its own."""
DRAWS = {
    "topk": "best tokens",
    "iid": "independent",
    "without_replacement": "without replacement",
    "greedy_one": "best tokens and one draw",
}


def _ratio(run: Any, other: Any) -> Interval | None:
    """MAL over another run's, of the conversations of both; None of itself, and without another."""
    if other is None or other.run_id == run.run_id:
        return None
    return samples.paired_ratio(samples.mal(run.steps), samples.mal(other.steps))


BY_RULE = Metric(
    "by_rule",
    "MAL / MAL of rounds",
    "over the rule that judges one child after another, of the same draws and shape",
    lambda run: _ratio(run, run.rounds),
    3,
)
BY_DRAWS = Metric(
    "by_draws",
    "MAL / MAL of SpecInfer",
    "over such a rule with independent draws, of the same shape: what draws and rule give together",
    lambda run: _ratio(run, run.first),
    3,
)
JUDGING = Metric(
    "judge_us",
    "judging, us",
    "microseconds of judging a step, the draw of the next token included",
    lambda run: 1e6 * float(run.steps["judge_s"].mean()) if len(run.steps) else None,
    0,
)
METRICS = (MAL, BY_RULE, BY_DRAWS, MEAN_SIZE, JUDGING)
ROWS = ("pair", "dataset", "temperature", "tree", "drawn", "rule")
HEADERS = {"tree": "Tree", "drawn": "Children", "rule": "Rule"}
_NOTES = (
    "At temperature 0 all rules that keep the target's distribution accept the same path.",
    "Of best tokens alone no rule accepts more than target sampling: Traversal is the same rule there.",
    "SpecHub is the rule for best tokens and one draw, of two children. Block verification is Traversal on a chain.",
    "Trees were drawn anew in every run: a ratio without a lead may be one of more conversations.",
)


def rules(name: str, results: Results) -> list[Output]:
    """The table: a row for each tree, way of drawing and rule; raises NoResultsError where no tree ended well."""
    loaded = frame.finished(results)
    runs = loaded[(loaded["temperature"] > 0) & loaded["draws"].isin([*DRAWS])]
    runs = draw.drafting(runs).reset_index(drop=True)
    runs = frame.put(runs, tree=runs["drafter"], drawn=runs["draws"].map(DRAWS), rule=runs["verifier"].map(rule_label))
    runs = frame.put(runs, rounds=_beside(runs, None), first=_beside(runs, FIRST))
    known = [*DRAWS]
    runs = runs.assign(place=runs["draws"].map(known.index), judged=runs["verifier"] != runs["draws"].map(ROUNDS))
    ordered = runs.sort_values(["block", "tree", "place", "judged", "verifier"], kind="stable", ignore_index=True)
    long = frame.rank(frame.measure(ordered, METRICS), ["block", "tree"])
    title = f"Rules of acceptance by draws ({notes.setting(runs)})"
    below = [*draw.below(loaded, runs), *_NOTES]
    return [table(name, title, long, ROWS, METRICS, notes=below, headers=HEADERS)]


def _beside(runs: pd.DataFrame, draws: str | None) -> list[Any]:
    """Of each run the one of the same block and tree whose rule is rounds, of its draws or of these."""
    found = {(run.block, run.tree, run.draws): run for run in named_rows(runs) if ROUNDS.get(run.draws) == run.verifier}
    return [found.get((run.block, run.tree, draws or run.draws)) for run in named_rows(runs)]
