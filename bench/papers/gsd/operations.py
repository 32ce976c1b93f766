"""GSD, Table 3: the time of a step by operation, and how much of TSD's drafting time GSD takes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from bench import published
from bench.artifacts import definitions, grid, tables
from bench.artifacts.arms import Arm
from bench.artifacts.blocks import Block
from bench.artifacts.grid import Column, Setting
from bench.artifacts.metric import MAL, Metric, measured
from bench.artifacts.outputs import Output
from bench.artifacts.runs import Run, per_row
from bench.artifacts.wording import scale, stand_ins, titled, who
from bench.papers.gsd import methods
from bench.papers.gsd.methods import GREEDY, LARGE, SSD, TARGETS, bound
from bench.results.store import Results
from bench.statistics import graph_metrics, intervals, metrics, samples
from bench.statistics.samples import Sample

TITLE = "GSD Table 3: time of a decoding step by operation"


def _of_k(name: str, k: int) -> Arm:
    return bound(Arm(f"{name} (k={k})", (name.lower(),), name.lower(), {"k": str(k)}, rules=TARGETS), LARGE, k=k)


ARMS = (bound(SSD, LARGE), *(_of_k(name, k) for k in (2, 4) for name in ("TSD", "GSD")))


def _milliseconds(operation: str, paper: str, means: str, digits: int = 1) -> Column:
    def sums(run: Run) -> Sample | None:
        seconds = run.steps[list(graph_metrics.OPERATIONS[operation])].sum(axis=1)
        return per_row(run.steps.assign(ms=seconds * 1000), "ms")

    metric = measured(f"{operation.capitalize()} ms", sums, means, digits)
    return Column(metric, paper=paper, digits=1, ended=operation == "draft", timed=True)


def _a_step(header: str, column: str, means: str) -> Metric:
    return Metric(header, lambda run: run.steps[column].mean() if run.ok else None, means, 1)


def _plain_ms(run: Run) -> float:
    """Milliseconds of a step of plain decoding in its run."""
    return metrics.target_step_s(run.prompts) * 1000


DRAFT = _milliseconds(
    "draft",
    "draft_ms",
    "draft forwards, the work on tree or graph, and its layout for the target; mean over all steps, in brackets the "
    f"95% interval ({intervals.METHOD} over conversations)",
)
PRINTED = (
    DRAFT,
    _milliseconds("verification", "verify_ms", "the target's forward over the tree, and judging"),
    _milliseconds("others", "other_ms", "the rest, mostly keeping the accepted path in the caches of both models", 3),
)
PLAIN = "a step of plain decoding in the same run: where it differs, the machine was another between the runs"
MORE = (
    Metric("plain ms", _plain_ms, PLAIN, 1),
    _a_step("forwards", "draft_forwards", "draft forwards a step"),
    _a_step("draft tokens", "draft_tokens", "tokens fed through the draft a step"),
    _a_step("verified", "num_drafted", "drafted nodes that the target reads a step"),
    MAL,
)


def operations(name: str, results: Results) -> list[Output]:
    """Table 3, twice: as printed, and with intervals, what the time goes to, and verdicts."""
    paper = published.find("gsd", name).assign(target="llama2_70b", draft="llama2_7b")
    found = methods.found_blocks(results, paper, [GREEDY])
    settings = [Setting(who(block), ARMS, paper, [block]) for block in found]
    settings = settings or [Setting(dict.fromkeys(("Target", "Draft", "Dataset"), "unstated"), ARMS, paper)]
    title = titled(TITLE, found)
    notes = (*_notes(found), *(text for one in settings for text in _drafting(one)))
    notes += tuple(methods.not_shown(results, ARMS, settings))
    details = grid.in_detail(name, title, settings, (*PRINTED, *map(Column, MORE)), notes)
    by_order = {f"verdict {DRAFT.header}": f"{definitions.VERDICT}; of times by order alone"}
    return [
        grid.as_printed(name, title, settings, PRINTED, notes),
        replace(details, legend={**details.legend, **by_order}),
    ]


def _notes(found: Sequence[Block]) -> Iterator[str]:
    yield from map(scale, found)
    yield from stand_ins(found)
    yield (
        "The paper states neither models nor prompts nor hardware of this table, whose numbers are taken to be of "
        "Llama-2-70B with Llama-2-7B on GSM8K: times are judged by order alone."
    )
    if any(block.runs["driver_version"].isna().all() for block in found):
        yield "Without a GPU the milliseconds mean nothing beside the paper's: a wide forward is cheap on no CPU."


def _drafting(one: Setting) -> Iterator[str]:
    """What the paper's text claims of this table."""
    for graph, tree in ((one[f"GSD (k={k})"], one[f"TSD (k={k})"]) for k in (2, 4)):
        ratio, mine, other = samples.paired_ratio(DRAFT.sample(graph), DRAFT.sample(tree)), graph.run, tree.run
        if mine is None or other is None or math.isnan(ratio.value):
            continue
        ours, theirs = (cell.published.get("draft_ms", math.nan) for cell in (graph, tree))
        low, high = ratio.ends
        level = "less" if high < 1 else "more" if low > 1 else "neither measurably less nor more"
        yield (
            f"A step's drafting takes {graph.arm.header} {tables.ratio(ratio)} times the time of {tree.arm.header}: "
            f"{level}. The paper: {ours / theirs:.2f}x. In units of a step of plain decoding in the same run: "
            f"{ratio.value * _plain_ms(other) / _plain_ms(mine):.2f}x."
        )
