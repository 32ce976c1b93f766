"""The tables and figures of GSD (Gong et al., 2024)."""

from collections.abc import Mapping

from specdec_trees.artifacts import case_study
from specdec_trees.artifacts.outputs import Artifact
from specdec_trees.papers.gsd import by_dataset, figures, merging, operations, quality, table1

TITLE = "Graph-Structured Speculative Decoding (arXiv:2407.16207)"
ARTIFACTS: Mapping[str, Artifact] = {
    "table1": Artifact(table1.table1),
    "table3": Artifact(operations.operations),
    "table10": Artifact(quality.quality_table),
    "table5": Artifact(merging.merge_kl),
    "fig3": Artifact(merging.recurrence),
    **{name: Artifact(sweep) for name, sweep in figures.FIG5.items()},
    "fig7": Artifact(figures.fig7),
    "fig8": Artifact(figures.fig8),
    **{name: Artifact(by_dataset.by_dataset) for name in by_dataset.TABLES},
    "fig6": Artifact(merging.story, case_study.read),
}
ARMS = {
    **{name: kind.arms for name, kind in by_dataset.TABLES.items()},
    "table1": (*table1.ARMS, *table1.OWN),
    "table3": operations.ARMS,
    "table10": quality.ARMS,
}
"""The methods by which the plan finds an artifact's rows in the CSV."""
