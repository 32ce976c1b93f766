"""GSD, Table 1: acceptance, drafted tokens, graph success and speedup by method, as printed and with all counts."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import pandas as pd

from bench import published
from bench.artifacts import control, definitions, tables, ties, verdict
from bench.artifacts.blocks import NO_DRAFT, Block
from bench.artifacts.outputs import Output
from bench.artifacts.speedups.arms import Arm
from bench.artifacts.speedups.settings import ITSELF, drafted, who
from bench.artifacts.tables import Table
from bench.artifacts.wording import setting
from bench.papers.gsd import fewer_nodes, remarks, settings
from bench.papers.gsd.classes import LARGE, bound
from bench.papers.gsd.decodings import Method, method
from bench.papers.gsd.methods import GSD, SSD, SSD_NO_EXIT, TSD, TSD_SIB, self_drafting
from bench.papers.gsd.outcomes import COUNTS
from bench.papers.gsd.words import percents, printed, with_failure
from bench.results.store import Results

TITLE = "GSD Table 1: acceptance rate, drafted tokens, graph success and speedup"
ARMS = (SSD, SSD_NO_EXIT, TSD, TSD_SIB, GSD)
METRICS = {
    "acceptance_rate": "Acceptance Rate",
    "drafted_tokens": "Drafted Token Num",
    "graph_success": "Graph Success",
    "speedup": "Speedup",
}
"""Headers of what the paper prints."""
LEGEND = {
    "Acceptance Rate": definitions.ACCEPTANCE_RATE,
    "Drafted Token Num": definitions.DRAFTED_TOKENS,
    "created nodes": definitions.CREATED,
    "merge edges": definitions.ALIASES,
    "sibling leaves": definitions.SIB_LEAVES,
    "verified nodes": definitions.VERIFIED,
    "capped": definitions.CAPPED,
    "Graph Success": definitions.GRAPH_SUCCESS,
    "shared subtrees": definitions.SHARED_SUCCESS,
    "Speedup": f"{definitions.MEAN_SPEEDUP}; each is {definitions.SPEEDUP}",
    "greedy": "speedup of greedy decoding, with its 95% interval",
    "top-p": "speedup of sampling at temperature 0.7 from the top 0.7, with its 95% interval",
    "MAL": definitions.MAL,
    "lossless": f"{definitions.LOSSLESS}; of greedy decoding also the share of outputs identical to the target's own",
    "verdict Acceptance Rate": definitions.VERDICT,
}
_DETAILS = (
    *("Target", "Draft", "Dataset", "Method", "Acceptance Rate", *COUNTS.values(), "capped", "Graph Success"),
    *("shared subtrees", "greedy", "top-p", "Speedup", "MAL", "lossless"),
    *(f"verdict {header}" for header in METRICS.values()),
)
_RANKED = {
    "Acceptance Rate": ("acceptance_rate", "counts"),
    "greedy": ("speedup", "greedy"),
    "top-p": ("speedup", "sampled"),
    "MAL": ("mal", "counts"),
}
"""Columns in which the best are marked, beside the mean speedup: the metric, and of which decoding."""


@dataclass(frozen=True)
class Rows:
    """A block, or a setting of the paper that was not run (`block` is None), and the paper's rows for it."""

    who: dict[str, str]
    paper: pd.DataFrame
    block: Block | None = None

    @property
    def own(self) -> bool:
        """Whether the target drafts for itself."""
        return self.who["Draft"] == ITSELF

    @cached_property
    def methods(self) -> list[Method]:
        """The paper's methods, and those of ours that were run."""
        found = [method(bound(arm, LARGE), self.block, self.paper) for arm in self._arms]
        return [one for one in found if one.arm.paper or one.runs]

    @property
    def _arms(self) -> Sequence[Arm]:
        return [self_drafting(arm) for arm in ARMS] if self.own else ARMS

    def wide(self) -> Iterator[dict[str, str]]:
        """A row per method as the paper prints it, its number beside ours."""
        for one in self.methods:
            row = self.who | {"Method": one.arm.header}
            for metric, header in METRICS.items():
                pairing = one.pairing(metric, mean=True)
                row[header] = printed(metric, pairing.ours.value if pairing.ours else None)
                row[_beside(header)] = printed(metric, pairing.published)
            yield with_failure(row, one.counts, "Acceptance Rate")

    def details(self) -> list[dict[str, str]]:
        """A row per method with all counts, their intervals, and verdicts."""
        rows = list(self._details())
        ranked = {header: [one.entry(*of) for one in self.methods] for header, of in _RANKED.items()}
        ties.mark(rows, ranked | {"Speedup": [one.mean_entry for one in self.methods]})
        return rows

    def _details(self) -> Iterator[dict[str, str]]:
        for one in self.methods:
            counts = one.counts
            row = self.who | {"Method": one.arm.header, "lossless": counts.lossless}
            row |= {"Acceptance Rate": tables.interval(counts.acceptance_rate, 3), "MAL": tables.interval(counts.mal)}
            row |= {header: tables.interval(counts.mean(column), 1) for column, header in COUNTS.items()}
            row |= {"capped": tables.percent(counts.capped), "Graph Success": percents(counts.graph_success)}
            row |= {"shared subtrees": percents(counts.shared_success), "greedy": tables.interval(one.greedy.speedup)}
            row |= {"top-p": tables.interval(one.sampled.speedup), "Speedup": tables.interval(one.mean_speedup)}
            row |= {f"verdict {header}": self._verdict(one, metric) for metric, header in METRICS.items()}
            row = with_failure(row, one.sampled, "top-p")
            yield with_failure(with_failure(row, one.greedy, "greedy"), counts, "Acceptance Rate")

    def _verdict(self, one: Method, metric: str) -> str:
        if self.block is None:
            return verdict.NOT_RUN
        pairings = {other.arm.header: other.pairing(metric, mean=True) for other in self.methods}
        if metric == "graph_success" and one.arm.header != GSD.header and pairings[one.arm.header].ours:
            return verdict.not_comparable("0 without merging")
        time = metric == "speedup"
        return verdict.judge(one.arm.header, pairings, stand_in=self.block.stand_in, same_device=not time, speedup=time)


def main_table(name: str, results: Results) -> list[Output]:
    """Table 1, twice: as printed, and with all counts, intervals and verdicts."""
    paper = published.find(settings.PAPER, name)
    found = settings.found_blocks(results, paper)
    rows = [Rows(who(block), settings.of_setting(paper, block), block) for block in found] or list(_unrun(paper))
    rows.sort(key=lambda one: _place(paper, one))
    title = f"{TITLE} ({setting(found, but=('temperature',)) if found else 'not run'})"
    runs = tuple(one.runs for row in rows for one in row.methods)
    arms = [bound(arm, LARGE) for arm in ARMS]
    notes = (*_notes(paper, found, rows), *remarks.of_runs(results, arms, runs))
    wide = tables.frame([line for row in rows for line in row.wide()], _wide_columns())
    details = tables.frame([line for row in rows for line in row.details()], _DETAILS)
    return [
        Table(name, title, wide, notes, LEGEND, runs),
        Table(
            f"{name}_details",
            f"{title}, details",
            details,
            (*notes, *ties.note(details), settings.MEANS_TIED),
            LEGEND,
            runs,
        ),
    ]


def _notes(paper: pd.DataFrame, found: list[Block], rows: Sequence[Rows]) -> Iterator[str]:
    yield from settings.said(drafted(paper), found)
    yield settings.NO_HARDWARE
    yield "Acceptance rates, counts, Graph Success and MAL are of greedy decoding; the paper does not say of which."
    yield "The paper does not say whether its TSD prunes siblings: TSD does not here; with sibling pruning it is a row."
    ran = [row for row in rows if row.block is not None]
    for row in ran:
        yield from fewer_nodes.sentences(row.who, row.methods)
    yield from control.notes(found)
    yield from dict.fromkeys(text for row in ran if row.block and row.own for text in _skipped(row.block))


def _skipped(block: Block) -> Iterator[str]:
    draft = json.loads(block.first["config"])["pair"].get("draft", {})
    if layers := draft.get("skipped_layers"):
        words = ", ".join(map(str, layers))
        yield f"{block.pair}: the target drafts for itself without {len(layers)} of its layers ({words})."
    yield "The paper does not say which layers its Self SSD leaves out."


def _unrun(paper: pd.DataFrame) -> Iterator[Rows]:
    for names, rows in paper.groupby(["target", "draft", "dataset"], sort=False):
        target, draft, dataset = map(str, names)
        draft = ITSELF if draft == NO_DRAFT else draft
        yield Rows({"Target": target, "Draft": draft, "Dataset": dataset}, rows)


def _place(paper: pd.DataFrame, rows: Rows) -> tuple[int, int, bool]:
    """The paper's order: target, dataset, self-drafting first; what it does not have comes last."""
    first = rows.paper.iloc[0] if len(rows.paper) else {"target": "", "dataset": ""}
    targets, datasets = (list(dict.fromkeys(paper[column])) for column in ("target", "dataset"))
    places = [
        known.index(value) if value in known else len(known)
        for known, value in ((targets, first["target"]), (datasets, first["dataset"]))
    ]
    return places[0], places[1], not rows.own


def _wide_columns() -> list[str]:
    beside = [name for header in METRICS.values() for name in (header, _beside(header))]
    return ["Target", "Draft", "Dataset", "Method", *beside]


def _beside(header: str) -> str:
    return f"{header.split()[0]} published"
