"""GSD, Table 3: the time of a step by operation, and how much of TSD's drafting time GSD takes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd

from specdec_trees import published
from specdec_trees.artifacts import arms, frame, notes, tables
from specdec_trees.artifacts.arms import Arm
from specdec_trees.artifacts.metrics import FORWARDS, MAL, MEAN_SIZE, Metric, per_row
from specdec_trees.artifacts.outputs import Output
from specdec_trees.artifacts.table import table
from specdec_trees.artifacts.tables import named_rows
from specdec_trees.papers.gsd import methods
from specdec_trees.papers.gsd.methods import GREEDY, LARGE, SSD, TARGETS, bound
from specdec_trees.papers.gsd.metrics import ROWS
from specdec_trees.results.store import Results
from specdec_trees.statistics import graph_metrics, intervals, metrics, samples
from specdec_trees.statistics.samples import Sample

TITLE = "GSD Table 3: time of a decoding step by operation"


def _of_k(name: str, k: int) -> Arm:
    return bound(Arm(f"{name} (k={k})", (name.lower(),), name.lower(), {"k": str(k)}, rules=TARGETS), LARGE, k=k)


ARMS = (bound(SSD, LARGE), *(_of_k(name, k) for k in (2, 4) for name in ("TSD", "GSD")))


def _milliseconds(key: str, operation: str, means: str, digits: int = 1) -> Metric:
    def sums(run: Any) -> Sample | None:
        steps = metrics.timed(run.steps)
        seconds = steps[list(graph_metrics.OPERATIONS[operation])].sum(axis=1)
        return per_row(steps.assign(ms=seconds * 1000), "ms")

    return Metric(key, f"{operation.capitalize()} ms", means, sums, digits, timed=True)


DRAFT = _milliseconds(
    "draft_ms",
    "draft",
    "draft forwards, the work on tree or graph, and its layout for the target; mean over all steps, in brackets the "
    f"95% interval ({intervals.METHOD} over conversations); judged by order alone",
)
PRINTED = (
    DRAFT,
    _milliseconds("verify_ms", "verification", "the target's forward over the tree, and judging"),
    _milliseconds("other_ms", "others", "the rest, mostly keeping the accepted path in the caches of both models", 3),
)
NAMES = {metric.key: metric.key for metric in PRINTED}
"""The paper's metrics by the key of ours."""
PLAIN = Metric(
    "plain_ms",
    "plain ms",
    "a step of plain decoding in the same run: where it differs, the machine was another between the runs",
    lambda run: metrics.target_step_s(run.prompts) * 1000,
    1,
)
MORE = (PLAIN, FORWARDS, MEAN_SIZE, MAL)


def operations(name: str, results: Results) -> list[Output]:
    """A row per method, ours beside the paper's, and what the time goes to."""
    paper = published.find("gsd", name).assign(target="llama2_70b", draft="llama2_7b")
    runs = methods.load(results, paper, [GREEDY])
    (lines,) = methods.lines(runs, paper, ARMS, on=())
    long = frame.judge(arms.beside(frame.measure(lines, (*PRINTED, *MORE)), NAMES), who="label")
    below = [*notes.of_blocks(runs), *_notes(runs), *_drafting(long), *methods.unshown(results, lines, ARMS)]
    aside = [one.key for one in MORE]
    return [table(name, notes.titled(TITLE, runs), long, ROWS, (*PRINTED, *MORE), aside=aside, notes=below)]


def _notes(runs: pd.DataFrame) -> Iterator[str]:
    yield (
        "The paper states neither models nor prompts nor hardware of this table, whose numbers are taken to be of "
        "Llama-2-70B with Llama-2-7B on GSM8K: times are judged by order alone."
    )
    if runs["driver_version"].isna().groupby(runs["block"]).all().any():
        yield "Without a GPU the milliseconds mean nothing beside the paper's: a wide forward is cheap on no CPU."


def _drafting(long: pd.DataFrame) -> Iterator[str]:
    """What the paper's text claims of this table."""
    for _, rows in long.groupby("block", sort=False):
        of = {(row.label, row.metric.key): row for row in named_rows(rows)}
        for k in (2, 4):
            graph, tree = (of.get((f"{name} (k={k})", DRAFT.key)) for name in ("GSD", "TSD"))
            if not graph or not tree or graph.sample is None or tree.sample is None:
                continue
            ratio = samples.paired_ratio(graph.sample, tree.sample)
            low, high = ratio.ends
            level = "less" if high < 1 else "more" if low > 1 else "neither measurably less nor more"
            plain = [of[one.label, PLAIN.key].value for one in (tree, graph)]
            paper = f" The paper: {graph.published / tree.published:.2f}x." if graph.published else ""
            yield (
                f"A step's drafting takes {graph.label} {tables.ratio(ratio)} times the time of {tree.label}: {level}."
                f"{paper} In units of a step of plain decoding in the same run: "
                f"{ratio.value * plain[0] / plain[1]:.2f}x."
            )
