"""Rules of acceptance by how children are drawn, on trees of the same shape: what is owed to draws, what to rules."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pandas as pd

from specdec_trees.artifacts import draw, frame, notes
from specdec_trees.artifacts.definitions import rule_label
from specdec_trees.artifacts.metrics import MAL, MEAN_SIZE, Metric, per_row
from specdec_trees.artifacts.outputs import Output
from specdec_trees.artifacts.table import table
from specdec_trees.artifacts.tables import named_rows
from specdec_trees.results.store import Results
from specdec_trees.statistics import samples
from specdec_trees.statistics.intervals import Interval
from specdec_trees.statistics.samples import Sample

ROUNDS = {
    "topk": "target_sample",
    "iid": "spec_infer",
    "without_replacement": "without_replacement",
    "greedy_one": "greedy_one",
}
"""Of each way to draw the rule that judges one child after another, from the root on."""
FIRST = "iid"
"""The draws that all others are set against, SpecInfer's."""
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


def _expected(run: Any, rule: str) -> Sample | None:
    """What a rule accepts in the mean on the trees of the run whose rule is rounds, with the target's token.

    Between the bounds of that run's MAL: 1, and a whole path with the target's token.
    """
    if run.rounds is None or not len(run.rounds.judged):
        return None
    rows, bounds = run.rounds.judged, samples.mal(run.rounds.steps)
    lengths = per_row(rows[rows["rule"] == rule].assign(length=rows["expected_accepted"] + 1), "length")
    return lengths and replace(lengths, least=bounds.least, most=bounds.most)


def _by_rule(run: Any) -> Interval | None:
    """Over rounds, on the very same trees; None without recorded rules."""
    if run.verifier == ROUNDS[run.draws]:
        return None
    expected = [_expected(run, rule) for rule in (run.verifier, ROUNDS[run.draws])]
    return None if None in expected else samples.paired_ratio(*expected)


EXPECTED = Metric(
    "expected",
    "MAL on the same trees",
    "tokens a step that the rule yields in the mean over its coins, of the trees that one run of these draws drafted",
    lambda run: _expected(run, run.verifier),
)
BY_RULE = Metric(
    "by_rule",
    "over rounds",
    "that over the same of the rule which judges one child after another",
    _by_rule,
    3,
)
BY_DRAWS = Metric(
    "by_draws",
    "MAL over SpecInfer's",
    "over that of such a rule with independent draws and the same shape: what draws and rule give together",
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
METRICS = (MAL, EXPECTED, BY_RULE, BY_DRAWS, MEAN_SIZE, JUDGING)
ROWS = ("pair", "dataset", "temperature", "tree", "drawn", "rule")
HEADERS = {"tree": "Tree", "drawn": "Children", "rule": "Rule"}
_NOTES = (
    "At temperature 0 all rules that keep the target's distribution accept the same path.",
    "Of best tokens alone no rule accepts more than target sampling: Traversal is the same rule there.",
    "SpecHub is the rule for best tokens and one draw, of two children. Block verification is Traversal on a chain.",
    "MAL is of each run's own trees and coins. On the same trees all rules are asked at every step of the run whose "
    "rule is rounds. Steps begin where that rule's do, and tokens behind an end of text count: a rule's own MAL is a "
    "little different.",
)


def rules(name: str, results: Results) -> list[Output]:
    """The table: a row for each tree, way of drawing and rule; raises NoResultsError where no tree ended well."""
    loaded = frame.finished(results)
    runs = loaded[(loaded["temperature"] > 0) & loaded["draws"].isin([*DRAWS])]
    runs = draw.drafting(runs).reset_index(drop=True)
    runs = frame.put(runs, tree=runs["drafter"], drawn=runs["draws"].map(DRAWS), rule=runs["verifier"].map(rule_label))
    runs = frame.put(runs, judged=frame.of_runs(results.rules, runs["run_id"]))
    runs = frame.put(runs, rounds=_beside(runs, None), first=_beside(runs, FIRST))
    known = [*DRAWS]
    runs = runs.assign(place=runs["draws"].map(known.index), later=runs["verifier"] != runs["draws"].map(ROUNDS))
    ordered = runs.sort_values(["block", "tree", "place", "later", "verifier"], kind="stable", ignore_index=True)
    long = frame.rank(frame.measure(ordered, METRICS), ["block", "tree"])
    title = f"Rules of acceptance by draws ({notes.setting(runs)})"
    below = [*draw.below(loaded, runs), *_NOTES]
    return [table(name, title, long, ROWS, METRICS, notes=below, headers=HEADERS)]


def _beside(runs: pd.DataFrame, draws: str | None) -> list[Any]:
    """Of each run the one of the same block and tree whose rule is rounds, of its draws or of these."""
    found = {(run.block, run.tree, run.draws): run for run in named_rows(runs) if ROUNDS.get(run.draws) == run.verifier}
    return [found.get((run.block, run.tree, draws or run.draws)) for run in named_rows(runs)]
