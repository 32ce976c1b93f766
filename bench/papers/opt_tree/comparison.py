"""OPT-Tree, Tables 1 to 3: each method of a block beside the paper's number, with a verdict.

Of a method that was run at several tree sizes every size is a row; the one with the largest speedup is marked and set
against the paper, which prints its best n of 25, 50 and 60. Published numbers stand beside ours as the paper's script
counts (steps - 1 a turn, prefill in the time), and are judged against those.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import pandas as pd

from bench import published
from bench.artifacts import control, definitions, devices, tables, ties, verdict
from bench.artifacts.blocks import Block, blocks
from bench.artifacts.definitions import method_label
from bench.artifacts.metric import LOSSLESS, MAL, SPEEDS, SPEEDUP, cells, legend, measured, or_status
from bench.artifacts.outputs import Output
from bench.artifacts.runs import Run
from bench.artifacts.speedups import of_block, settings, where_published
from bench.artifacts.tables import Table
from bench.artifacts.verdict import Pairing
from bench.artifacts.wording import draft_temperatures, left_out, scale, setting, titled, who
from bench.published import params_of
from bench.results.rows import AUTOREGRESSIVE
from bench.results.store import Results

PAPER = "opt_tree"
TABLES = {
    "table1": "OPT-Tree Table 1: MT-Bench, greedy",
    "table2": "OPT-Tree Table 2: GSM8K, greedy",
    "table3": "OPT-Tree Table 3: MT-Bench, temperature 1",
}
SETTING = ("dataset", "temperature")
METRICS = {"mal": (or_status(MAL),), "tokens_per_s": SPEEDS, "speedup": (SPEEDUP,)}
"""By the paper's names what the report counts."""
AS_PUBLISHED = {
    "mal": measured(
        "MAL as published",
        "mal_as_published",
        "new tokens / (steps - 1 of each turn), as the paper's script counts: the same tokens as MAL, the one drawn "
        "from the prefill left out; the published MAL stands beside it and is judged against it. It exceeds MAL the "
        "more, the shorter the answers are (the paper's have up to 1,024 tokens)",
    ),
    "tokens_per_s": measured(
        "tokens/s with prefill",
        "tokens_per_s_with_prefill",
        "decoded tokens / seconds of prefill and decoding: the paper's script times both and leaves the token drawn "
        "from the prefill out; the published tokens/s are judged against it",
        digits=1,
    ),
    "speedup": measured(
        "speedup with prefill",
        "speedup_with_prefill",
        "tokens/s with prefill of method / autoregressive, paired: the paper calculates speedups from its generation "
        "speeds, so that the published ones are judged against it",
    ),
}
"""The same as the paper's script counts it, which is what is judged."""
LEGEND = {
    "Tree size n": f"{definitions.SIZE}; (best) has the largest speedup with prefill, as the paper chooses; "
    "other n have no marks",
    "delta": "what a layer must add to E(A), or OPT-Tree stops to grow; the paper's tables do not state theirs, its "
    "text finds 0.2 best for the 68M draft and 0.8 for EAGLE's heads",
    **legend([*SPEEDS, MAL, *AS_PUBLISHED.values()]),
    "speedup": definitions.CONTROLLED_SPEEDUP,
    "lossless": f"{definitions.LOSSLESS}; at temperature 0 also the share of outputs identical to the target's own",
    "verdict MAL": f"{definitions.VERDICT}; the paper chose n of several by speedup and does not print which: of MAL "
    "there is a verdict where all of these n were run and give the same, else other tree",
}
Line = tuple[dict[str, str], Run | None]
"""A row of the table and its run, None if there is none."""


def paper_table(artifact: str, results: Results) -> list[Output]:
    """One of the paper's tables: the blocks that were run, or all of the paper's rows if none was."""
    paper, found = published.find(PAPER, artifact), blocks(results)
    unrun = [Group((words["Target"], words["Draft"]), rows) for words, rows in settings(paper, ())]
    notes = (*_notes(paper, found), *left_out(paper, found))
    return [_table(artifact, titled(TABLES[artifact], found), _groups(paper, found) or unrun, notes)]


def dataset_table(name: str, results: Results) -> list[Output]:
    """The same table for any dataset: beside it what the paper's tables have for that setting, if anything."""
    paper, found = published.load(PAPER), blocks(results)
    paper = paper[paper["artifact"].isin(list(TABLES))]
    return [_table(name, f"Trees on {setting(found)}", _groups(paper, found), tuple(_notes(paper, found)))]


def _table(name: str, title: str, groups: Sequence[Group], notes: Sequence[str]) -> Table:
    lines = [line for group in groups for line in group.lines()]
    verdict.correct([row for row, _ in lines])
    frame = tables.frame([row for row, _ in lines], lines[0][0] if lines else ())
    ids = tuple(run.run_id if run else "" for _, run in lines)
    return Table(name, title, frame, (*notes, *ties.note(frame)), LEGEND, ids)


def _groups(paper: pd.DataFrame, found: Sequence[Block]) -> list[Group]:
    groups = []
    for block in found:
        names, mark = who(block), f" [{block.mark}]" if block.mark else ""
        groups.append(Group((names["Target"] + mark, names["Draft"]), of_block(paper, SETTING, block), block))
    return groups


def _notes(paper: pd.DataFrame, found: Sequence[Block]) -> Iterator[str]:
    for block in found:
        yield scale(block) + where_published(of_block(paper, SETTING, block))
        if block.stand_in:
            yield (
                f"{block.pair} stands in for the paper's models: absolute values are not comparable: other models; "
                "rows are judged by their order."
            )
    yield from draft_temperatures(run for block in found for run in block.ok)
    yield from control.notes(found)


@dataclass(frozen=True)
class Group:
    """The rows of two models: the runs of a block, if there is one, and what the paper prints, if anything."""

    names: tuple[str, str]  # what stands under Target and Draft
    paper: pd.DataFrame
    block: Block | None = None

    @cached_property
    def runs(self) -> dict[str, list[Run]]:
        """By method: the paper's in its order, then our others."""
        every = self.block.every if self.block else ()
        methods = dict.fromkeys([*self.paper["method"], *(run.method for run in every)])
        return {method: [run for run in every if run.method == method] for method in methods}

    @cached_property
    def best(self) -> dict[str, Run | None]:
        """Of each method the run with the largest speedup with prefill; None if it was not run."""
        return {method: max(runs, key=_rank, default=None) for method, runs in self.runs.items()}

    def lines(self) -> list[Line]:
        """Of every method its runs by size, or one row without a run; the best runs are marked among themselves."""
        lines: list[Line] = []
        for method, runs in self.runs.items():
            by_size: list[Run | None] = [*sorted(runs, key=lambda run: run.size or 0)]
            lines += [(self._row(method, run), run) for run in by_size or [None]]
        best = [run if run is not None and run is self.best[run.method] else None for _, run in lines]
        ranked = [*(ours[0] for ours in METRICS.values()), *AS_PUBLISHED.values()]
        ties.mark([row for row, _ in lines], {one.header: [one.entry(run) for run in best] for one in ranked})
        return lines

    def _row(self, method: str, run: Run | None) -> dict[str, str]:
        chosen = run is self.best[method]
        best = " (best)" if chosen and run and run.speedup and len(self.runs[method]) > 1 else ""
        row = {"Target": self.names[0], "Draft": self.names[1], "Method": method_label(method)}
        row["Tree size n"] = f"{run.size or 0}{best}" if run else tables.ABSENT
        row["delta"] = tables.ABSENT if run is None or "delta" not in run.params else f"{run.params['delta']:g}"
        for name, ours in METRICS.items():
            row |= cells((*ours, AS_PUBLISHED[name]), run)
            printed = self._pairing(name, method, run).published if chosen else None
            row[f"{ours[0].header} published"] = tables.number(printed)
        row["lossless"] = LOSSLESS.cell(run)
        row |= {f"verdict {ours[0].header}": self._verdict(name, method, run) for name, ours in METRICS.items()}
        if method == AUTOREGRESSIVE:
            row["MAL as published"] = tables.ABSENT
        return row

    def _verdict(self, name: str, method: str, run: Run | None) -> str:
        if run is None or run.interval(name) is None:
            return verdict.NOT_RUN
        if run is not self.best[method]:
            return verdict.not_comparable("not the best n")
        if method == AUTOREGRESSIVE and name != "tokens_per_s":
            return verdict.not_comparable("1 by definition")
        hardware = "".join(self.paper["hardware"].unique()[:1])
        facts = {
            "stand_in": run.block.stand_in,
            "same_device": name == "mal" or devices.same_device(str(run.block.first["device_name"]), hardware),
            "speedup": name == "speedup",
            "whole": not run.block.incomplete,
        }
        block = {other: self._pairing(name, other, best) for other, best in self.best.items()}
        judged = self._of_trees(method) if name == "mal" else [block]
        found = [verdict.judge(method, pairings, **facts) for pairings in judged]
        if len(set(map(verdict.word, found))) != 1:
            return verdict.not_comparable("other tree")
        return max(found, key=lambda one: one.p if isinstance(one, verdict.Verdict) else 1.0)  # it is said of all trees

    def _of_trees(self, method: str) -> Iterator[Mapping[str, Pairing]]:
        """MAL of a method and of those that it is set against, once for each of the trees that may be the paper's.

        A MAL of 1 is no other, since whatever is accepted is above it.
        """
        if self.best[method] not in self._papers_trees(method):
            return
        judged = [other for other in self.runs if other == method or other != AUTOREGRESSIVE]
        known = {other: trees for other in judged if (trees := self._papers_trees(other))}
        for chosen in itertools.product(*known.values()):
            yield {other: self._pairing("mal", other, run) for other, run in zip(known, chosen, strict=True)}

    def _papers_trees(self, method: str) -> Sequence[Run | None]:
        """The runs that may have the paper's tree: it chose one of several sizes, and does not print which.

        Those of all these sizes; none where one of them was not run. The best where the paper tells of no size.
        """
        by_size = {run.size: run for run in sorted(self.runs[method], key=_rank) if run.mal}
        printed = self.paper.loc[self.paper["method"] == method, "params"].unique()
        sizes = {int(size) for text in printed for size in params_of(text).get("nodes", "").split("|") if size}
        if not sizes:
            return [self.best[method]]
        return [by_size[size] for size in sorted(sizes)] if sizes <= by_size.keys() else []

    def _pairing(self, name: str, method: str, run: Run | None) -> Pairing:
        entry = AS_PUBLISHED[name].entry(run)
        printed = self.paper.loc[(self.paper["metric"] == name) & (self.paper["method"] == method), "value"]
        return Pairing(entry.value, None if printed.empty else float(printed.iloc[-1]), entry.sample)


def _rank(run: Run) -> float:
    """The speedup with prefill; none comes last."""
    found = run.interval("speedup_with_prefill") or run.speedup
    return found.value if found else -math.inf
