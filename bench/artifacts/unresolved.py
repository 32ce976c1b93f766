"""What a table's own intervals cannot tell: its best method from its worst, by setting, in a sentence above it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from statistics import NormalDist

from bench.artifacts.blocks import Block, blocks
from bench.artifacts.names import method_label
from bench.artifacts.runs import Run
from bench.artifacts.tables import Table, needed_words
from bench.results.rows import AUTOREGRESSIVE
from bench.results.store import Results
from bench.statistics import samples
from bench.statistics.samples import Comparison

_METRICS = {"MAL": "mal", "speedup": "speedup"}
_ALSO = {"MAL": "tokens/step"}
"""What papers call a metric."""


@dataclass(frozen=True, slots=True)
class _Ends:
    """The best and the worst of `methods` in one setting, and how they compare."""

    block: Block
    best: str
    worst: str
    methods: int
    compared: Comparison

    @property
    def told(self) -> bool:
        """Whether the worst is behind, by an interval wide enough for having been picked among all pairs."""
        difference = self.compared.difference
        return self.compared.ahead == 1 and difference.value > self._reach

    @property
    def needed(self) -> float:
        """Conversations that would tell them apart."""
        difference, again = self.compared.difference, self.compared.needed
        if not difference.value > 0:
            return math.inf
        return max(again if self.compared.ahead == 0 else 0.0, difference.n * (self._reach / difference.value) ** 2)

    @property
    def _reach(self) -> float:
        """How far the interval reaches below its value, at a level for all pairs of methods (Bonferroni)."""
        pairs = self.methods * (self.methods - 1) / 2
        wider = NormalDist().inv_cdf(1 - 0.025 / pairs) / NormalDist().inv_cdf(0.975)
        return (self.compared.difference.value - self.compared.difference.low) * wider

    def __str__(self) -> str:
        n = self.compared.difference.n
        return f"{self.best} from {self.worst} over {n} conversations ({needed_words(n, self.needed)})"


def warn(results: Results, table: Table) -> Table:
    """The table with a sentence per metric whose intervals do not tell its best method from its worst.

    It compares the drafting runs behind the table's rows, in pairs, within each setting; sizes of a method are methods.
    """
    keep = results.runs["run_id"].isin(list(table.run_ids)) & (results.runs["status"] == "ok")
    runs = results.runs[keep & (results.runs["method"] != AUTOREGRESSIVE)]
    shown = " ".join([*map(str, table.frame), *table.headers.values()])
    found = blocks(replace(results, runs=runs)) if len(runs) > 1 else []
    asked = [metric for metric in _METRICS if metric in shown or _ALSO.get(metric, metric) in shown]
    sentences = [text for metric in asked for text in _sentence(metric, found)]
    return replace(table, warning=" ".join(sentences))


def _sentence(metric: str, found: list[Block]) -> Iterator[str]:
    ends = [one for block in found if (one := _ends(metric, block))]
    blurred = [one for one in ends if not one.told]
    if len(ends) == 1 and blurred:
        yield f"{metric} does not tell the best method from the worst here: not {blurred[0]}."
    elif blurred:
        worst = max(blurred, key=lambda one: one.needed)
        yield (
            f"{metric} does not tell the best method from the worst in {len(blurred)} of {len(ends)} settings; "
            f"the least in {worst.block.name}: not {worst}."
        )


def _ends(metric: str, block: Block) -> _Ends | None:
    """None where fewer than two runs have an interval."""
    every = [(run, sample) for run in block.ok if (sample := run.sample(_METRICS[metric])) and len(sample.sums) > 1]
    values = [(samples.interval(sample).value, place) for place, (_, sample) in enumerate(every)]
    if len(values) < 2:
        return None
    (best, first), (worst, other) = (every[end(values)[1]] for end in (max, min))
    compared = samples.compare(first, other)
    return _Ends(block, _name(best, block), _name(worst, block), len(values), compared) if compared.known else None


def _name(run: Run, block: Block) -> str:
    """The method; its config's name, and its rule, where others of the setting are like it."""
    others = [one for one in block.ok if one["run_id"] != run["run_id"] and one["method"] == run.method]
    if not others:
        return method_label(run.method)
    alike = any(one["drafter"] == run["drafter"] for one in others)
    return f"{run.drafter} judged by {run['verifier']}" if alike else run.drafter
