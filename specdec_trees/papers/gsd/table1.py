"""GSD, Table 1: acceptance, drafted tokens, graph success and speedup by method; and whether GSD drafts fewer nodes."""

from __future__ import annotations

import json
import operator
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pandas as pd

from specdec_trees import published
from specdec_trees.artifacts import frame, notes
from specdec_trees.artifacts.frame import NO_DRAFT
from specdec_trees.artifacts.metrics import LOSSLESS, MAL, SPEEDUP, Metric
from specdec_trees.artifacts.outputs import Output
from specdec_trees.artifacts.table import table
from specdec_trees.artifacts.tables import named_rows
from specdec_trees.papers.gsd import methods, metrics
from specdec_trees.papers.gsd.methods import GREEDY, GSD, LARGE, SAMPLED, SSD, TSD, TSD_SIB, bound, self_drafting
from specdec_trees.papers.gsd.metrics import ROWS
from specdec_trees.results.store import Results
from specdec_trees.statistics import graph_metrics, intervals, samples
from specdec_trees.statistics.intervals import Interval

TITLE = "GSD Table 1: acceptance rate, drafted tokens, graph success and speedup"
METHODS = (SSD, methods.SSD_ADAPTIVE, methods.SSD_NO_EXIT, TSD, TSD_SIB, GSD, methods.GSD_LEAVES, methods.GSD_CODE)
ARMS = tuple(bound(arm, LARGE) for arm in METHODS)
OWN = tuple(bound(self_drafting(arm), LARGE) for arm in METHODS)
"""The same where the target drafts for itself."""
IN_GREEDY = replace(
    SPEEDUP, key="greedy", header="speedup greedy", means="speedup of greedy decoding, with its 95% interval"
)
IN_SAMPLED = replace(
    SPEEDUP,
    key="sampled",
    header="speedup top-p",
    means="speedup of sampling at temperature 0.7 from the top 0.7, with its 95% interval",
)
TREES = tuple(arm.header for tree in (TSD, TSD_SIB) for arm in (tree, self_drafting(tree)))
"""What GSD is set against, in pairs."""
GRAPHS = (GSD.header, self_drafting(GSD).header)


def _over(key: str) -> Metric:
    means = f"GSD's {key} over this tree's, paired over the samples of both"
    return Metric(f"{key}_ratio", f"GSD / this: {key}", means, lambda run: None, 3, judged=False)


RATIOS = {counted: _over(counted.key) for counted in (metrics.DRAFTED, metrics.CREATED, metrics.VERIFIED)}
GAIN = Metric(
    "rate_gain", "GSD - this: rate", "the same of the acceptance rates", lambda run: None, 3, signed=True, judged=False
)
MAIN = (metrics.RANKED_RATE, metrics.DRAFTED, metrics.SUCCESS)
_GRAPH = (metrics.CREATED, metrics.MERGES, metrics.PRUNED, metrics.VERIFIED, metrics.CAPPED)
COUNTS = (*_GRAPH, metrics.CROSSED, metrics.SHARED, MAL, LOSSLESS)
PRUNED = (
    "TSD falls short despite pruning, says the paper (Section 5), and GSD is beyond it by pruning (Figure 2). Here TSD "
    "prunes no siblings; with sibling pruning it is a row."
)
_NOTES = (
    methods.NO_HARDWARE,
    "Acceptance rates, counts, Graph Success and MAL are of greedy decoding; the paper does not say of which.",
    PRUNED,
    methods.READINGS,
)


def table1(name: str, results: Results) -> list[Output]:
    """A row per method and setting, ours beside the paper's."""
    paper = published.find("gsd", name)
    runs = methods.load(results, paper)
    parts = methods.lines(runs, paper, (*OWN, *ARMS), (GREEDY, SAMPLED))
    fits = parts[0]["arm"].isin(OWN) == (parts[0]["draft"] == NO_DRAFT)  # a target drafts for itself without a draft
    greedy, sampled = (part[fits] for part in parts)
    speedups = [frame.measure(greedy, [IN_GREEDY]), frame.measure(sampled, [IN_SAMPLED])]
    measured = [frame.measure(greedy, (*MAIN, *COUNTS)), *speedups, metrics.mean_of(speedups, metrics.MEAN)]
    long = methods.judged(pd.concat(measured, ignore_index=True), metrics.NAMES)
    long = pd.concat([long, *_over_trees(long)], ignore_index=True)
    below = [
        *notes.of_blocks(runs),
        *notes.not_run(paper, runs),
        *_NOTES,
        *_told(long),
        *_skipped(runs),
        *methods.unshown(results, greedy, ARMS),
        methods.MEANS_TIED,
    ]
    more = (IN_GREEDY, IN_SAMPLED, *RATIOS.values(), GAIN, *COUNTS)
    aside = [column for one in more for column in (one.key, one.published)]
    shown = (*MAIN, metrics.MEAN, *more)
    return [table(name, notes.titled(TITLE, runs, but=["temperature"]), long, ROWS, shown, aside=aside, notes=below)]


def _skipped(runs: pd.DataFrame) -> Iterator[str]:
    """Which layers a target leaves out that drafts for itself."""
    own = runs[runs["draft"] == NO_DRAFT].drop_duplicates("pair")
    for run in named_rows(own):
        draft = json.loads(run.config)["pair"].get("draft", {})
        parts = {"layers": "skipped_layers", "attention of layers": "skipped_attention", "MLP of layers": "skipped_mlp"}
        if left_out := [f"{words} {', '.join(map(str, draft[key]))}" for words, key in parts.items() if draft.get(key)]:
            yield f"{run.pair}: the target drafts for itself without {' and '.join(left_out)}."
    if len(own):
        yield (
            "The paper does not say what its Self SSD leaves out; python -m specdec_trees.skip_search finds a set. "
            "With the adaptive exit the threshold starts at 0.6 and moves towards an acceptance rate of 0.9, and "
            "at most 12 tokens are drafted (Zhang et al., 2023)."
        )


def _over_trees(long: pd.DataFrame) -> Iterator[pd.DataFrame]:
    """What GSD has over each tree of its block, and the paper's."""
    for counted, ratio in RATIOS.items():
        yield frame.over(long, counted, GRAPHS, ratio, TREES)
    yield frame.over(long, metrics.RANKED_RATE, GRAPHS, GAIN, TREES, _gain, operator.sub)


def _gain(graph: Any, tree: Any) -> Interval | None:
    """How far the acceptance rate is ahead, over the samples of both; None without any."""
    if not (graph.ok and tree.ok):
        return None
    both = graph.samples.merge(tree.samples, on=graph_metrics.SAMPLE, suffixes=("", "_tree"))
    both["gain"] = both["acceptance_rate"] - both["acceptance_rate_tree"]
    if both.empty:
        return None
    return intervals.ratio_of_sums(both.dropna(subset=["gain"]), "gain", stretch=intervals.IN_PAIRS, scale="plain")


def _told(long: pd.DataFrame) -> Iterator[str]:
    """In how many settings GSD drafts fewer tokens than each tree, and how its rate is there."""
    of = {(row.block, row.label, row.metric.key): row.interval for row in named_rows(long)}
    for tree in TREES:
        keys = tree, "drafted_ratio"
        ratios = {block: one for (block, label, key), one in of.items() if (label, key) == keys and one}
        known = {block: one for block, one in ratios.items() if one.known}
        fewer = [of[block, tree, GAIN.key] or samples.NOTHING for block, one in known.items() if one.high < 1]
        more = sum(one.low > 1 for one in known.values())
        if ratios:
            yield (
                f"Over the samples of both, GSD drafts fewer tokens than {tree} in {len(fewer)} of {len(ratios)} "
                f"settings, and more in {more}; its rate is higher in {sum(one.low > 0 for one in fewer)} of the "
                f"first, and lower in {sum(one.high < 0 for one in fewer)}."
            )
