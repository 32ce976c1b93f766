"""Artifacts of no paper: equal budgets, the smoke run, what the draft's temperature does, rules, and your own runs."""

from collections.abc import Mapping

from specdec_trees.artifacts.outputs import Artifact
from specdec_trees.papers.beyond import budget, smoke
from specdec_trees.papers.beyond.draft_temperature import draft_temperature
from specdec_trees.papers.beyond.own import own
from specdec_trees.papers.beyond.rules import rules

ARTIFACTS: Mapping[str, Artifact] = {
    "bench/budget": Artifact(budget.at_equal_budget),
    "bench/draft_temperature": Artifact(draft_temperature),
    "bench/rules": Artifact(rules),
    "smoke": Artifact(smoke.smoke),
}
YOURS = Artifact(lambda name, results: own(name, f"Runs of {name}", results))
"""Of an experiment that is no artifact, such as `default`."""
