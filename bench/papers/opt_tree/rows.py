"""The rows of one block beside the paper's numbers for the same models."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import pandas as pd

from bench.artifacts import devices, tables, ties, verdict
from bench.artifacts.metric import SPEEDS, cells, headers, lossless_words
from bench.artifacts.names import method_label
from bench.artifacts.runs import Run, pairing
from bench.artifacts.speedups.arms import params_of
from bench.artifacts.verdict import Pairing
from bench.results.rows import AUTOREGRESSIVE

METRICS = {"mal": "MAL", "tokens_per_s": "tokens/s", "speedup": "speedup"}
"""The paper's metrics as the report counts them."""
AS_PUBLISHED = {
    "mal": "mal_as_published",
    "tokens_per_s": "tokens_per_s_with_prefill",
    "speedup": "speedup_with_prefill",
}
"""The same as the paper's script counts them: they are judged."""
HEADERS = {"mal": "MAL as published", "tokens_per_s": "tokens/s with prefill", "speedup": "speedup with prefill"}
_ONE = ("mal", "speedup")
"""What of autoregressive decoding is 1 by definition."""
COLUMNS = (
    *("Target", "Draft", "Method", "Tree size n"),
    *("MAL", HEADERS["mal"], "MAL published"),
    *(*headers(SPEEDS), HEADERS["tokens_per_s"], "tokens/s published"),
    *("speedup", HEADERS["speedup"], "speedup published"),
    *("lossless", *(f"verdict {header}" for header in METRICS.values())),
)


@dataclass(frozen=True)
class BlockRows:
    """Runs of one pair and setting against `paper`, the published rows of these models; both may be empty."""

    names: tuple[str, str]  # what stands under Target and Draft
    paper: pd.DataFrame
    runs: Sequence[Run] = ()
    stand_in: bool = False
    device: str = ""

    def __iter__(self) -> Iterator[tuple[dict[str, str], str]]:
        """Each row with its run id ("" if not run): the paper's methods in its order, then our others, by size."""
        pairs = list(self._rows())
        chosen = [run if run is not None and run is self.best[run.method] else None for _, run in pairs]
        headers = METRICS | {AS_PUBLISHED[metric]: header for metric, header in HEADERS.items()}
        columns = {header: [ties.of(run, metric) for run in chosen] for metric, header in headers.items()}
        ties.mark([row for row, _ in pairs], columns)
        for row, run in pairs:
            yield row, run.run_id if run else ""

    def _rows(self) -> Iterator[tuple[dict[str, str], Run | None]]:
        for method, best in self.best.items():
            sizes = sorted((run for run in self.runs if run.method == method), key=lambda run: run.size or 0)
            for run in sizes:
                yield self._measured(run, chosen=run is best, alone=len(sizes) == 1), run
            if not sizes:
                yield self._row(method, None, chosen=True), None

    @cached_property
    def best(self) -> dict[str, Run | None]:
        """Of each method the run with the largest speedup with prefill; None if it was not run."""
        methods = dict.fromkeys([*self.paper["method"], *(run.method for run in self.runs)])
        return {name: self._best(name) for name in methods}

    @cached_property
    def pairings(self) -> Mapping[str, Mapping[str, Pairing]]:
        """Ours, counted as published, and the paper's, by metric and method."""
        values = self.paper.set_index(["metric", "method"])["value"].to_dict()
        return {
            metric: {name: _pairing(own, run, values.get((metric, name))) for name, run in self.best.items()}
            for metric, own in AS_PUBLISHED.items()
        }

    def papers_trees(self, method: str) -> Sequence[Run | None]:
        """The runs that may have the paper's tree: it chose one of several sizes, and does not print which.

        Those of all these sizes; none where one of them was not run. The best where the paper tells of no size.
        """
        ran = sorted((run for run in self.runs if run.method == method and run.mal), key=_rank)
        by_size = {run.size: run for run in ran}
        printed = self.paper.loc[self.paper["method"] == method, "params"].unique()
        sizes = {int(size) for text in printed for size in params_of(text).get("nodes", "").split("|") if size}
        if not sizes:
            return [self.best[method]]
        return [by_size[size] for size in sorted(sizes)] if sizes <= by_size.keys() else []

    def _best(self, method: str) -> Run | None:
        runs = [run for run in self.runs if run.method == method]
        return max(runs, key=_rank, default=None)

    def _measured(self, run: Run, *, chosen: bool, alone: bool) -> dict[str, str]:
        row = self._row(run.method, run, chosen=chosen)
        row["Tree size n"] = f"{run.size or 0}" + (" (best)" if chosen and run.speedup and not alone else "")
        row["lossless"] = lossless_words(run)
        if run.status != "ok":
            row["MAL"] = run.status
        return row

    def _row(self, method: str, run: Run | None, *, chosen: bool) -> dict[str, str]:
        row = dict.fromkeys(COLUMNS, tables.ABSENT)
        row |= {"Target": self.names[0], "Draft": self.names[1], "Method": method_label(method)}
        for metric, header in METRICS.items():
            digits = 1 if metric == "tokens_per_s" else 2
            row[header] = tables.interval(run.interval(metric) if run else None, digits)
            counted = (
                None
                if run is None or (method == AUTOREGRESSIVE and metric == "mal")
                else run.interval(AS_PUBLISHED[metric])
            )
            row[HEADERS[metric]] = tables.interval(counted, digits)
            row[f"{header} published"] = tables.number(self.pairings[metric][method].published if chosen else None)
            row[f"verdict {header}"] = self._verdict(metric, method, run, chosen=chosen)
        return row | cells(SPEEDS, run)

    def _verdict(self, metric: str, method: str, run: Run | None, *, chosen: bool) -> str:
        if getattr(run, metric, None) is None:
            return verdict.NOT_RUN
        if not chosen:
            return verdict.not_comparable("not the best n")
        if method == AUTOREGRESSIVE and metric in _ONE:
            return verdict.not_comparable("1 by definition")
        hardware = "".join(self.paper["hardware"].unique()[:1])
        same = metric == "mal" or devices.same_device(self.device, hardware)
        judged = self._of_trees(method) if metric == "mal" else [self.pairings[metric]]
        facts = {"stand_in": self.stand_in, "same_device": same, "speedup": metric == "speedup"}
        found = [verdict.judge(method, block, **facts) for block in judged]
        return found[0] if len(set(map(verdict.word, found))) == 1 else verdict.not_comparable("other tree")

    def _of_trees(self, method: str) -> Iterator[Mapping[str, Pairing]]:
        """MAL of a method and of those that it is set against, once for each of the trees that may be the paper's.

        A MAL of 1 is no other, since whatever is accepted is above it.
        """
        if self.best[method] not in self.papers_trees(method):
            return
        judged = [name for name in self.best if name == method or name != AUTOREGRESSIVE]
        known = {name: runs for name in judged if (runs := self.papers_trees(name))}
        for runs in itertools.product(*known.values()):
            pairs = zip(known, runs, strict=True)
            yield {
                name: _pairing(AS_PUBLISHED["mal"], run, self.pairings["mal"][name].published) for name, run in pairs
            }


def _rank(run: Run) -> float:
    """The speedup with prefill, by which the paper chooses among sizes; none comes last."""
    found = run.interval("speedup_with_prefill") or run.speedup
    return found.value if found else -math.inf


def _pairing(metric: str, run: Run | None, published: float | None) -> Pairing:
    return pairing(run, metric, {metric: published} if published is not None else {})
