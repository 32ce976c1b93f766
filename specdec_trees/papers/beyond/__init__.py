"""Artifacts of no paper: equal budgets, the smoke run, the draft's temperature, rules, ranks, and your own runs."""

from collections.abc import Mapping

from specdec_trees.artifacts.outputs import Artifact
from specdec_trees.papers.beyond import budget, smoke
from specdec_trees.papers.beyond.depth_rank import depth_rank, if_known
from specdec_trees.papers.beyond.draft_temperature import draft_temperature
from specdec_trees.papers.beyond.drafts import drafts
from specdec_trees.papers.beyond.own import own
from specdec_trees.papers.beyond.rules import rules

ARTIFACTS: Mapping[str, Artifact] = {
    "bench/budget": Artifact(budget.at_equal_budget),
    "bench/depth_rank": Artifact(depth_rank),
    "bench/draft_temperature": Artifact(draft_temperature),
    "bench/drafts": Artifact(drafts),
    "bench/rules": Artifact(rules),
    "smoke": Artifact(smoke.smoke),
}
YOURS = Artifact(lambda name, results: [*own(name, f"Runs of {name}", results), *if_known(f"{name}_ranks", results)])
"""Of an experiment that is no artifact, such as `default`."""
