"""GSD, Table 3: the time of a step by operation, and how much of TSD's drafting time GSD takes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import pandas as pd

from bench import published
from bench.artifacts import definitions, tables, verdict
from bench.artifacts.blocks import Block
from bench.artifacts.outputs import Output
from bench.artifacts.runs import per_row
from bench.artifacts.speedups.arms import Arm
from bench.artifacts.speedups.settings import stand_ins, who
from bench.artifacts.tables import Table
from bench.artifacts.verdict import Pairing
from bench.artifacts.wording import scale, setting
from bench.papers.gsd import remarks, settings
from bench.papers.gsd.classes import LARGE, bound
from bench.papers.gsd.methods import SSD, TARGETS
from bench.papers.gsd.outcomes import Outcome, mean_of
from bench.results.store import Results
from bench.statistics import graph_metrics, metrics, samples
from bench.statistics.intervals import Interval

TITLE = "GSD Table 3: time of a decoding step by operation"
PRINTED = {"draft": "draft_ms", "verification": "verify_ms", "others": "other_ms"}
"""The paper's name of an operation."""
HEADERS = {name: f"{name.capitalize()} ms" for name in graph_metrics.OPERATIONS}
LEGEND = {
    "Draft ms": "draft forwards, the work on tree or graph, and its layout for the target; mean over all steps, in "
    "brackets the 95% interval (bootstrap over conversations)",
    "Verification ms": "the target's forward over the tree, and judging",
    "Others ms": "the rest, mostly keeping the accepted path in the caches of both models",
    "plain ms": "a step of plain decoding in the same run: where it differs, the machine was another between the runs",
    "forwards": "draft forwards a step",
    "draft tokens": "tokens fed through the draft a step",
    "verified": "drafted nodes that the target reads a step",
    "MAL": definitions.MAL,
    "verdict Draft ms": f"{definitions.VERDICT}; of times by order alone",
}


def _of_k(name: str, k: int) -> Arm:
    return bound(Arm(f"{name} (k={k})", (name.lower(),), name.lower(), {"k": str(k)}, rules=TARGETS), LARGE, k=k)


ARMS = (bound(SSD, LARGE), *(_of_k(name, k) for k in (2, 4) for name in ("TSD", "GSD")))


def operations(name: str, results: Results) -> list[Output]:
    """Table 3, twice: as printed, and with intervals, what the time goes to, and verdicts."""
    paper = published.find(settings.PAPER, name).assign(target="llama2_70b", draft="llama2_7b")
    found = settings.found_blocks(results, paper, sampled=False)
    groups: list[tuple[dict[str, str], Block | None]] = [(who(block), block) for block in found]
    groups = groups or [({"Target": "unstated", "Draft": "unstated", "Dataset": "unstated"}, None)]
    outcomes = [{arm.header: Outcome(arm, block) for arm in ARMS} for _, block in groups]
    title = f"{TITLE} ({setting(found) if found else 'not run'})"
    runs = tuple(one.run_id for of in outcomes for one in of.values())
    notes = (*_notes(paper, found, outcomes), *remarks.of_runs(results, ARMS, runs))
    details = [line for (names, _), of in zip(groups, outcomes, strict=True) for line in _rows(names, of, paper)]
    beside = [column for header in HEADERS.values() for column in (header, f"{header} published")]
    first = ["Target", "Draft", "Dataset", "Method"]
    rest = [f"verdict {header}" for header in HEADERS.values()]
    wide = tables.frame([_plain(row) for row in details], [*first, *beside])
    full = tables.frame(details, [*first, *beside, "plain ms", "forwards", "draft tokens", "verified", "MAL", *rest])
    return [
        Table(name, title, wide, notes, LEGEND, runs),
        Table(f"{name}_details", f"{title}, details", full, notes, LEGEND, runs),
    ]


def _rows(names: Mapping[str, str], of: Mapping[str, Outcome], paper: pd.DataFrame) -> Iterator[dict[str, str]]:
    """A row per method."""
    pairings = {
        operation: {
            header: Pairing(
                _ms(one, operation),
                one.arm.published(paper).get(PRINTED[operation]),
                per_row(_timed(one, operation), "ms") if len(one.steps) else None,
            )
            for header, one in of.items()
        }
        for operation in HEADERS
    }
    for method, one in of.items():
        row = {**names, "Method": method, "MAL": tables.interval(one.mal)}
        for operation, header in HEADERS.items():
            pairing = pairings[operation][method]
            row[header] = tables.interval(pairing.ours, 1)
            row[f"{header} published"] = tables.number(pairing.published, 1)
            row[f"verdict {header}"] = verdict.judge(
                method, pairings[operation], stand_in=bool(one.block and one.block.stand_in), same_device=False
            )
        for header, column in (
            ("forwards", "draft_forwards"),
            ("draft tokens", "draft_tokens"),
            ("verified", "num_drafted"),
        ):
            row[header] = tables.number(one.steps[column].mean() if len(one.steps) else None, 1)
        row["plain ms"] = tables.number(_plain_ms(one), 1)
        status = one.status
        yield row if status in (None, "ok") else row | {"Draft ms": str(status)}


def _plain(row: Mapping[str, str]) -> dict[str, str]:
    """The row without intervals."""
    return {column: text.partition(" [")[0] if column in HEADERS.values() else text for column, text in row.items()}


def _ms(one: Outcome, operation: str) -> Interval | None:
    """Mean milliseconds a step."""
    return mean_of(_timed(one, operation), "ms") if len(one.steps) else None


def _plain_ms(one: Outcome) -> float:
    """Milliseconds of a step of plain decoding in its run."""
    return metrics.target_step_s(one.block.prompts(one.run_id)) * 1000 if one.block else math.nan


def _timed(one: Outcome, operation: str) -> pd.DataFrame:
    columns = list(graph_metrics.OPERATIONS[operation])
    return one.steps.assign(ms=one.steps[columns].sum(axis=1) * 1000)


def _notes(paper: pd.DataFrame, found: Sequence[Block], outcomes: Sequence[Mapping[str, Outcome]]) -> Iterator[str]:
    yield from (scale(block) for block in found)
    yield from stand_ins(found)
    yield (
        "The paper states neither models nor prompts nor hardware of this table, whose numbers are taken to be of "
        "Llama-2-70B with Llama-2-7B on GSM8K: times are judged by order alone."
    )
    if any(block.runs["driver_version"].isna().all() for block in found):
        yield "Without a GPU the milliseconds mean nothing beside the paper's: a wide forward is cheap on no CPU."
    for of in outcomes:
        for k in (2, 4):
            yield from _drafting(of[f"GSD (k={k})"], of[f"TSD (k={k})"], paper)


def _drafting(graph: Outcome, tree: Outcome, paper: pd.DataFrame) -> Iterator[str]:
    """What the paper's text claims of this table."""
    if graph.steps.empty or tree.steps.empty:
        return
    found = samples.paired_ratio(*(per_row(_timed(one, "draft"), "ms") for one in (graph, tree)))
    if math.isnan(found.value):
        return
    ours, theirs = (one.arm.published(paper).get("draft_ms", math.nan) for one in (graph, tree))
    level = "less" if found.high < 1 else "more" if found.low > 1 else "neither measurably less nor more"
    plain = _plain_ms(tree) / _plain_ms(graph)
    yield (
        f"A step's drafting takes {graph.arm.header} {tables.ratio(found)} times the time of {tree.arm.header}: "
        f"{level}. The paper: {ours / theirs:.2f}x. In units of a step of plain decoding in the same run: "
        f"{found.value * plain:.2f}x."
    )
