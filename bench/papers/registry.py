"""The registry: every artifact by name, those of the papers and our own."""

from __future__ import annotations

import difflib
import shlex
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

from bench import published
from bench.artifacts import decoded, definitions, unresolved
from bench.artifacts.artifact import Artifact
from bench.artifacts.outputs import Output
from bench.artifacts.tables import Table
from bench.papers.beyond import smoke
from bench.papers.beyond.budget import at_equal_budget
from bench.papers.beyond.draft_temperature import DRAFT_TEMPERATURE
from bench.papers.dyspec.artifacts import ARTIFACTS as DYSPEC
from bench.papers.gsd.artifacts import ARTIFACTS as GSD
from bench.papers.improving_mcsd.artifacts import ARTIFACTS as IMPROVING_MCSD
from bench.papers.opt_tree.artifacts import ARTIFACTS as OPT_TREE
from bench.papers.opt_tree.comparison import dataset_table
from bench.papers.sequoia.artifacts import ARTIFACTS as SEQUOIA
from bench.results import progress
from bench.results.store import Results

DATASETS = ("mt_bench", "gsm8k", "c4", "cnn_dm", "xsum")
"""Datasets that have an experiment of their own, `bench/<dataset>`, for any pair."""
PAPERS: Mapping[str, Mapping[str, Artifact]] = {
    "opt_tree": OPT_TREE,
    "sequoia": SEQUOIA,
    "dyspec": DYSPEC,
    "gsd": GSD,
    "improving_mcsd": IMPROVING_MCSD,
}
ARTIFACTS: dict[str, Artifact] = {
    **{f"{paper}/{name}": artifact for paper, own in PAPERS.items() for name, artifact in own.items()},
    **{f"bench/{name}": Artifact(partial(dataset_table, name)) for name in DATASETS},
    "bench/budget": Artifact(partial(at_equal_budget, "budget")),
    "bench/draft_temperature": Artifact(partial(DRAFT_TEMPERATURE, "draft_temperature")),
    "smoke": Artifact(smoke.smoke),
}


def build(name: str, root: Path, pair: str | None = None) -> list[Output]:
    """The outputs of an artifact from the results under `root`.

    Raises KeyError with a sentence for an unknown name, NoResultsError where nothing was run.
    """
    if name not in ARTIFACTS:
        same = [known for known in ARTIFACTS if known.endswith(f"/{name}")]
        near = same or difflib.get_close_matches(name, ARTIFACTS, n=3, cutoff=0.3) or sorted(ARTIFACTS)
        raise KeyError(f"there is no artifact {name!r}; the nearest are {', '.join(near)}")
    artifact = ARTIFACTS[name]
    found = artifact.read(root / name, pair)
    return [_headed(name, found, output) for output in artifact.build(found)]


def _headed(name: str, found: object, output: Output) -> Output:
    """A table with the headers of its paper, those of its own before them, and where the paper's numbers are from.

    Above it stands what the intervals of its results cannot tell, below it an excerpt of what was decoded.
    """
    if not isinstance(output, Table):
        return output
    paper, _, artifact = name.partition("/")
    ours = definitions.headers(paper, map(str, output.frame))
    origins = published.recovered(paper, artifact) if paper in PAPERS else ()
    table = replace(output, headers=ours | dict(output.headers), notes=(*output.notes, *origins))
    return decoded.shown(found.runs, unresolved.warn(found, table)) if isinstance(found, Results) else table


def command(name: str, pair: str | None = None, root: Path | None = None) -> str:
    """The command that runs an artifact, on `pair` or the embedded one; as it was planned, if it was, under `root`."""
    if root is not None and (plan := progress.read_plan(root / name)):
        others = [override for override in plan.overrides if not override.startswith("pair=")]
        overrides = plan.overrides if pair is None else (*others, f"pair={pair}")
        return shlex.join(["python", "-m", "bench.reproduce", name, *overrides])
    if name == "smoke":
        return "make smoke"
    if name in {f"bench/{dataset}" for dataset in DATASETS}:
        return f"make bench-{Path(name).name.replace('_', '')} PAIR={pair or 'tiny'}"
    return f"make reproduce TABLE={name} PAIR={pair or 'tiny'}"
