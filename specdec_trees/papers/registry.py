"""The registry: every artifact by name, those of the papers and our own."""

from __future__ import annotations

import difflib
import shlex
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path

import pandas as pd

from specdec_trees import published
from specdec_trees.artifacts import definitions, frame, notes, unresolved
from specdec_trees.artifacts.outputs import Artifact, Output
from specdec_trees.artifacts.tables import Table
from specdec_trees.locations import IN_CHECKOUT
from specdec_trees.papers import beyond
from specdec_trees.papers.beyond import baselines, claims, which
from specdec_trees.papers.beyond.own import on_dataset
from specdec_trees.results import progress
from specdec_trees.results.store import Results, experiments

DATASETS = ("mt_bench", "gsm8k", "c4", "cnn_dm", "xsum")
"""Datasets that have an experiment of their own, `bench/<dataset>`, for any pair."""
FIDELITY = "What differs from the paper, and why: docs/fidelity.md"
_MODULES = {paper: import_module(f"specdec_trees.papers.{paper}") for paper in published.papers()}
PAPERS: Mapping[str, Mapping[str, Artifact]] = {paper: module.ARTIFACTS for paper, module in _MODULES.items()}
TITLES: Mapping[str, str] = {paper: _MODULES[paper].TITLE for paper in sorted(_MODULES)}
"""Full names of the papers, and where they are found, by short name."""
ARTIFACTS: dict[str, Artifact] = {
    **{f"{paper}/{name}": artifact for paper, own in PAPERS.items() for name, artifact in own.items()},
    **{f"bench/{name}": Artifact(on_dataset) for name in DATASETS},
    **beyond.ARTIFACTS,
}
BASELINES = "baselines"
SUMMARIES: dict[str, Artifact] = {
    "which": Artifact(which.which, which.read),
    "claims": Artifact(claims.claims, claims.read),
    BASELINES: Artifact(baselines.baselines, baselines.read),
}
"""What is made of several artifacts' results, or of the papers' numbers alone, without an experiment of its own."""


def yours(root: Path) -> list[str]:
    """The experiments under `root` that are no artifact and have runs, such as `default` of cells run alone."""
    names = [store.experiment for store in experiments(root, "runs")]
    names = [name for name in names if not any(part.startswith(".") for part in name.split("/"))]
    return [name for name in names if name not in ARTIFACTS]


def build(name: str, root: Path, pair: str | None = None) -> list[Output]:
    """The outputs of an artifact, or of an experiment that is none, from the results under `root`.

    Raises KeyError with a sentence for an unknown name, NoResultsError where nothing was run.
    """
    known = ARTIFACTS | SUMMARIES
    if name not in known and name not in yours(root):
        same = [known for known in ARTIFACTS if known.endswith(f"/{name}")]
        near = same or difflib.get_close_matches(name, known, n=3, cutoff=0.3) or sorted(known)
        raise KeyError(f"there is no artifact {name!r}; the nearest are {', '.join(near)}")
    artifact = known.get(name, beyond.YOURS)
    results = artifact.read(root / name, pair)
    runs = frame.load(results) if isinstance(results, Results) and len(results.runs) else None
    return [_headed(name, runs, output) for output in artifact.build(Path(name).name, results)]


def _headed(name: str, runs: pd.DataFrame | None, output: Output) -> Output:
    """A table with the headers in its paper's words, and where the paper's numbers are from.

    Above it stands what the intervals of its results cannot tell, below it where the page stands that says what differs
    from the paper, and an excerpt of what was decoded.
    """
    if not isinstance(output, Table):
        return output
    paper, _, artifact = name.partition("/")
    table = output
    if paper in PAPERS:
        below = (*table.notes, *published.recovered(paper, artifact), f"{FIDELITY}#{paper}-{artifact}.")
        table = replace(table, headers=definitions.counted(paper, table.headers), notes=below)
    if runs is not None:
        table = notes.excerpted(runs, unresolved.warn(runs, table))
    said = partial(definitions.worded, paper)
    return replace(table, warning=said(table.warning), notes=tuple(map(said, table.notes)))


def command(name: str, pair: str | None = None, root: Path | None = None) -> str:
    """The command that runs an artifact, on `pair` or the embedded one; as it was planned, if it was, under `root`.

    Decoded, not replayed, since what is missing may be times. "" of a summary, which is of what others run.
    """
    if root is not None and (plan := progress.read_plan(root / name, pair)):
        overrides = [override for override in plan.overrides if not override.startswith("runtime.replay=")]
        if pair:
            overrides = [*(override for override in overrides if not override.startswith("pair=")), f"pair={pair}"]
        return shlex.join(["specdec", "reproduce", name, *overrides])
    if name in SUMMARIES:
        return ""
    if name not in ARTIFACTS:
        return f"specdec run name={name} pair={pair or 'tiny'}"
    if not IN_CHECKOUT:
        return f"specdec reproduce {name} pair={pair or 'tiny'}"
    if name == "smoke":
        return "make smoke" if pair in (None, "tiny") else f"make smoke PAIR={pair}"
    if name in {f"bench/{dataset}" for dataset in DATASETS}:
        return f"make bench-{Path(name).name.replace('_', '')} PAIR={pair or 'tiny'}"
    return f"make reproduce TABLE={name} PAIR={pair or 'tiny'}"
