"""The artifacts of the OPT-Tree paper by name."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from bench.report import case_study
from bench.report.artifact import Artifact, read_case_study
from bench.report.figures.expected_actual import expected_actual
from bench.report.figures.frequency import acceptance_by_probability
from bench.report.figures.latency import forward_time
from bench.report.figures.phases import time_by_phase
from bench.report.figures.sweeps import by_delta, by_temperature
from bench.report.figures.tree_size import mal_by_size
from bench.report.opt_tree.comparison import paper_table

ARTIFACTS: Mapping[str, Artifact] = {
    "table1": Artifact(partial(paper_table, "table1")),
    "table2": Artifact(partial(paper_table, "table2")),
    "table3": Artifact(partial(paper_table, "table3")),
    "fig3": Artifact(partial(forward_time, "fig3")),
    "fig5": Artifact(partial(expected_actual, "fig5")),
    "fig6": Artifact(partial(mal_by_size, "fig6")),
    "fig7": Artifact(partial(time_by_phase, "fig7")),
    "fig8": Artifact(partial(by_delta, "fig8")),
    "fig9": Artifact(partial(by_temperature, "fig9")),
    "fig10": Artifact(case_study.render, read_case_study),
    "fig11": Artifact(partial(acceptance_by_probability, "fig11")),
}
