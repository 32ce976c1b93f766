"""OPT-Tree's figures: of single runs 3 (forward times), 5 (E(A)), 7 (phases), 10 (an answer), 11 (acceptance); sweeps.

Of the sweeps Figure 6 is over the tree size, 8 over the threshold, 9 over the temperature.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from bench import published
from bench.artifacts import case_study, definitions, style, tables, ties
from bench.artifacts.blocks import Block
from bench.artifacts.case_study import DRAFT, LISTED, MERGED, CaseStudy
from bench.artifacts.definitions import method_label
from bench.artifacts.latency import forward_time
from bench.artifacts.metric import EXPECTED, MAL, SPEEDS, SPEEDUP, TOKENS_PER_S, Metric
from bench.artifacts.outputs import Output
from bench.artifacts.run_figure import RunFigure, expected_actual, time_by_phase
from bench.artifacts.runs import Run, cost_ratio
from bench.artifacts.sweep import Mark, Panel, Sweep, curve, twin
from bench.published import params_of
from bench.results.store import Results
from bench.statistics import intervals, metrics
from bench.statistics.intervals import Interval
from bench.statistics.samples import paired_ratio


def fig3(name: str, results: Results) -> list[Output]:
    """The time of a forward, with the span of lengths that the paper calls similar."""
    facts = published.find("opt_tree", "fig3", metric="flat_verify_length").set_index("params")["value"]
    title = "OPT-Tree Figure 3: time of one forward against its input length"
    return forward_time(name, results, title, flat=(float(facts["end=lower"]), float(facts["end=upper"])))


FIG5 = expected_actual("OPT-Tree Figure 5: expected against actual acceptance length, number of decoding steps")


def _tree_share(found: Sequence[Block]) -> Iterator[str]:
    fact = published.find("opt_tree", "section4_4", metric="tree_ops_share").iloc[0]
    share = f"{fact['value']:g}% of a step with its smallest models (A100, n = 50)"
    yield f"The paper's text: tree operations take {share}."


FIG7 = time_by_phase(
    "OPT-Tree Figure 7: mean time of a decoding step by operation",
    {"tree operations": ["tree"], "drafting": ["draft"], "verification": ["score", "judge", "commit"]},
    (4, 5, 0),
    {
        "tree operations ms": "growing the tree, draft forwards excluded",
        "drafting ms": "draft forwards",
        "verification ms": "target forward, judging and committing the accepted path",
    },
    _tree_share,
)


def fig10(name: str, study: CaseStudy) -> list[Output]:
    """One answer by who said it."""
    facts = published.find("opt_tree", "section4_7").set_index("metric")["value"]
    paper = f"The paper (LLaMA-2-70B + LLaMA-2-7B): MAL {facts['mal']:g}, {facts['tokens_per_s']:g} tokens/s."
    said = f"{study.count(DRAFT, LISTED, MERGED)} of {len(study.pieces)} pieces are accepted draft tokens"
    summary = f"{case_study.speed(study)}; {said}. {paper}"
    study = replace(study, title=f"OPT-Tree Figure 10: {study.title}")
    return case_study.pages(name, study, case_study.LOOKS, summary)


BINS = 10


def _drawn(run: Run) -> bool:
    """Whether there are nodes that the draft gave probabilities."""
    nodes = run.rows("nodes")
    return bool(len(nodes)) and bool(nodes["edge_prob"].notna().any())


def _bins(run: Run) -> pd.DataFrame:
    """The bins of `metrics.acceptance_frequency` with the interval of each."""
    nodes = run.rows("nodes")
    tested = nodes[nodes["parent_accepted"].astype(bool) & nodes["edge_prob"].notna()]
    tested = tested.assign(accepted=tested["accepted"].astype(float))
    index = np.clip((tested["edge_prob"].to_numpy() * BINS).astype(int), 0, BINS - 1)
    reach = [intervals.ratio_of_sums(tested[index == place], "accepted", scale="logit") for place in range(BINS)]
    frame = metrics.acceptance_frequency(nodes, BINS)
    return frame.assign(**{name: [getattr(each, name) for each in reach] for name in ("low", "high", "n")})


def _frequency(axes: Axes, run: Run) -> None:
    """Frequency with interval per bin, the diagonal, counts as bars."""
    bins = _bins(run)
    x, y = bins["bin_centre"], bins["frequency"]
    counts = 0.25 * bins["count"] / bins["count"].max()  # of the height
    axes.bar(x, counts, width=0.9 / BINS, color="#DDDDDD", label="number of nodes (above)")
    for place, count in zip(x, bins["count"], strict=True):
        axes.annotate(str(count), (place, 1.03), fontsize=7, color=style.GREY, ha="center", annotation_clip=False)
    axes.plot([0, 1], [0, 1], color=style.GREY, linestyle="--", linewidth=1, label="frequency = probability")
    sound = bins[bins["n"] >= intervals.FEWEST]
    axes.vlines(sound["bin_centre"], sound["low"], sound["high"], color=style.COLOURS[0], linewidth=1.4)
    axes.plot(x, y, color=style.COLOURS[0], marker="o", label="accepted (95% interval)")
    axes.set_title(f"{run.block.name}, {run.name}", pad=15)  # above the counts
    axes.set(xlim=(0, 1), ylim=(0, 1.02), xlabel="draft probability of the node", ylabel="acceptance frequency")
    style.legend_below(axes)


def _frequencies(run: Run) -> list[dict[str, str]]:
    rows = []
    for bin_ in tables.named_rows(_bins(run)):
        low, share = bin_.bin_centre - 0.5 / BINS, Interval(bin_.frequency, bin_.low, bin_.high, bin_.n)
        accepted = tables.interval(None if math.isnan(share.value) else share)
        probability = f"{low:.1f} to {low + 1 / BINS:.1f}"
        rows.append({"draft probability": probability, "nodes": str(bin_.count), "accepted": accepted})
    return rows


FIG11 = RunFigure(
    "OPT-Tree Figure 11: acceptance frequency against draft probability",
    [_frequency],
    _frequencies,
    {
        "nodes": "drafted nodes whose parent was accepted (the root is)",
        "accepted": "share of them that were accepted; in brackets the 95% interval "
        f"({intervals.METHOD} over conversations)",
    },
    _drawn,
    "no run recorded its nodes with probabilities",
)


_FACTS = {
    "mal_growth_until_nodes": "paper: grows until",
    "mal_slow_growth_from_nodes": "paper: slow growth from",
    "mal_saturates_from_nodes": "paper: saturates from",
}


def _facts(panel: Panel, artifact: str) -> list[Any]:
    """What the paper says of these models."""
    target, draft = panel.block.published_as or ("", "")
    return list(tables.named_rows(published.find("opt_tree", artifact, target=target, draft=draft)))


def _sizes(panel: Panel) -> Iterator[Mark]:
    for index, fact in enumerate(_facts(panel, "section4_3")):
        if fact.metric in _FACTS and fact.value <= max(panel.x):
            whose = "" if "|" in fact.method else f" ({method_label(fact.method)})"
            words = f"{_FACTS[fact.metric]} {fact.value:g}{whose}"
            yield Mark(words, fact.value, look={"linestyle": ":" if index % 2 else "--"})
        if fact.metric == "mal":
            size = float(params_of(fact.params)["nodes"])
            yield Mark(f"paper: MAL {fact.value:g} at {size:g}", size, fact.value)


def _over_sequoia(run: Run) -> Interval | None:
    """MAL over that of Sequoia's tree of the same size, over the conversations that both decoded."""
    others = [one for one in run.block.ok if one.method == "sequoia" and one.size == run.size]
    if run.method == "sequoia" or not others:
        return None
    ratio = paired_ratio(run.sample("mal"), others[-1].sample("mal"))
    return None if math.isnan(ratio.value) else ratio


OVER_SEQUOIA = Metric("MAL over Sequoia's", _over_sequoia, "MAL / MAL of Sequoia's tree of this size, paired")


def _equal(axes: Axes, panel: Panel) -> None:
    axes.axhline(1, color=style.GREY, linestyle="--", linewidth=1)


def _sizes_said(panels: Sequence[Panel], results: Results) -> Iterator[str]:
    for dataset, rows in results.acceptance.groupby("dataset"):
        prompts = " / ".join(str(count) for count in sorted(set(rows["num_prompts"])))
        yield f"Sequoia's trees are made for {dataset} (prompts: {prompts}); the paper's: for 200 samples of C4."
    facts = (fact for panel in panels for fact in _facts(panel, "section4_3"))
    named = ((one, " and ".join(map(method_label, one.method.split("|")))) for one in facts)
    yield from dict.fromkeys(f"The paper on {one.target} + {one.draft}, {who}: {one.notes}." for one, who in named)


def _deltas(panel: Panel) -> Iterator[Mark]:
    if not math.isnan(mu := cost_ratio(panel.runs)):
        yield Mark(f"measured mu = {mu:.2f}", mu, look={"linewidth": 1.2})
    for fact in _facts(panel, "fig8"):
        look = {"color": style.COLOURS[2], "linestyle": ":", "linewidth": 2}
        yield Mark(f"paper's best delta = {fact.value:g} ({fact.target} + {fact.draft})", fact.value, look=look)


def _deltas_said(panels: Sequence[Panel], results: Results) -> Iterator[str]:
    for panel in panels:
        signs = ties.marks([SPEEDUP.entry(run) for run in panel.runs])
        first = [f"{x:g}" for x, sign in zip(panel.x, signs, strict=True) if sign in (ties.BEST, ties.TIED)]
        said = [f"largest speedup at delta = {', '.join(first)}{' (tied)' * (len(first) > 1)}."] if first else []
        if not math.isnan(mu := cost_ratio(panel.runs)):
            said.append(f"measured mu = {mu:.3f} (draft forward / autoregressive step of the target).")
        said += [f"{mark.words}." for mark in _deltas(panel) if mark.words.startswith("paper")]
        yield from (f"{panel.block.name}: {text}" for text in said)


_POINT = (MAL, EXPECTED, *SPEEDS, SPEEDUP)
FIG6 = Sweep(
    "OPT-Tree Figure 6: mean acceptance length against tree size",
    "n",
    "tree size n (drafted nodes)",
    [[curve(MAL)], [_equal, curve(OVER_SEQUOIA)]],
    (MAL, OVER_SEQUOIA, EXPECTED, *SPEEDS),
    header="Tree size n",
    means=definitions.SIZE,
    marks=_sizes,
    remarks=_sizes_said,
)
FIG8 = Sweep(
    "OPT-Tree Figure 8: MAL and tokens/s against the threshold delta",
    "delta",
    "threshold delta",
    [[twin(MAL, TOKENS_PER_S)]],
    _POINT,
    marks=_deltas,
    remarks=_deltas_said,
    ranked=[MAL],
)
FIG9 = Sweep(
    "OPT-Tree Figure 9: MAL and tokens/s against the temperature",
    "temperature",
    "temperature",
    [[twin(MAL, TOKENS_PER_S)]],
    _POINT,
    read=lambda run: float(run["temperature"]),
    across=("temperature",),
    ranked=[MAL],
)
