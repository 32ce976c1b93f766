"""The artifacts of GSD by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from bench.artifacts.artifact import Artifact, read_case_study
from bench.artifacts.outputs import Output
from bench.papers.gsd.by_dataset import LAYOUTS, by_dataset
from bench.papers.gsd.figures import FIG5, FIG7, FIG8
from bench.papers.gsd.merging import merge_kl, recurrence, story
from bench.papers.gsd.operations import operations
from bench.papers.gsd.quality import quality_table
from bench.papers.gsd.table1 import table1
from bench.results.store import Results

_BUILT: Mapping[str, Callable[[str, Results], list[Output]]] = {
    "table1": table1,
    "table3": operations,
    "table10": quality_table,
    "table5": merge_kl,
    "fig3": recurrence,
    **FIG5,
    "fig7": FIG7,
    "fig8": FIG8,
}
ARTIFACTS: Mapping[str, Artifact] = {
    **{name: Artifact(partial(build, name)) for name, build in _BUILT.items()},
    **{name: Artifact(partial(by_dataset, name)) for name in LAYOUTS},
    "fig6": Artifact(story, read_case_study),
}
