"""The artifacts of the OPT-Tree paper by name."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from bench.artifacts import case_study
from bench.artifacts.artifact import Artifact, read_case_study
from bench.artifacts.expected_actual import expected_actual
from bench.artifacts.latency import forward_time
from bench.artifacts.phases import time_by_phase
from bench.papers.opt_tree.comparison import paper_table
from bench.papers.opt_tree.frequency import acceptance_by_probability
from bench.papers.opt_tree.sweeps import FIG6, FIG8, FIG9

ARTIFACTS: Mapping[str, Artifact] = {
    "table1": Artifact(partial(paper_table, "table1")),
    "table2": Artifact(partial(paper_table, "table2")),
    "table3": Artifact(partial(paper_table, "table3")),
    "fig3": Artifact(partial(forward_time, "fig3")),
    "fig5": Artifact(partial(expected_actual, "fig5")),
    "fig6": Artifact(partial(FIG6, "fig6")),
    "fig7": Artifact(partial(time_by_phase, "fig7")),
    "fig8": Artifact(partial(FIG8, "fig8")),
    "fig9": Artifact(partial(FIG9, "fig9")),
    "fig10": Artifact(case_study.render, read_case_study),
    "fig11": Artifact(partial(acceptance_by_probability, "fig11")),
}
