"""The tables, figures and pages of the OPT-Tree paper."""

from collections.abc import Mapping

from specdec_trees.artifacts import case_study
from specdec_trees.artifacts.outputs import Artifact
from specdec_trees.papers.opt_tree import figures, tables

TITLE = "OPT-Tree: Speculative Decoding with Adaptive Draft Tree Structure (arXiv:2406.17276)"
ARTIFACTS: Mapping[str, Artifact] = {
    **{name: Artifact(tables.paper_table) for name in tables.TABLES},
    "fig3": Artifact(figures.fig3),
    "fig5": Artifact(figures.fig5),
    "fig6": Artifact(figures.fig6),
    "fig7": Artifact(figures.fig7),
    "fig8": Artifact(figures.fig8),
    "fig9": Artifact(figures.fig9),
    "fig10": Artifact(figures.fig10, case_study.read),
    "fig11": Artifact(figures.fig11),
}
