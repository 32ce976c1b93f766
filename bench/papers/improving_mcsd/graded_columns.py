"""The columns of improved MCSD's Table 1: the drafts, each with its target."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pandas as pd

from bench.artifacts.blocks import Block
from bench.artifacts.speedups.arms import params_of
from bench.artifacts.speedups.settings import drafted, who
from bench.artifacts.wording import models
from bench.papers.improving_mcsd.methods import Method
from bench.papers.improving_mcsd.settings import LOSSY_RULE
from bench.results.rows import AUTOREGRESSIVE


@dataclass(frozen=True)
class Column:
    """A draft: its block and the paper's rows, one of which may be missing."""

    target: str
    draft: str
    block: Block | None
    paper: pd.DataFrame
    alone: float | None  # the paper's score of the target
    words: str = ""  # the draft, and what tells it from other columns

    def published(self, method: Method | None, metric: str) -> float | None:
        """The paper's number; none of rules that it does not have."""
        if method is None:
            return self.alone if metric == "mt_bench_score" else None
        if method.rule != LOSSY_RULE:
            return None
        rows = self.paper[self.paper["metric"] == metric]
        wanted = str(method.given["widths"][0])
        found = [params_of(text).get("target_init_width") == wanted for text in rows["params"]]
        values = rows["value"][found]
        return float(values.iloc[0]) if len(values) else None


def columns_of(paper: pd.DataFrame, found: Sequence[Block]) -> list[Column]:
    """The drafts that were run, then those of the paper that were not."""
    printed = drafted(paper)
    own = paper[paper["method"] == AUTOREGRESSIVE]
    scores = {str(target): float(value) for target, value in zip(own["target"], own["value"], strict=True)}
    columns = []
    for block in found:
        target, draft = block.published_as or ("", "")
        same = bool(block.first["dataset"] == "mt_bench")
        rows = printed[(printed["target"] == target) & (printed["draft"] == draft) & same]
        ours = who(block)
        columns.append(Column(ours["Target"], ours["Draft"], block, rows, scores.get(target) if same else None))
    taken = {block.published_as for block in found}
    for names, rows in printed.groupby(["target", "draft"], sort=False):
        target, draft = map(str, names)
        if (target, draft) not in taken:
            columns.append(Column(target, draft, None, rows, scores.get(target)))
    return _named(columns)


def _named(columns: Sequence[Column]) -> list[Column]:
    """Each by its draft, with the target where another has that draft too, and then by what else differs."""
    pairs = [(column.target, column.draft) for column in columns]
    drafts, runs = Counter(draft for _, draft in set(pairs)), Counter(pairs)
    named = []
    for place, (column, pair) in enumerate(zip(columns, pairs, strict=True)):
        words = models(*pair) if drafts[column.draft] > 1 else column.draft
        mark = (column.block.mark if column.block else "") or str(place + 1)
        named.append(replace(column, words=f"{words}, {mark}" if runs[pair] > 1 else words))
    return named
