"""OPT-Tree's figures: of single runs 3 (forward times), 5 (E(A)), 7 (phases), 10 (an answer), 11 (acceptance); sweeps.

Of the sweeps Figure 6 is over the tree size, 8 over the threshold, 9 over the temperature.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from specdec_trees import published
from specdec_trees.artifacts import case_study, definitions, draw, frame, notes, phases, style, ties
from specdec_trees.artifacts.case_study import DRAFT, LISTED, MERGED, CaseStudy
from specdec_trees.artifacts.definitions import method_label
from specdec_trees.artifacts.expected_actual import expected_actual
from specdec_trees.artifacts.latency import forward_time
from specdec_trees.artifacts.metrics import EXPECTED, MAL, SPEEDS, SPEEDUP, TOKENS_PER_S, Metric
from specdec_trees.artifacts.outputs import NoResultsError, Output
from specdec_trees.artifacts.table import table
from specdec_trees.artifacts.tables import named_rows
from specdec_trees.published import params_of
from specdec_trees.results.store import Results
from specdec_trees.statistics import intervals, metrics, samples
from specdec_trees.statistics.intervals import Interval

PAPER = "opt_tree"


def fig3(name: str, results: Results) -> list[Output]:
    """The time of a forward, with the span of lengths that the paper calls similar."""
    facts = published.find(PAPER, "fig3", metric="flat_verify_length").set_index("params")["value"]
    title = "OPT-Tree Figure 3: time of one forward against its input length"
    return forward_time(name, results, title, flat=(float(facts["end=lower"]), float(facts["end=upper"])))


def fig5(name: str, results: Results) -> list[Output]:
    """E(A) against A."""
    title = "OPT-Tree Figure 5: expected against actual acceptance length, number of decoding steps"
    return expected_actual(name, title, results)


PARTS: phases.Parts = {
    "tree operations": (4, "growing the tree, draft forwards excluded", ("tree",)),
    "drafting": (5, "draft forwards", ("draft",)),
    "verification": (0, "target forward, judging and committing the accepted path", ("score", "judge", "commit")),
}
TIMES = phases.columns(PARTS)


def fig7(name: str, results: Results) -> list[Output]:
    """Where the time of a decoding step goes."""
    loaded = frame.finished(results)
    runs = draw.decoded(draw.drafting(loaded))
    figure = phases.pies(name, "OPT-Tree Figure 7: mean time of a decoding step by operation", loaded, runs, PARTS)
    fact = published.find(PAPER, "section4_4", metric="tree_ops_share").iloc[0]
    share = f"{fact['value']:g}% of a step with its smallest models (A100, n = 50)"
    below = draw.below(loaded, runs, [f"The paper's text: tree operations take {share}."], timed=False)
    long, aside = frame.measure(runs, TIMES), phases.aside(PARTS)
    return [figure, table(name, figure.title, long, draw.RUN_ROWS, TIMES, aside=aside, notes=below)]


def fig10(name: str, study: CaseStudy) -> list[Output]:
    """One answer by who said it."""
    facts = published.find(PAPER, "section4_7").set_index("metric")["value"]
    paper = f"The paper (LLaMA-2-70B + LLaMA-2-7B): MAL {facts['mal']:g}, {facts['tokens_per_s']:g} tokens/s."
    said = f"{study.count(DRAFT, LISTED, MERGED)} of {len(study.pieces)} pieces are accepted draft tokens"
    summary = f"{case_study.speed(study)}; {said}. {paper}"
    study = replace(study, title=f"OPT-Tree Figure 10: {study.title}")
    return case_study.pages(name, study, case_study.LOOKS, summary)


BINS = 10
IN_BIN = Metric("nodes", "nodes", "drafted nodes whose parent was accepted (the root is)", lambda bin_: bin_.tested, 0)
ACCEPTED = Metric(
    "accepted",
    "accepted",
    f"share of them that were accepted; in brackets the 95% interval ({intervals.METHOD} over conversations)",
    lambda bin_: bin_.share,
)


def fig11(name: str, results: Results) -> list[Output]:
    """How often nodes are accepted, by the probability that the draft gave them."""
    runs = frame.finished(results)
    by_run = {run_id: nodes for run_id, nodes in results.nodes.groupby("run_id") if nodes["edge_prob"].notna().any()}
    runs = runs[runs["run_id"].isin(list(by_run))]
    if runs.empty:
        raise NoResultsError("no run recorded its nodes with probabilities")
    runs = frame.put(runs, bins=[_bins(by_run[run_id]) for run_id in runs["run_id"]])
    title = "OPT-Tree Figure 11: acceptance frequency against draft probability"
    figure = draw.per_run(name, (title, notes.setting(runs)), _frequency, runs)
    bins = pd.concat([run.bins.assign(run_id=run.run_id) for run in named_rows(runs)])
    long = frame.measure(runs.merge(bins, on="run_id"), (IN_BIN, ACCEPTED))
    rows = (*draw.RUN_ROWS, "span")
    return [figure, table(name, figure.title, long, rows, (IN_BIN, ACCEPTED), notes=notes.of_blocks(runs, timed=False))]


def _bins(nodes: pd.DataFrame) -> pd.DataFrame:
    """The bins of `metrics.acceptance_frequency`: `span` in words, `centre`, `tested`, and the `share` of these."""
    tested = nodes[nodes["parent_accepted"].astype(bool) & nodes["edge_prob"].notna()]
    tested = tested.assign(accepted=tested["accepted"].astype(float))
    index = np.clip((tested["edge_prob"].to_numpy() * BINS).astype(int), 0, BINS - 1)
    shares = [intervals.ratio_of_sums(tested[index == place], "accepted", scale="logit") for place in range(BINS)]
    bins = metrics.acceptance_frequency(nodes, BINS).rename(columns={"bin_centre": "centre", "count": "tested"})
    spans = [f"{centre - 0.5 / BINS:.1f} to {centre + 0.5 / BINS:.1f}" for centre in bins["centre"]]
    shares = [replace(share, value=value) for share, value in zip(shares, bins["frequency"], strict=True)]
    return frame.put(bins, span=spans, share=shares)


def _frequency(axes: Axes, run: Any) -> None:
    """Frequency with interval per bin, the diagonal, counts as bars."""
    x, count = run.bins["centre"], run.bins["tested"]
    axes.bar(x, 0.25 * count / count.max(), width=0.9 / BINS, color="#DDDDDD", label="number of nodes (above)")
    for place, tested in zip(x, count, strict=True):
        axes.annotate(str(tested), (place, 1.03), fontsize=7, color=style.GREY, ha="center", annotation_clip=False)
    axes.plot([0, 1], [0, 1], color=style.GREY, linestyle="--", linewidth=1, label="frequency = probability")
    sound = [(place, one.low, one.high) for place, one in zip(x, run.bins["share"], strict=True) if one.known]
    if sound:
        axes.vlines(*zip(*sound, strict=True), color=style.COLOURS[0], linewidth=1.4)
    axes.plot(x, run.bins["frequency"], color=style.COLOURS[0], marker="o", label="accepted (95% interval)")
    axes.set_title(f"{run.setting}, {run.name}", pad=15)  # above the counts
    axes.set(xlim=(0, 1), ylim=(0, 1.02), xlabel="draft probability of the node", ylabel="acceptance frequency")
    style.legend_below(axes)


def _over_sequoia(run: Any) -> Interval | None:
    """Over the conversations that both decoded."""
    return None if run.sequoia is None else samples.paired_ratio(samples.mal(run.steps), samples.mal(run.sequoia))


OVER_SEQUOIA = Metric(
    "mal_over_sequoia", "MAL over Sequoia's", "MAL / MAL of Sequoia's tree of this size, paired", _over_sequoia
)
POINT = (MAL, EXPECTED, *SPEEDS, SPEEDUP)
_GROWTH = {
    "mal_growth_until_nodes": "paper: grows until",
    "mal_slow_growth_from_nodes": "paper: slow growth from",
    "mal_saturates_from_nodes": "paper: saturates from",
}


def fig6(name: str, results: Results) -> list[Output]:
    """MAL over the tree size, and over Sequoia's tree of the same size."""
    loaded = frame.finished(results)
    runs = draw.lines(_beside_sequoia(loaded), "n")
    shown = (MAL, OVER_SEQUOIA, EXPECTED, *SPEEDS)
    long = frame.measure(runs.assign(size_words=runs["point"]), shown)
    title, label = "OPT-Tree Figure 6: mean acceptance length against tree size", "tree size n (drafted nodes)"
    words, over = (title, notes.setting(runs), label), (draw.curve, OVER_SEQUOIA)
    figure = draw.curves(name, words, long, [[(draw.curve, MAL)], [(_even,), over]], _sizes(runs))
    rows, below = (*draw.LINE_ROWS, "size_words"), draw.below(loaded, runs, _sizes_said(runs, results))
    return [figure, table(name, figure.title, long, rows, shown, notes=below, means={"size_words": definitions.SIZE})]


def _beside_sequoia(runs: pd.DataFrame) -> pd.DataFrame:
    """The runs with the steps of Sequoia's tree of the same size, as `sequoia`."""
    trees = runs[runs["method"] == "sequoia"]
    steps = dict(zip(zip(trees["block"], trees["size"], strict=True), trees["steps"], strict=True))
    keys = zip(runs["block"], runs["size"], strict=True)
    others = [None if method == "sequoia" else steps.get(key) for key, method in zip(keys, runs["method"], strict=True)]
    return frame.put(runs, sequoia=others)


def _even(axes: Axes, rows: pd.DataFrame) -> None:
    axes.axhline(1, **draw.ACROSS)


def _facts(runs: pd.DataFrame, artifact: str) -> Iterator[tuple[Any, Any]]:
    """What the paper says of the models of each block, with the block."""
    for one in named_rows(runs.drop_duplicates("block")):
        for fact in named_rows(published.find(PAPER, artifact, target=one.target or "", draft=one.draft or "")):
            yield one.block, fact


def _sizes(runs: pd.DataFrame) -> Iterator[Mapping[str, Any]]:
    largest = runs.groupby("block")["x"].max()
    for index, (block, fact) in enumerate(_facts(runs, "section4_3")):
        if fact.metric in _GROWTH and fact.value <= largest[block]:
            whose = "" if "|" in fact.method else f" ({method_label(fact.method)})"
            words, dash = f"{_GROWTH[fact.metric]} {fact.value:g}{whose}", ":" if index % 2 else "--"
            yield {"block": block, "words": words, "x": fact.value, "linestyle": dash}
        if fact.metric == "mal":
            size = float(params_of(fact.params)["nodes"])
            yield {"block": block, "words": f"paper: MAL {fact.value:g} at {size:g}", "x": size, "y": fact.value}


def _sizes_said(runs: pd.DataFrame, results: Results) -> Iterator[str]:
    for dataset, rows in results.acceptance.groupby("dataset"):
        prompts = " / ".join(str(count) for count in sorted(set(rows["num_prompts"])))
        yield f"Sequoia's trees are made for {dataset} (prompts: {prompts}); the paper's: for 200 samples of C4."
    facts = [fact for _, fact in _facts(runs, "section4_3")]
    named = ((one, " and ".join(map(method_label, one.method.split("|")))) for one in facts)
    yield from dict.fromkeys(f"The paper on {one.target} + {one.draft}, {who}: {one.notes}." for one, who in named)


def fig8(name: str, results: Results) -> list[Output]:
    """MAL and speed over the threshold, with the measured cost ratio and the paper's best threshold."""
    loaded = frame.finished(results)
    runs = draw.lines(loaded, "delta")
    long = frame.measure(runs.assign(delta=runs["point"]), POINT)
    title = "OPT-Tree Figure 8: MAL and tokens/s against the threshold delta"
    words = (title, notes.setting(runs), "threshold delta")
    figure = draw.curves(name, words, long, [[(draw.twin, MAL, TOKENS_PER_S)]], _deltas(runs))
    rows, below = (*draw.LINE_ROWS, "delta"), draw.below(loaded, runs, [*_deltas_said(long), draw.MARKED])
    return [figure, table(name, figure.title, draw.ranked(long, MAL), rows, POINT, notes=below)]


def _mu(rows: pd.DataFrame) -> float:
    """The cost ratio, pooled over these runs."""
    return metrics.cost_ratio(pd.concat(list(rows["prompts"])), pd.concat(list(rows["steps"])))


def _deltas(runs: pd.DataFrame) -> Iterator[Mapping[str, Any]]:
    for block, rows in runs.groupby("block", sort=False):
        if not math.isnan(mu := _mu(rows)):
            yield {"block": block, "words": f"measured mu = {mu:.2f}", "x": mu, "linewidth": 1.2}
        for _, fact in _facts(rows, "fig8"):
            words = f"paper's best delta = {fact.value:g} ({fact.target} + {fact.draft})"
            look = {"color": style.COLOURS[2], "linestyle": ":", "linewidth": 2}
            yield {"block": block, "words": words, "x": fact.value, **look}


def _deltas_said(long: pd.DataFrame) -> Iterator[str]:
    """Of each block which thresholds are the fastest, the cost ratio, and the paper's best."""
    speeds = frame.rank(long[long["metric"].isin([SPEEDUP])])
    for _, rows in speeds.groupby("block", sort=False):
        first = rows.loc[rows["mark"].isin([ties.BEST, ties.TIED]), "point"]
        said = [f"largest speedup at delta = {', '.join(first)}{' (tied)' * (len(first) > 1)}."] if len(first) else []
        if not math.isnan(mu := _mu(rows)):
            said.append(f"measured mu = {mu:.3f} (draft forward / autoregressive step of the target).")
        said += [f"{one['words']}." for one in _deltas(rows) if one["words"].startswith("paper")]
        yield from (f"{rows['setting'].iloc[0]}: {text}" for text in said)


def fig9(name: str, results: Results) -> list[Output]:
    """MAL and speed over the temperature."""
    across = ("temperature",)
    loaded = frame.finished(results, across=across)
    runs = draw.lines(loaded, "temperature", loaded["temperature"])
    long = frame.measure(runs, POINT)
    title = "OPT-Tree Figure 9: MAL and tokens/s against the temperature"
    words = (title, notes.setting(runs, but=across), "temperature")
    figure = draw.curves(name, words, long, [[(draw.twin, MAL, TOKENS_PER_S)]])
    rows, below = (*draw.LINE_ROWS, "temperature"), draw.below(loaded, runs, [draw.MARKED])
    return [figure, table(name, figure.title, draw.ranked(long, MAL), rows, POINT, notes=below)]
