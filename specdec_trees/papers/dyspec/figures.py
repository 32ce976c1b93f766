"""DySpec's figures of single runs: 2 (probabilities), 4 (time of a step), 5 (tree and tokens, step by step)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import PowerNorm
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from specdec_trees import published
from specdec_trees.artifacts import definitions, draw, frame, notes, phases, style, tables
from specdec_trees.artifacts.metrics import MAL, MEAN_SIZE, STEPS, Metric
from specdec_trees.artifacts.outputs import NoResultsError, Output
from specdec_trees.artifacts.table import table
from specdec_trees.artifacts.tables import named_rows
from specdec_trees.papers.dyspec import threshold
from specdec_trees.published import params_of
from specdec_trees.results.store import Results
from specdec_trees.statistics import intervals, metrics
from specdec_trees.statistics.intervals import Interval
from specdec_trees.statistics.metrics import PHASES

PAPER = "dyspec"
# Figure 2: how draft probability goes with acceptance and with target probability, as two heat maps. Of every accepted
# node (the root is one) the first child is looked at: it is drawn from q itself and tested with probability
# min(1, p/q), while later siblings face what is left of p.

RULES = ("without_replacement", "multi_candidate", "multi_candidate_iid", "spec_infer", "eagle1", "chain")
"""The rules that test a first child with probability min(1, p/q)."""
BINS = 20
_HEATS = {"chance": "acceptance probability min(1, p/q)", "target_prob": "target probability p"}
"""What is drawn against q, a panel each."""
_NO_NODES = (
    "no run that samples, with children drawn from the draft and a rule that tests the first of them with "
    f"min(1, p/q) ({', '.join(RULES)}), recorded its nodes and their ranks; "
    "record_nodes=true does, and force=true runs finished cells again"
)
IN_BIN = (
    Metric("nodes", "nodes", "first children whose parent was accepted (the root is)", lambda row: len(row.inside), 0),
    Metric(
        "chance",
        "acceptance probability",
        "min(1, p/q), on average",
        lambda row: float(row.inside["chance"].mean()),
    ),
    Metric(
        "p",
        "p",
        "target probability of the node, at the run's temperature, on average",
        lambda row: float(row.inside["target_prob"].mean()),
    ),
    Metric(
        "accepted",
        "accepted",
        "share of these nodes that were accepted, which the acceptance probability foretells; in brackets the 95% "
        f"interval ({intervals.METHOD} over conversations)",
        lambda row: intervals.ratio_of_sums(row.inside, "accepted", scale="logit"),
    ),
)


def fig2(name: str, results: Results) -> list[Output]:
    """Acceptance and target probability of first children against their draft probability."""
    loaded = frame.finished(results)
    nodes = frame.of_runs(results.nodes, loaded["run_id"])
    runs = frame.put(loaded, children=map(first_children, named_rows(loaded), nodes))
    runs = runs[runs["children"].map(len) > 0]
    if runs.empty:
        raise NoResultsError(_NO_NODES)
    title = "DySpec Figure 2: acceptance and target probability against draft probability, first children"
    panels = draw.repeated(runs, column=[*_HEATS])
    look: dict[str, Any] = {"aside": "; columns sum to 1; nodes above", "panel": (4.6, 4.4)}
    figure = draw.per_run(name, (title, notes.setting(runs)), _heat, panels, **look)
    bins = draw.repeated(
        runs, q=[f"{place / BINS:.2f} to {(place + 1) / BINS:.2f}" for place in range(BINS)], place=range(BINS)
    )
    inside = [row.children[row.children["bin"] == row.place] for row in named_rows(bins)]
    long = frame.measure(frame.put(bins, inside=inside), IN_BIN)
    below = draw.below(runs, runs, map(_correlation_said, named_rows(runs)), timed=False)
    means = {"q": "draft probability of a node, at the draft's temperature"}
    return [figure, table(name, figure.title, long, (*draw.RUN_ROWS, "q"), IN_BIN, notes=below, means=means)]


def first_children(run: Any, nodes: pd.DataFrame) -> pd.DataFrame:
    """The tested first children among the nodes of a run, with their bin of q and their acceptance probability.

    None where they were not drawn from q, or not tested with min(1, p/q). At temperature 0 a node is accepted or it is
    not, and the rows hold the untempered target's p.
    """
    if "rank" not in nodes or run.draws == "topk" or run.temperature == 0 or run.verifier not in RULES:
        return nodes[:0]
    tested = nodes[(nodes["rank"] == 0) & nodes["parent_accepted"].astype(bool) & (nodes["edge_prob"] > 0)]
    chance = np.minimum(1, tested["target_prob"] / tested["edge_prob"])
    return tested.assign(chance=chance, bin=_bin(tested["edge_prob"]), accepted=tested["accepted"].astype(float))


def shares(nodes: pd.DataFrame, column: str) -> NDArray[np.float64]:
    """The share of each bin of `column` (rows) among the nodes of each bin of q (columns); nan in empty columns."""
    counts = np.zeros((BINS, BINS))
    np.add.at(counts, (_bin(nodes[column]), nodes["bin"]), 1)
    total = counts.sum(axis=0)
    return np.divide(counts, total, out=np.full(counts.shape, np.nan), where=total > 0)


def _bin(values: pd.Series) -> NDArray[np.int64]:
    """A value on a border belongs to the bin above it, 1 to the last."""
    return np.clip((values.to_numpy() * BINS).astype(np.int64), 0, BINS - 1)


def _heat(axes: Axes, run: Any) -> None:
    """The heat map of the run's `column` with the means of its columns, and what these are set against."""
    nodes, column = run.children, run.column
    edges, norm = np.linspace(0, 1, BINS + 1), PowerNorm(0.5, vmin=0, vmax=1)  # rare bins are seen beside full ones
    masked = np.ma.masked_invalid(shares(nodes, column))
    mesh = axes.pcolormesh(edges, edges, masked, cmap="Blues", norm=norm, rasterized=True)
    axes.grid(visible=False)
    axes.set_title(f"{run.setting}, {run.name}", pad=24)  # above the counts
    axes.set(xlim=(0, 1), ylim=(0, 1), aspect="equal", xlabel="draft probability q", ylabel=_HEATS[column])
    axes.figure.colorbar(mesh, ax=axes, label="share of the column", shrink=0.8)
    _columns(axes, nodes, column)
    style.legend_below(axes)


def _columns(axes: Axes, nodes: pd.DataFrame, column: str) -> None:
    """The nodes of each bin of q above the heat map; in it their mean, and what was accepted or where p is q."""
    by_bin = nodes.groupby("bin")
    centres = [(int(str(place)) + 0.5) / BINS for place in by_bin.groups]
    for centre, count in zip(centres, by_bin.size(), strict=True):
        spot = (centre, 1.02)
        axes.annotate(str(count), spot, fontsize=6, color=style.GREY, ha="center", rotation=90, annotation_clip=False)
    axes.plot(centres, by_bin[column].mean(), color=style.COLOURS[1], label="mean")
    if column == "chance":
        axes.plot(centres, by_bin["accepted"].mean(), "x", color="black", label="share accepted, measured")
    else:
        axes.plot([0, 1], [0, 1], color=style.GREY, linestyle="--", linewidth=1, label="p = q")


def _correlation_said(run: Any) -> str:
    nodes = run.children
    with_chance, with_p = (nodes["edge_prob"].corr(nodes[column]) for column in _HEATS)
    return (
        f"{run.setting}, {run.name}: {len(nodes)} nodes; Pearson's correlation of q with the acceptance probability is "
        f"{tables.number(with_chance)}, with p {tables.number(with_p)}. "
        "The paper calls the latter strong and gives no number."
    )


# Figure 4
_BUILDING = "tree construction"
PARTS: phases.Parts = {
    _BUILDING: (
        4,
        "choosing where the tree grows, as the paper counts it: sampling, mask and positions are apart; 0 where a run "
        "did not record its parts (drafter.record_parts)",
        ("choice",),
    ),
    "sampling": (1, "drawing tokens from the draft's distributions", ("sampling",)),
    "mask, positions": (6, "of the target's forward", ("layout",)),
    "rest of growing": (
        3,
        "the draft's masks and inputs; all of growing where its parts were not recorded",
        ("grown",),
    ),
    "draft forwards": (5, "", ("draft",)),
    "target forward": (0, "", ("score",)),
    "judging, committing": (
        2,
        "the rule of acceptance with its draws, and keeping the accepted path in the caches",
        ("judge", "commit"),
    ),
}
_BOUNDED = {
    "tree_construction_time_share": (_BUILDING, ("choice",)),
    "other_components_time_share": ("all but the forwards", tuple({*PHASES} - {"draft", "score"})),
}
"""What the paper bounds, by the metric of its rows."""
BOUND = (
    Metric("bounded_part", "bounded part", "", lambda run: run.part),
    Metric(
        "bounded_share",
        "bounded share",
        "share of the time of all steps that the paper states a bound for; in brackets the 95% interval "
        f"({intervals.METHOD} over conversations)",
        lambda run: run.share,
        percent=True,
    ),
    Metric("bound", "published", "", lambda run: run.bound and f"< {run.bound:.0%}"),
    Metric(
        "within",
        "within",
        "whether the whole interval lies below the paper's bound (yes), above it (no), or on both sides (open)",
        lambda run: run.share and within(run.share, run.bound),
    ),
)
_STEP_NOTE = (
    "The paper's text: tree construction (in C++) takes less than 2% with JF68M; with the offloaded Llama-2-70B "
    "all but the two models' forwards together does. It states neither prompts nor temperature of Figure 4."
)


def fig4(name: str, results: Results) -> list[Output]:
    """Where the time of a decoding step goes, and whether what the paper bounds is within its bound."""
    loaded, facts = frame.finished(results), published.find(PAPER, "fig_text", metric=list(_BOUNDED))
    runs = _bounded(draw.decoded(draw.drafting(loaded)), facts)
    figure = phases.pies(name, "DySpec Figure 4: mean time of a decoding step by component", loaded, runs, PARTS)
    metrics, aside = (*phases.columns(PARTS), *BOUND), phases.aside(PARTS)
    below, long = draw.below(loaded, runs, [_STEP_NOTE], timed=False), frame.measure(runs, metrics)
    return [figure, table(name, figure.title, long, draw.RUN_ROWS, metrics, aside=aside, notes=below)]


def _bounded(runs: pd.DataFrame, facts: pd.DataFrame) -> pd.DataFrame:
    """The runs with the `part` that the paper bounds for their models, the `bound` on it, and the `share` that is ours.

    None of runs that did not record the part; `beside` has the words for the pie.
    """
    by_models = {(fact.target, fact.draft): fact for fact in named_rows(facts)}
    known = frame.standing_in(runs, facts)
    stated = [by_models.get(models) for models in zip(known["target"], known["draft"], strict=True)]
    parts = [_BOUNDED[fact.metric] if fact else None for fact in stated]
    shares = [_share(steps, part[1]) if part else None for steps, part in zip(runs["steps"], parts, strict=True)]
    bounds = [fact.value / 100 if fact else None for fact in stated]
    beside = [
        {part[0]: f", the paper: < {bound:.0%}"} if part else {} for part, bound in zip(parts, bounds, strict=True)
    ]
    sound = [share is not None for share in shares]
    return frame.put(
        runs,
        part=[part[0] if part and one else None for part, one in zip(parts, sound, strict=True)],
        bound=[bound if one else None for bound, one in zip(bounds, sound, strict=True)],
        share=shares,
        beside=beside,
    )


def _share(steps: pd.DataFrame, members: Sequence[str]) -> Interval | None:
    """Of the time of all steps; None where no such part was recorded."""
    columns, steps = [f"{phase}_s" for phase in members], metrics.timed(steps)
    if not {*columns} <= {*steps} or steps[columns].isna().all(axis=None):
        return None
    part, whole = (steps[names].sum(axis=1) for names in (columns, [f"{phase}_s" for phase in PHASES]))
    return intervals.ratio_of_sums(steps.assign(part=part, whole=whole), "part", "whole", scale="logit")


def within(share: Interval, bound: float) -> str:
    """Whether an interval lies below a bound (`yes`), from it on (`no`), or on both sides (`open`)."""
    if not share.known:
        return "open"
    return "yes" if share.high < bound else "no" if share.low >= bound else "open"


# Figure 5
SIZE = replace(
    MEAN_SIZE,
    header="n mean",
    means=f"{definitions.SIZE}, over all conversations; in brackets the 95% interval ({intervals.METHOD} over them); "
    "published: the paper's text for this threshold and cap; whether its size counts the root is not stated",
    of=lambda run: intervals.ratio_of_sums(run.steps, "num_drafted"),
    digits=2,
    counterpart="n",
)


TREES = (
    Metric("threshold", "threshold", "", lambda run: None if run.threshold is None else f"{run.threshold:g}"),
    Metric("cap", "cap", "", lambda run: run.cap and str(run.cap)),
    replace(STEPS, header="steps"),
    SIZE,
    Metric("smallest", "n smallest", "", lambda run: run.steps["num_drafted"].min(), 0),
    Metric("largest", "n largest", "", lambda run: run.steps["num_drafted"].max(), 0),
    threshold.AT_CAP,
    threshold.DEPTH,
    MAL,
)
_ENDED = "in every step the tree has as many nodes as the cap: the cap ends it level by level, the threshold never does"


def fig5(name: str, results: Results) -> list[Output]:
    """One panel per run, of its first conversation, and a table of all its trees."""
    paper = _sizes_printed()
    loaded = frame.standing_in(frame.finished(results), paper)
    runs = draw.drafting(loaded)
    given = {
        "threshold": [one.get("threshold") for one in runs["params"]],
        "cap": [one.get("n") for one in runs["params"]],
    }
    long = frame.measure(frame.put(runs, **given, shown=map(_shown, runs["steps"])), TREES)
    on = ["target", "draft", "threshold", "cap", "dataset", "temperature"]
    long = frame.beside(long, paper, on, {SIZE.key: "tree_size"})
    sizes = long[long["metric"].isin([SIZE])]
    title = "DySpec Figure 5: tree size and accepted tokens of every decoding step"
    figure = draw.per_run(name, (title, notes.setting(loaded)), _panel, sizes, 1, panel=(8.4, 3.7))
    below = draw.below(loaded, runs, _ended(sizes), timed=False)
    return [figure, table(name, figure.title, long, draw.RUN_ROWS, TREES, notes=below)]


def _sizes_printed() -> pd.DataFrame:
    """What the paper's text says of the mean size of its trees, with their threshold and cap."""
    facts = published.find(PAPER, "fig_text", metric="tree_size")
    given = [params_of(text) for text in facts["params"]]
    return facts.assign(
        threshold=[float(one["threshold"]) for one in given], cap=[int(one["size_max"]) for one in given]
    )


def _shown(steps: pd.DataFrame) -> pd.DataFrame:
    """The steps of a run's first turn of its first conversation."""
    turn = ["prompt_id", "turn"]
    return steps[(steps[turn] == steps.iloc[0][turn]).all(axis=1)].sort_values("step")


def _panel(axes: Axes, run: Any) -> None:
    """Bars of A on the right axis, behind the line of n on the left."""
    steps, right, blue, orange = run.shown, axes.twinx(), style.COLOURS[0], style.COLOURS[4]
    right.grid(visible=False)
    right.spines["right"].set_visible(True)
    axes.set_zorder(right.get_zorder() + 1)
    axes.patch.set_visible(False)
    bars = right.bar(steps["step"], steps["acceptance_length"], color=orange, alpha=0.55, label="new tokens A")
    (line,) = axes.plot(steps["step"], steps["num_drafted"], color=blue, marker="o", markersize=3, label="tree size n")
    handles = [line, bars, *_means(axes, run)]
    axes.set(title=f"{run.setting}, {run.name}, conversation {steps['prompt_id'].iloc[0]}", xlabel="step")
    axes.set_ylabel("tree size n (drafted nodes)", color=blue)
    right.set_ylabel("new tokens A (bonus counted)", color=orange)
    axes.set(xlim=(-0.7, steps["step"].max() + 0.7), ylim=(0, 1.05 * axes.get_ylim()[1]))
    axes.grid(visible=False)
    for axis in (axes.xaxis, right.yaxis):
        axis.set_major_locator(MaxNLocator(integer=True))
    right.set_ylim(0, 2 * steps["acceptance_length"].max())  # below the line
    style.legend_below(axes, handles=handles)


def _means(axes: Axes, run: Any) -> Iterator[Any]:
    """Lines at the mean size of all conversations, and at the paper's."""
    words = f"mean n of all conversations: {run.value:.1f}{', the cap in every step' * (threshold.at_cap(run) == 1)}"
    yield axes.axhline(run.value, color=style.COLOURS[0], linestyle="--", linewidth=1, label=words)
    if run.published is not None:
        words = f"the paper's mean: {run.published:g} ({notes.models(run.target, run.draft)})"
        yield axes.axhline(run.published, color="black", linestyle=":", linewidth=1.2, label=words)


def _ended(sizes: pd.DataFrame) -> Iterator[str]:
    """The runs whose threshold ends no tree, with the paper's mean where it has one."""
    for run in named_rows(sizes):
        if threshold.at_cap(run) == 1:
            paper = "" if run.published is None else f"; the paper's mean is {run.published:g}"
            yield f"{run.setting}, {run.name}: {_ENDED}{paper}."
