"""The artifacts of the OPT-Tree paper by name."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from bench.artifacts.artifact import Artifact, read_case_study
from bench.papers.opt_tree.comparison import paper_table
from bench.papers.opt_tree.figures import FIG5, FIG7, FIG11, fig3, fig10
from bench.papers.opt_tree.sweeps import FIG6, FIG8, FIG9

ARTIFACTS: Mapping[str, Artifact] = {
    "table1": Artifact(partial(paper_table, "table1")),
    "table2": Artifact(partial(paper_table, "table2")),
    "table3": Artifact(partial(paper_table, "table3")),
    "fig3": Artifact(fig3),
    "fig5": Artifact(partial(FIG5, "fig5")),
    "fig6": Artifact(partial(FIG6, "fig6")),
    "fig7": Artifact(partial(FIG7, "fig7")),
    "fig8": Artifact(partial(FIG8, "fig8")),
    "fig9": Artifact(partial(FIG9, "fig9")),
    "fig10": Artifact(fig10, read_case_study),
    "fig11": Artifact(partial(FIG11, "fig11")),
}
