"""The artifacts of GSD by name."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from bench.artifacts.artifact import Artifact, read_case_study
from bench.papers.gsd.ablations import ABLATIONS, ablation
from bench.papers.gsd.by_dataset import by_dataset
from bench.papers.gsd.child_ranks import GROUPINGS, child_ranks
from bench.papers.gsd.layouts import LAYOUTS
from bench.papers.gsd.main_table import main_table
from bench.papers.gsd.merge_kl import merge_kl
from bench.papers.gsd.operations import operations
from bench.papers.gsd.quality import quality_table
from bench.papers.gsd.recurrence import recurrence
from bench.papers.gsd.story import story

ARTIFACTS: Mapping[str, Artifact] = {
    "table1": Artifact(partial(main_table, "table1")),
    **{name: Artifact(partial(by_dataset, name, layout)) for name, layout in LAYOUTS.items()},
    "table3": Artifact(partial(operations, "table3")),
    "table10": Artifact(partial(quality_table, "table10")),
    "table5": Artifact(partial(merge_kl, "table5")),
    "fig3": Artifact(partial(recurrence, "fig3")),
    **{name: Artifact(partial(ablation, name)) for name in ABLATIONS},
    "fig6": Artifact(story, read_case_study),
    **{name: Artifact(partial(child_ranks, name)) for name in GROUPINGS},
}
