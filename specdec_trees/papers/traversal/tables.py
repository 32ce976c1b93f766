"""Traversal, Tables 2, 3, 4 and 6: acceptance lengths and speeds of two rules on three trees."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from specdec_trees.artifacts import frame, notes
from specdec_trees.artifacts.metrics import MAL, SPEEDUP, TOKENS_PER_S
from specdec_trees.artifacts.outputs import Output
from specdec_trees.artifacts.table import table
from specdec_trees.artifacts.tables import named_rows
from specdec_trees.papers.traversal import lines
from specdec_trees.papers.traversal.lines import ALL, ARMS, BY_ITEM, GAIN, METRICS
from specdec_trees.results.rows import AUTOREGRESSIVE
from specdec_trees.results.store import Results

TITLES: Mapping[str, str] = {
    "table2": "Traversal Table 2: two rules on three trees, temperature 1",
    "table3": "Traversal Table 3: two rules on three trees, weak draft, temperature 1",
    "table4": "Traversal Table 4: two rules on three trees by temperature",
    "table6": "Traversal Table 6: acceptance length by token and by item",
}
BY_TASK = ("table2", "table3")
"""Tables with a row for each task; of the others the paper prints what all of them have together."""
UNRUN = ("natural_questions", "rag")
"""Tasks of the paper's whose prompts are not here."""
ROWS = ("target_words", "draft_words", "dataset", "temperature", "tree", "rule")
TASKS = (
    "All: over the conversations of the tasks named. The paper's are of six: of question answering (Natural Questions) "
    "and retrieval (DPR) there are no prompts here, so that their rows have its numbers alone, and numbers of all six "
    "are judged by their order alone."
)
NOTES = (
    TASKS,
    "Token-level verification is Sequoia's rule without replacement (RRSw); both rules have trees of the same shape, "
    "drawn without replacement at the target's temperature. A gain below 5% is a tie of the paper by the rule of all "
    "tables, which a lead of ours keeps.",
)
DEPTH = (
    "Of the binary tree the paper's Figure 3 has 4.63 and 4.73 at depth 4, where Tables 2 and 4, which say depth 5, "
    "print these; at depth 5 it has 5.12 and 5.27. Ours is of depth 5: 62 drafted nodes."
)


def paper_table(name: str, results: Results) -> list[Output]:
    """A row for each task, tree and rule, or for each tree and rule over all tasks, ours beside the paper's."""
    paper = lines.of_paper(name)
    runs = frame.standing_in(frame.load(results), paper)
    both = lines.of_runs(runs, paper[paper["dataset"] == ALL], ARMS[name], ("temperature",), METRICS)
    parts = [lines.pooled(both)]
    if name in BY_TASK:
        tasks = with_unrun(runs)
        parts.insert(0, lines.of_runs(tasks, paper, ARMS[name], ("dataset", "temperature"), METRICS))
        parts[1] = frame.put(parts[1], block=parts[1]["block"] + parts[0]["block"].max() + 1)
    long = pd.concat(parts, ignore_index=True).sort_values("temperature", kind="stable", ignore_index=True)
    long = lines.gains(frame.judge(frame.rank(long), who="label"))
    below = [
        *notes.of_blocks(runs),
        *notes.not_run(paper, runs),
        *NOTES,
        *plain(paper),
        *[DEPTH] * (name in ("table2", "table4")),
    ]
    below += lines.trend(long, "tree", "temperature") if name == "table4" else []
    title = notes.titled(TITLES[name], runs, but=["dataset", "temperature"])
    shown = (BY_ITEM, GAIN, MAL, TOKENS_PER_S, SPEEDUP)
    aside = [(TOKENS_PER_S if name == "table6" else MAL).key]
    return [table(name, title, long, ROWS, shown, aside=aside, notes=below)]


def with_unrun(runs: pd.DataFrame) -> pd.DataFrame:
    """The runs, and for each pair and temperature a block without a run of each task that has no prompts here."""
    firsts = [first for _, first in runs.drop_duplicates(["pair", "temperature"]).iterrows()]
    blank = [
        pd.Series({**frame.unrun(first), "dataset": task, "method": AUTOREGRESSIVE}, dtype=object)
        for first in firsts
        for task in UNRUN
    ]
    more = pd.DataFrame(blank, columns=runs.columns, dtype=object)
    more = frame.put(more, block=range(runs["block"].max() + 1, runs["block"].max() + 1 + len(more)))
    return pd.concat([runs.astype(object), more], ignore_index=True)


def plain(paper: pd.DataFrame) -> list[str]:
    """What the paper's text has of the target alone."""
    rows = paper[paper["method"] == AUTOREGRESSIVE]
    return [f"The paper's target alone: {row.value:g} tokens/s ({row.hardware})." for row in named_rows(rows)]
