"""One row of a table: the arms of one block beside the paper's numbers for the same setting."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pandas as pd

from bench.artifacts import devices, tables, ties, verdict
from bench.artifacts.blocks import Block
from bench.artifacts.runs import Run, pairing, seconds_per_token
from bench.artifacts.speedups import against
from bench.artifacts.speedups.against import Lead
from bench.artifacts.speedups.arms import METRICS, Arm, has_tree
from bench.artifacts.speedups.layout import Layout
from bench.results.rows import AUTOREGRESSIVE
from bench.statistics import metrics
from bench.statistics.intervals import Interval

DETAILS = (
    *("Method", "budget", "N", "levels", "n mean"),
    *("speedup", "speedup published", "speedup predicted"),
    *("MAL", "MAL published", "MAL predicted", "MAL - 1"),
    *("s/token", "s/token published"),
    *("MAL ratio", "MAL ratio published", "speedup ratio", "speedup ratio published"),
    *("lossless", "verdict speedup", "verdict MAL"),
)
PLAIN = "plain"
_SECONDS = "latency_s_per_token"


@dataclass(frozen=True)
class Row:
    """A block, or a setting of the paper that was not run (`block` is None), and the paper's rows for it."""

    layout: Layout
    who: dict[str, str]  # pair, dataset, temperature
    paper: pd.DataFrame
    block: Block | None = None

    @cached_property
    def cells(self) -> dict[str, Run | None]:
        """Ours by arm. Where the machine chose the printed tree, that run is the one of the printed tree too."""
        found = {arm.header: arm.chosen(self.block) if self.block else None for arm in self.layout.arms}
        first = found[self.layout.arms[0].header]
        for arm in self.layout.arms:
            if arm.printed_tree and has_tree(first, self._printed[arm.header]):
                found[arm.header] = first
        return found

    @cached_property
    def published(self) -> dict[str, dict[str, float]]:
        """The paper's numbers by arm and metric, none of arms that were run with another budget."""
        return {header: {} if header in self.hidden else numbers for header, numbers in self._printed.items()}

    @cached_property
    def hidden(self) -> dict[str, int]:
        """The arms for which the paper has numbers of another budget than ours, and ours."""
        arms = [arm for arm in self.layout.arms if arm.budget and self._printed[arm.header]]
        ours = [(arm, self._of(arm.header, "budget")) for arm in arms]
        return {arm.header: budget for arm, budget in ours if budget not in (None, arm.budget)}

    @cached_property
    def other_trees(self) -> set[str]:
        """The arms whose tree was chosen and is not, as far as the paper prints it, the paper's."""
        chosen = [arm.header for arm in self.layout.arms if arm.chosen_tree or arm.printed_tree]
        return {header for header in chosen if not has_tree(self.cells[header], self._printed[header])}

    def even(self, other: str) -> bool:
        """Whether no budgets are known in which the first arm and another differ."""
        budgets = {self._of(header, "budget") for header in (self.layout.arms[0].header, other)}
        return len(budgets - {None}) < 2

    @cached_property
    def _printed(self) -> dict[str, dict[str, float]]:
        """All of the paper's numbers; a speedup it leaves out is taken from its times on one device."""
        found = {arm.header: arm.published(self.paper) for arm in self.layout.arms}
        plain = self.paper[self.paper["method"] == AUTOREGRESSIVE]
        for arm in self.layout.arms if len(plain) else ():
            own, same = found[arm.header], self.paper["method"] == arm.paper
            if _SECONDS in own and set(self.paper.loc[same, "hardware"]) == set(plain["hardware"]):
                own.setdefault("speedup", float(plain["value"].iloc[0]) / own[_SECONDS])
        return found

    @cached_property
    def plain(self) -> Interval | None:
        """Seconds per token of autoregressive decoding, of the runs of all arms together."""
        if self.block is None:
            return None
        turns = self.block.results.prompts
        found = seconds_per_token(turns[turns["run_id"].isin(self.runs.split())], AUTOREGRESSIVE)
        return found if found.n else None

    @property
    def plain_published(self) -> float | None:
        """What the paper prints for it."""
        values = self.paper.loc[self.paper["method"] == AUTOREGRESSIVE, "value"]
        return float(values.iloc[0]) if len(values) else None

    @property
    def runs(self) -> str:
        """The runs of all arms."""
        return " ".join(dict.fromkeys(run.run_id for run in self.cells.values() if run))

    @cached_property
    def leads(self) -> dict[tuple[str, str], Lead | None]:
        """The first arm's metric over another's, by metric and arm."""
        first, *others = self.layout.arms
        return {
            (metric, other.header): against.lead(metric, self.cells[first.header], self.cells[other.header])
            for metric in against.HEADERS
            for other in others
            if self.block
        }

    def published_ratio(self, metric: str, other: str) -> float | None:
        """The same of the paper's numbers."""
        return against.published_ratio(metric, self.published[self.layout.arms[0].header], self.published[other])

    def details(self) -> Iterator[tuple[dict[str, str], str]]:
        """A row per arm with intervals, predictions and verdicts, and its run; then plain decoding, where it counts."""
        cells = [self.cells[arm.header] for arm in self.layout.arms]
        rows = [self.who | self._detail(arm) for arm in self.layout.arms]
        ties.mark(
            rows,
            {
                header: [self._ranked(metric, arm) for arm in self.layout.arms]
                for metric, header in against.HEADERS.items()
            },
        )
        yield from zip(rows, (run.run_id if run else "" for run in cells), strict=True)
        if self.layout.plain:
            own = {"Method": PLAIN, "s/token": tables.interval(self.plain, self.layout.digits)}
            own["s/token published"] = printed(self.plain_published)
            yield self.who | dict.fromkeys(DETAILS, tables.ABSENT) | own, ""

    def _ranked(self, metric: str, arm: Arm) -> ties.Entry:
        """Tokens per step grow with the tree: only arms with as many nodes as the first one are ranked by them."""
        own, first = self.cells[arm.header], self.cells[self.layout.arms[0].header]
        twice = arm.printed_tree and own is first
        like = metric != "mal" or (own is not None and first is not None and own.nodes == first.nodes)
        return ties.of(own if like and not twice else None, metric)

    def _of(self, header: str, name: str) -> Any:
        """A property of an arm's run; None where it was not run."""
        return getattr(self.cells[header], name, None)

    def _detail(self, arm: Arm) -> dict[str, str]:
        run, paper = self.cells[arm.header], self.published[arm.header]
        row = {"Method": arm.header, "n mean": tables.number(self._of(arm.header, "mean_size"), 1)}
        for header, name in (("N", "nodes"), ("levels", "levels"), ("budget", "budget")):
            row[header] = str(self._of(arm.header, name) or tables.ABSENT)
        for metric, header in against.HEADERS.items():
            row[header] = tables.interval(run.interval(metric) if run else None)
            row[f"{header} published"] = tables.number(paper.get(METRICS[metric]))
            row[f"{header} predicted"] = tables.number(run.predicted(metric) if run else None)
            row[f"verdict {header}"] = self._verdict(arm, metric)
            row |= self._against(arm, metric)
        steps = run.steps if run and run.ok else pd.DataFrame()
        row["MAL - 1"] = tables.number(metrics.accepted_per_step(steps))
        row["s/token"] = tables.interval(run.seconds if run else None, self.layout.digits)
        seconds = paper.get(_SECONDS)
        row["s/token published"] = printed(seconds) if self.layout.in_seconds else tables.number(seconds)
        if run is None or not run.ok:
            return row | {"speedup": run.status if run else tables.ABSENT, "lossless": tables.ABSENT}
        return row | {"lossless": "yes" if run.lossless else "no"}

    def _against(self, arm: Arm, metric: str) -> dict[str, str]:
        header, names = f"{against.HEADERS[metric]} ratio", (self.layout.arms[0].header, arm.header)
        if not self.layout.against or arm is self.layout.arms[0]:
            return dict.fromkeys((header, f"{header} published"), tables.ABSENT)
        ours, paper = self.leads.get((metric, arm.header)), self.published_ratio(metric, arm.header)
        own = against.words(ours, names, even=self.even(arm.header))
        return {header: own, f"{header} published": against.words(paper, names)}

    def _verdict(self, arm: Arm, metric: str) -> str:
        if self.block is None:
            return verdict.NOT_RUN
        if arm.header in self.hidden and self._has(arm, metric):
            return verdict.not_comparable("other budget")
        unlike = self.other_trees if metric == "mal" else set()
        if arm.header in unlike and METRICS[metric] in self.published[arm.header] and self._has(arm, metric):
            return verdict.not_comparable("other tree")
        own = self.cells[arm.header]
        pairings = {
            name: pairing(run, metric, self.published[name])
            for name, run in self.cells.items()
            if name == arm.header or (name not in unlike and run is not own)
        }
        hardware = "".join(self.paper["hardware"].unique()[:1])
        same = metric == "mal" or devices.same_device(str(self.block.first["device_name"]), hardware)
        speedup = metric == "speedup"
        return verdict.judge(arm.header, pairings, stand_in=self.block.stand_in, same_device=same, speedup=speedup)

    def _has(self, arm: Arm, metric: str) -> bool:
        """Whether the arm's run has a value of the metric."""
        return self._of(arm.header, metric) is not None


def printed(value: float | None) -> str:
    """A number with the digits that the paper gives it."""
    return tables.ABSENT if value is None else f"{value:g}"
