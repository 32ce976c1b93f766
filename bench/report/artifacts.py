"""The registry: every artifact by name, how its rows are read and what builds it."""

from __future__ import annotations

import difflib
import shlex
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from bench import progress, store
from bench.report import case_study, definitions, smoke
from bench.report.budget import at_equal_budget
from bench.report.dyspec.attention import attention_figure, attention_table
from bench.report.dyspec.layouts import LAYOUTS as DYSPEC
from bench.report.dyspec.mask_blocks import blocks_by_prefix
from bench.report.dyspec.masks import ORDERS, tree_masks
from bench.report.dyspec.probabilities import probabilities
from bench.report.dyspec.step_times import STEP
from bench.report.dyspec.tree_sizes import tree_sizes
from bench.report.figures.expected_actual import expected_actual
from bench.report.figures.frequency import acceptance_by_probability
from bench.report.figures.latency import SEQUOIA_TITLE, forward_time
from bench.report.figures.phases import time_by_phase
from bench.report.figures.sweeps import by_delta, by_temperature
from bench.report.figures.tree_size import mal_by_size
from bench.report.gsd.ablations import ABLATIONS, ablation
from bench.report.gsd.by_dataset import by_dataset
from bench.report.gsd.child_ranks import GROUPINGS, child_ranks
from bench.report.gsd.layouts import LAYOUTS as GSD
from bench.report.gsd.main_table import main_table
from bench.report.gsd.merge_kl import merge_kl
from bench.report.gsd.operations import operations
from bench.report.gsd.quality import quality_table
from bench.report.gsd.recurrence import recurrence
from bench.report.gsd.story import story
from bench.report.improving_mcsd.acceptance import LAYOUTS as MCSD
from bench.report.improving_mcsd.acceptance import acceptance_table
from bench.report.improving_mcsd.bars import LAYOUTS as MCSD_BARS
from bench.report.improving_mcsd.bars import speedup_bars
from bench.report.improving_mcsd.by_width import by_width
from bench.report.improving_mcsd.decisions import with_decisions
from bench.report.improving_mcsd.heat_map import heat_map
from bench.report.improving_mcsd.quality import answers_table
from bench.report.improving_mcsd.scores import scores
from bench.report.opt_tree.comparison import dataset_table, paper_table
from bench.report.outputs import NoResultsError, Output
from bench.report.sequoia.by_rule import speedup_by_temperature
from bench.report.sequoia.by_size import speedup_by_size
from bench.report.sequoia.formulas import formula_table
from bench.report.sequoia.layouts import LAYOUTS as SEQUOIA
from bench.report.sequoia.rejection import rejection_rates
from bench.report.sequoia.tokens_by_size import tokens_by_size
from bench.report.speedups.table import speedup_table
from bench.report.tables import Table

DATASETS = ("mt_bench", "gsm8k", "c4", "cnn_dm", "xsum")
"""Datasets that have an experiment of their own, `bench/<dataset>`, for any pair."""
Builder = Callable[[Any], list[Output]]


def read_results(folder: Path, pair: str | None) -> store.Results:
    """The tables in an experiment's folder, first what its plan asks for; NoResultsError if nothing was measured."""
    if not folder.is_dir():
        raise NoResultsError(f"there are none in {folder}")
    results = store.load(folder.parent, folder.name, pair, first=progress.planned_runs(folder))
    measured = (results.runs, results.latency, results.acceptance, results.attention, results.decisions)
    if all(table.empty for table in measured):
        raise NoResultsError(f"there are none in {folder}")
    return results


def read_case_study(folder: Path, pair: str | None) -> case_study.CaseStudy:
    """The case study in an experiment's folder."""
    return case_study.read(folder)


@dataclass(frozen=True, slots=True)
class Artifact:
    """`build` makes outputs of what `read(folder, pair)` finds."""

    build: Builder
    read: Callable[[Path, str | None], Any] = read_results


ARTIFACTS: dict[str, Artifact] = {
    "opt_tree/table1": Artifact(partial(paper_table, "table1")),
    "opt_tree/table2": Artifact(partial(paper_table, "table2")),
    "opt_tree/table3": Artifact(partial(paper_table, "table3")),
    "opt_tree/fig3": Artifact(partial(forward_time, "fig3")),
    "opt_tree/fig5": Artifact(partial(expected_actual, "fig5")),
    "opt_tree/fig6": Artifact(partial(mal_by_size, "fig6")),
    "opt_tree/fig7": Artifact(partial(time_by_phase, "fig7")),
    "opt_tree/fig8": Artifact(partial(by_delta, "fig8")),
    "opt_tree/fig9": Artifact(partial(by_temperature, "fig9")),
    "opt_tree/fig10": Artifact(case_study.render, read_case_study),
    "opt_tree/fig11": Artifact(partial(acceptance_by_probability, "fig11")),
    "sequoia/table1": Artifact(partial(formula_table, "table1")),
    "sequoia/table2": Artifact(partial(formula_table, "table2")),
    **{f"sequoia/{name}": Artifact(partial(speedup_table, name, layout)) for name, layout in SEQUOIA.items()},
    "sequoia/fig1": Artifact(partial(tokens_by_size, "fig1")),
    "sequoia/fig2": Artifact(partial(tokens_by_size, "fig2")),
    "sequoia/fig3": Artifact(partial(rejection_rates, "fig3")),
    "sequoia/fig4": Artifact(partial(forward_time, "fig4", title=SEQUOIA_TITLE, flat=False)),
    "sequoia/fig5a": Artifact(partial(tokens_by_size, "fig5a")),
    "sequoia/fig5b": Artifact(partial(speedup_by_temperature, "fig5b")),
    "sequoia/fig5c": Artifact(partial(speedup_by_size, "fig5c")),
    **{f"dyspec/{name}": Artifact(partial(speedup_table, name, layout)) for name, layout in DYSPEC.items()},
    "dyspec/fig2": Artifact(partial(probabilities, "fig2")),
    "dyspec/fig4": Artifact(partial(time_by_phase, "fig4", pies=STEP)),
    "dyspec/fig5": Artifact(partial(tree_sizes, "fig5")),
    "dyspec/fig6": Artifact(partial(tree_masks, "fig6", orders=("heap", "dfs"), block=8)),
    "dyspec/fig7": Artifact(partial(tree_masks, "fig7", orders=tuple(ORDERS), block=32)),
    "dyspec/table5": Artifact(partial(attention_table, "table5")),
    "dyspec/fig8": Artifact(partial(attention_figure, "fig8")),
    "dyspec/fig9": Artifact(partial(blocks_by_prefix, "fig9")),
    "gsd/table1": Artifact(partial(main_table, "table1")),
    **{f"gsd/{name}": Artifact(partial(by_dataset, name, layout)) for name, layout in GSD.items()},
    "gsd/table3": Artifact(partial(operations, "table3")),
    "gsd/table10": Artifact(partial(quality_table, "table10")),
    "gsd/table5": Artifact(partial(merge_kl, "table5")),
    "gsd/fig3": Artifact(partial(recurrence, "fig3")),
    **{f"gsd/{name}": Artifact(partial(ablation, name)) for name in ABLATIONS},
    "gsd/fig6": Artifact(story, read_case_study),
    **{f"gsd/{name}": Artifact(partial(child_ranks, name)) for name in GROUPINGS},
    "improving_mcsd/table1": Artifact(partial(answers_table, "table1")),
    "improving_mcsd/fig4": Artifact(partial(heat_map, "fig4")),
    "improving_mcsd/fig6": Artifact(partial(by_width, "fig6")),
    "improving_mcsd/fig7": Artifact(partial(scores, "fig7")),
    "improving_mcsd/fig8": Artifact(partial(with_decisions, "fig8")),
    **{f"improving_mcsd/{name}": Artifact(partial(speedup_bars, layout)) for name, layout in MCSD_BARS.items()},
    **{f"improving_mcsd/{name}": Artifact(partial(acceptance_table, name, layout)) for name, layout in MCSD.items()},
    **{f"bench/{name}": Artifact(partial(dataset_table, name)) for name in DATASETS},
    "bench/budget": Artifact(partial(at_equal_budget, "budget")),
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
    return [_headed(name, output) for output in artifact.build(artifact.read(root / name, pair))]


def _headed(name: str, output: Output) -> Output:
    """A table with the headers of its paper, those of its own before them."""
    if not isinstance(output, Table):
        return output
    ours = definitions.headers(name.partition("/")[0], map(str, output.frame))
    return replace(output, headers=ours | dict(output.headers))


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
