"""SpecHub (Sun et al., arXiv:2411.05289) on binary trees beside recursive rejection, with and without replacement.

Its numbers are those of the logs of its public repository, not of its paper's tables.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd

from specdec_trees import published
from specdec_trees.artifacts import frame, notes
from specdec_trees.artifacts.metrics import MAL, SPEEDUP, Metric
from specdec_trees.artifacts.outputs import Output
from specdec_trees.artifacts.table import table
from specdec_trees.papers.traversal import lines
from specdec_trees.papers.traversal.lines import ARMS, PAPER, RRS, RRSW, SPEC_HUB
from specdec_trees.published import params_of
from specdec_trees.results.store import Results
from specdec_trees.statistics import samples
from specdec_trees.statistics.intervals import Interval

MORE = (
    "MAL of SpecHub - that of {}, on trees of the same shape, paired over conversations; in brackets the 95% interval"
)
OVER = {
    Metric(f"over_{rule.paper}", f"over {rule.words}", MORE.format(rule.words), lambda run: None, 3, signed=True): rule
    for rule in (RRS, RRSW)
}
"""What SpecHub has more a step, with the rule over which it has that."""
NAMES = {MAL.key: "tokens_per_step"}
ROWS = ("target_words", "draft_words", "dataset", "temperature", "tree", "rule")
NOTES = (
    "Published: the logs of SpecHub's public repository (Llama-2-7B-chat, 200 prompts, at most 384 tokens in all), not "
    "its paper's tables: decoding steps of one token / steps of the large model.",
    "RRS draws children independently (SpecInfer's rule), RRSw without replacement (Sequoia's rule), SpecHub takes the "
    "draft's best token and one draw. Trees 2^2 to 2^5 of the logs have one to four levels below the root.",
)


def tokens_per_step(name: str, results: Results) -> list[Output]:
    """A row for each setting, tree and rule, ours beside the logs', and what SpecHub has more."""
    paper = lines.of_paper(name)
    runs = frame.standing_in(frame.load(results), paper)
    long = lines.of_runs(runs, paper, ARMS[name], ("dataset", "temperature"), (MAL, SPEEDUP), NAMES)
    long = frame.judge(frame.rank(long), who="label")
    how = {"of": _more, "printed": lambda one, row: row - one}
    leads = [lines.lead(long, MAL, more, SPEC_HUB, rule, **how) for more, rule in OVER.items()]
    long = pd.concat([long, *leads], ignore_index=True)
    below = [*notes.of_blocks(runs), *notes.not_run(paper, runs), *NOTES, *_said(long)]
    title = notes.titled("SpecHub: tokens a step on binary trees, by rule", runs)
    return [table(name, title, long, ROWS, (MAL, *OVER, SPEEDUP), aside=[SPEEDUP.key], notes=below)]


def _more(one: Any, row: Any) -> Interval | None:
    return samples.compare(row.sample, one.sample).difference if row.sample and one.sample else None


def _said(long: pd.DataFrame) -> Iterator[str]:
    """The range of what SpecHub has more in these rows, in the logs, and by its paper's abstract."""
    abstract = published.find(PAPER, "abstract", metric="tokens_per_step_gain")
    for metric, rule in OVER.items():
        facts = [params_of(text)["baseline"] == rule.paper for text in abstract["params"]]
        rows = long[long["metric"].isin([metric])]
        known = {"its abstract": abstract.loc[facts, "value"], "the logs": rows["published"].dropna()}
        known |= {"here": rows["value"].dropna()}
        words = [f"{who} {min(own):.2f} to {max(own):.2f}" for who, own in known.items() if len(own)]
        yield f"Tokens a step that SpecHub has more than {rule.words}: {'; '.join(words)}."
