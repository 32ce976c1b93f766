"""GSD, Table 1: acceptance, drafted tokens, graph success and speedup by method; and whether GSD drafts fewer nodes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pandas as pd

from bench import published
from bench.artifacts import frame, notes, tables
from bench.artifacts.frame import NO_DRAFT
from bench.artifacts.metrics import LOSSLESS, MAL, SPEEDUP
from bench.artifacts.outputs import Output
from bench.artifacts.table import table
from bench.artifacts.tables import named_rows, signed
from bench.papers.gsd import methods, metrics
from bench.papers.gsd.methods import (
    GREEDY,
    GSD,
    GSD_CODE,
    GSD_LEAVES,
    LARGE,
    SAMPLED,
    SSD,
    SSD_ADAPTIVE,
    SSD_NO_EXIT,
    TSD,
    TSD_SIB,
    bound,
    self_drafting,
)
from bench.papers.gsd.metrics import ROWS
from bench.results.store import Results
from bench.statistics import graph_metrics, intervals, samples
from bench.statistics.intervals import Interval

TITLE = "GSD Table 1: acceptance rate, drafted tokens, graph success and speedup"
METHODS = (SSD, SSD_ADAPTIVE, SSD_NO_EXIT, TSD, TSD_SIB, GSD, GSD_LEAVES, GSD_CODE)
ARMS = tuple(bound(arm, LARGE) for arm in METHODS)
OWN = tuple(bound(self_drafting(arm), LARGE) for arm in METHODS)
"""The same where the target drafts for itself."""
IN_GREEDY = replace(
    SPEEDUP, key="greedy", header="speedup greedy", means="speedup of greedy decoding, with its 95% interval"
)
IN_SAMPLED = replace(
    SPEEDUP,
    key="top_p",
    header="speedup top-p",
    means="speedup of sampling at temperature 0.7 from the top 0.7, with its 95% interval",
)
MAIN = (metrics.RANKED_RATE, metrics.DRAFTED, metrics.SUCCESS)
_GRAPH = (metrics.CREATED, metrics.MERGES, metrics.PRUNED, metrics.VERIFIED, metrics.CAPPED)
COUNTS = (*_GRAPH, metrics.CROSSED, metrics.SHARED, MAL, LOSSLESS)
_NOTES = (
    methods.NO_HARDWARE,
    "Acceptance rates, counts, Graph Success and MAL are of greedy decoding; the paper does not say of which.",
    "The paper does not say whether its TSD prunes siblings: TSD does not here; with sibling pruning it is a row.",
    methods.READINGS,
)


def table1(name: str, results: Results) -> list[Output]:
    """A row per method and setting, ours beside the paper's."""
    paper = published.find("gsd", name)
    runs = methods.load(results, paper)
    parts = methods.lines(runs, paper, (*OWN, *ARMS), (GREEDY, SAMPLED))
    own = parts[0]["arm"].isin(OWN) == (parts[0]["draft"] == NO_DRAFT)
    greedy, sampled = (part[own] for part in parts)
    speedups = [frame.measure(greedy, [IN_GREEDY]), frame.measure(sampled, [IN_SAMPLED])]
    measured = [frame.measure(greedy, (*MAIN, *COUNTS)), *speedups, metrics.mean_of(speedups, metrics.MEAN)]
    long = methods.judged(pd.concat(measured, ignore_index=True), metrics.NAMES)
    below = [
        *notes.of_blocks(runs),
        *notes.not_run(paper, runs),
        *_NOTES,
        *_fewer_nodes(long),
        *_skipped(runs),
        *methods.unshown(results, greedy, ARMS),
        methods.MEANS_TIED,
    ]
    aside = [one.header for one in (*COUNTS, IN_GREEDY, IN_SAMPLED)]
    shown = (*MAIN, metrics.MEAN, IN_GREEDY, IN_SAMPLED, *COUNTS)
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
            "The paper does not say what its Self SSD leaves out; python -m bench.skip_search finds a set. With the "
            "adaptive exit the threshold starts at 0.6 and moves towards an acceptance rate of 0.9, and at most 12 "
            "tokens are drafted (Zhang et al., 2023)."
        )


def _fewer_nodes(long: pd.DataFrame) -> Iterator[str]:
    """A sentence for each tree run beside GSD: fewer nodes at the same rate? Paired over the samples of both."""
    for _, rows in long.groupby("block", sort=False):
        by_method = {label: {row.metric.key: row for row in named_rows(own)} for label, own in rows.groupby("label")}
        graph = by_method.get(GSD.header)
        for tree in (by_method.get(arm.header) for arm in (TSD, TSD_SIB)):
            if graph and tree and (text := _compared(graph, tree)):
                first = graph["drafted"]
                yield f"{first.dataset}, {first.target_words}: {text}"


def _compared(graph: dict[str, Any], tree: dict[str, Any]) -> str:
    """What of two methods in one setting, whose rows stand by their metrics' keys."""
    gain = _gain(graph["drafted"], tree["drafted"])
    if gain is None:
        return ""
    drafted, created, verified = (
        samples.paired_ratio(*(own[key].sample for own in (graph, tree))) for key in ("drafted", "created", "verified")
    )
    return (
        f"GSD drafts {tables.ratio(drafted)} times the tokens of {tree['drafted'].label}, at an acceptance rate of "
        f"{signed(gain)}: {_conclusion(drafted, gain)}.{_paper(graph, tree)} With nodes pruned beside a sibling "
        f"it is {tables.ratio(created)}; the target reads {tables.ratio(verified)} times the nodes."
    )


def _gain(graph: Any, tree: Any) -> Interval | None:
    """How far the acceptance rate is ahead, over the samples of both; None without any."""
    if not (graph.ok and tree.ok):
        return None
    both = graph.samples.merge(tree.samples, on=graph_metrics.SAMPLE, suffixes=("", "_tree"))
    both["gain"] = both["acceptance_rate"] - both["acceptance_rate_tree"]
    if both.empty:
        return None
    return intervals.ratio_of_sums(both.dropna(subset=["gain"]), "gain", stretch=intervals.IN_PAIRS, scale="plain")


def _conclusion(drafted: Interval, gain: Interval) -> str:
    if not (drafted.known and gain.known):
        return "so few conversations have no interval to judge by"
    nodes = "fewer" if drafted.high < 1 else "more" if drafted.low > 1 else "neither fewer nor more"
    rate = "higher" if gain.low > 0 else "lower" if gain.high < 0 else "not measurably different"
    return f"{nodes} nodes, the rate {rate}"


def _paper(graph: dict[str, Any], tree: dict[str, Any]) -> str:
    numbers = [own[key].published for key in ("drafted", "acceptance_rate") for own in (graph, tree)]
    if None in numbers:
        return ""
    return f" The paper: {numbers[0] / numbers[1]:.2f}x at {numbers[2] - numbers[3]:+.3f}."
