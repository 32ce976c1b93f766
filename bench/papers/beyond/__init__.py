"""Artifacts of no paper: equal budgets, the smoke run, what the draft's temperature does, and your own runs."""

from collections.abc import Mapping

from bench.artifacts.metric import EXPECTED, MAL, SPEEDS, SPEEDUP
from bench.artifacts.outputs import Artifact
from bench.artifacts.sweep import Sweep, bare, curve
from bench.papers.beyond import budget, smoke
from bench.papers.beyond.by_speedup import by_speedup

_DRAFT_TEMPERATURE = Sweep(  # where MAL meets what the draft itself expects, it is as sure as it is right
    "MAL and E(A) against the temperature of the draft",
    "draft_temperature",
    "draft temperature (the papers: 1; DySpec: 0.6)",
    [[curve(MAL), bare(EXPECTED)]],
    (MAL, EXPECTED, *SPEEDS, SPEEDUP),
    ranked=[MAL],
)
ARTIFACTS: Mapping[str, Artifact] = {
    "bench/budget": Artifact(budget.at_equal_budget),
    "bench/draft_temperature": Artifact(_DRAFT_TEMPERATURE),
    "smoke": Artifact(smoke.smoke),
}
YOURS = Artifact(lambda name, results: [*by_speedup(name, f"Runs of {name}", results)])
"""Of an experiment that is no artifact, such as `default`: a row per run."""
