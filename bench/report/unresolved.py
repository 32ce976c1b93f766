"""What a table's own intervals cannot tell: its best method from its worst, by setting, in a sentence above it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

import pandas as pd

from bench import samples
from bench.records import AUTOREGRESSIVE
from bench.report.blocks import Block, blocks
from bench.report.measured import method_label
from bench.report.tables import Table, needed_words
from bench.samples import Comparison, Sample
from bench.store import Results

_METRICS: Mapping[str, Callable[[Block, str], Sample]] = {
    "MAL": lambda block, run_id: samples.mal(block.steps(run_id)),
    "speedup": lambda block, run_id: samples.speedup(block.prompts(run_id)),
}


@dataclass(frozen=True, slots=True)
class _Ends:
    """The best and the worst method of one setting, and how they compare."""

    block: Block
    best: str
    worst: str
    compared: Comparison

    def __str__(self) -> str:
        n, needed = self.compared.difference.n, self.compared.needed
        return f"{self.best} from {self.worst} over {n} conversations ({needed_words(n, needed)})"


def warn(results: Results, table: Table) -> Table:
    """The table with a sentence per metric whose intervals do not tell its best method from its worst.

    It compares the drafting runs behind the table's rows, in pairs, within each setting.
    """
    keep = results.runs["run_id"].isin(list(table.run_ids)) & (results.runs["status"] == "ok")
    runs = results.runs[keep & (results.runs["method"] != AUTOREGRESSIVE)]
    shown = " ".join([*map(str, table.frame), *table.headers.values()])
    found = blocks(replace(results, runs=runs)) if len(runs) > 1 else []
    sentences = [text for metric in _METRICS if metric in shown for text in _sentence(metric, found)]
    return replace(table, warning=" ".join(sentences))


def _sentence(metric: str, found: list[Block]) -> Iterator[str]:
    ends = [one for block in found if (one := _ends(metric, block))]
    blurred = [one for one in ends if one.compared.ahead == 0]
    if len(ends) == 1 and blurred:
        yield f"{metric} does not tell the best method from the worst here: not {blurred[0]}."
    elif blurred:
        worst = max(blurred, key=lambda one: one.compared.needed)
        yield (
            f"{metric} does not tell the best method from the worst in {len(blurred)} of {len(ends)} settings; "
            f"the least in {worst.block.name}: not {worst}."
        )


def _ends(metric: str, block: Block) -> _Ends | None:
    """None where fewer than two runs have an interval."""
    every = [(run, _METRICS[metric](block, str(run["run_id"]))) for run in block.ok]
    values = [
        (samples.interval(sample).value, place) for place, (_, sample) in enumerate(every) if len(sample.sums) > 1
    ]
    if len(values) < 2:
        return None
    (best, first), (worst, other) = (every[end(values)[1]] for end in (max, min))
    compared = samples.compare(first, other)
    return _Ends(block, _name(best, block), _name(worst, block), compared) if compared.known else None


def _name(run: pd.Series, block: Block) -> str:
    """The method; its config's name, and its rule, where others of the setting are like it."""
    others = [one for one in block.ok if one["run_id"] != run["run_id"] and one["method"] == run["method"]]
    if not others:
        return method_label(str(run["method"]))
    alike = any(one["drafter"] == run["drafter"] for one in others)
    return f"{run['drafter']} judged by {run['verifier']}" if alike else str(run["drafter"])
