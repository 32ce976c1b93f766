"""DySpec's figures of single runs: 2 (probabilities), 4 (time of a step), 5 (tree and tokens, step by step)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import PowerNorm
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from bench import published
from bench.artifacts import definitions, metric, style, tables
from bench.artifacts.blocks import Block, measured_blocks
from bench.artifacts.metric import Metric
from bench.artifacts.outputs import Output
from bench.artifacts.run_figure import RunFigure, drafting, time_by_phase
from bench.artifacts.runs import Run, run_ids
from bench.artifacts.tables import ABSENT, Table
from bench.artifacts.wording import models
from bench.papers.dyspec import threshold
from bench.published import params_of
from bench.results.store import Results
from bench.statistics import intervals
from bench.statistics.intervals import Interval
from bench.statistics.metrics import PHASES

# Figure 2: how draft probability goes with acceptance and with target probability, as two heat maps. Of every accepted
# node (the root is one) the first child is looked at: it is drawn from q itself and tested with probability
# min(1, p/q), while later siblings face what is left of p.

RULES = ("without_replacement", "multi_candidate", "multi_candidate_iid", "spec_infer", "eagle1", "chain")
"""The rules that test a first child with probability min(1, p/q)."""
BINS = 20


def first_children(run: Run) -> pd.DataFrame:
    """The tested first children of a run, with their bin of q and their acceptance probability.

    None where they were not drawn from q, or not tested with min(1, p/q). At temperature 0 a node is accepted or it is
    not, and the rows hold the untempered target's p.
    """
    nodes = run.rows("nodes")
    if nodes.empty or "rank" not in nodes or run["draws"] == "topk" or run["temperature"] == 0:
        return pd.DataFrame()
    if run["verifier"] not in RULES:
        return pd.DataFrame()
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


def _name(run: Run) -> str:
    return f"{run.block.name}, {run.name}"


def _acceptance(axes: Axes, run: Run) -> None:
    means = _heat(axes, run, "chance", "acceptance probability min(1, p/q)")
    axes.plot(_centres(means), means["accepted"], "x", color="black", label="share accepted, measured")
    style.legend_below(axes)


def _target(axes: Axes, run: Run) -> None:
    _heat(axes, run, "target_prob", "target probability p")
    axes.plot([0, 1], [0, 1], color=style.GREY, linestyle="--", linewidth=1, label="p = q")
    style.legend_below(axes)


def _heat(axes: Axes, run: Run, column: str, label: str) -> pd.DataFrame:
    """The heat map with the means of its columns, which are returned with what was accepted."""
    nodes = run.once(first_children)
    edges, norm = np.linspace(0, 1, BINS + 1), PowerNorm(0.5, vmin=0, vmax=1)  # rare bins are seen beside full ones
    found = np.ma.masked_invalid(shares(nodes, column))
    mesh = axes.pcolormesh(edges, edges, found, cmap="Blues", norm=norm, rasterized=True)
    counts = nodes["bin"].value_counts().to_frame()
    for centre, count in zip(_centres(counts), counts["count"], strict=True):
        spot = (centre, 1.02)
        axes.annotate(str(count), spot, fontsize=6, color=style.GREY, ha="center", rotation=90, annotation_clip=False)
    axes.grid(visible=False)
    axes.set_title(_name(run), pad=24)  # above the counts
    axes.set(xlim=(0, 1), ylim=(0, 1), aspect="equal", xlabel="draft probability q", ylabel=label)
    axes.figure.colorbar(mesh, ax=axes, label="share of the column", shrink=0.8)
    means = nodes.groupby("bin")[[column, "accepted"]].mean()
    axes.plot(_centres(means), means[column], color=style.COLOURS[1], label="mean")
    return means


def _centres(by_bin: pd.DataFrame) -> list[float]:
    """The middle of each bin of the rows."""
    return [(int(str(place)) + 0.5) / BINS for place in by_bin.index]


def _bins(run: Run) -> Iterator[dict[str, str]]:
    """A row for every bin of q."""
    nodes = run.once(first_children)
    for place in range(BINS):
        inside = nodes[nodes["bin"] == place]
        accepted = intervals.ratio_of_sums(inside, "accepted", scale="logit")
        yield {
            "q": f"{place / BINS:.2f} to {(place + 1) / BINS:.2f}",
            "nodes": str(len(inside)),
            "acceptance probability": tables.number(inside["chance"].mean()),
            "p": tables.number(inside["target_prob"].mean()),
            "accepted": tables.interval(None if math.isnan(accepted.value) else accepted),
        }


def _correlations(found: Sequence[Block]) -> Iterator[str]:
    runs = [(run, nodes) for block in found for run in block.ok if len(nodes := run.once(first_children))]
    for run, nodes in runs:
        with_chance, with_p = (nodes["edge_prob"].corr(nodes[column]) for column in ("chance", "target_prob"))
        yield (
            f"{_name(run)}: {len(nodes)} nodes; Pearson's correlation of q with the acceptance probability is "
            f"{tables.number(with_chance)}, with p {tables.number(with_p)}. "
            "The paper calls the latter strong and gives no number."
        )


FIG2 = RunFigure(
    "DySpec Figure 2: acceptance and target probability against draft probability, first children",
    [_acceptance, _target],
    _bins,
    {
        "q": "draft probability of a node, at the draft's temperature",
        "nodes": "first children whose parent was accepted (the root is)",
        "acceptance probability": "min(1, p/q), on average",
        "p": "target probability of the node, at the run's temperature, on average",
        "accepted": "share of these nodes that were accepted, which the acceptance probability foretells; in brackets "
        f"the 95% interval ({intervals.METHOD} over conversations)",
    },
    lambda run: bool(len(run.once(first_children))),
    "no run that samples, with children drawn from the draft and a rule that tests the first of them with "
    f"min(1, p/q) ({', '.join(RULES)}), recorded its nodes and their ranks; "
    "record_nodes=true does, and force=true runs finished cells again",
    _correlations,
    aside="; columns sum to 1; nodes above",
    panel=(4.6, 4.4),
    whole=False,
)


# Figure 4
_BUILDING = "tree construction"
_FORWARDS = ("draft", "score")
_PARTS = {
    "tree_construction_time_share": (_BUILDING, ("choice",)),
    "other_components_time_share": ("all but the forwards", tuple(set(PHASES) - set(_FORWARDS))),
}
"""What the paper bounds, by the metric of its rows."""
_STEP_LEGEND = {
    f"{_BUILDING} ms": "choosing where the tree grows, as the paper counts it: sampling, mask and positions are apart; "
    "0 where a run did not record its parts (drafter.record_parts)",
    "sampling ms": "drawing tokens from the draft's distributions",
    "mask, positions ms": "of the target's forward",
    "rest of growing ms": "the draft's masks and inputs; all of growing where its parts were not recorded",
    "judging, committing ms": "the rule of acceptance with its draws, and keeping the accepted path in the caches",
    "bounded share": "share of the time of all steps that the paper states a bound for; in brackets the 95% interval "
    f"({intervals.METHOD} over conversations)",
    "within": "whether the whole interval lies below the paper's bound (yes), above it (no), or on both sides (open)",
}


def _bounds(block: Block) -> list[tuple[str, float]]:
    """The shares in percent that the paper's text bounds for these models, by the metric of its rows."""
    rows = published.find("dyspec", "fig_text", metric=list(_PARTS))
    target, draft = block.standing_in(rows).published_as or ("", "")
    of_models = rows[(rows["target"] == target) & (rows["draft"] == draft)]
    return [(str(fact.metric), float(fact.value)) for fact in tables.named_rows(of_models)]


def _bounded(run: Run) -> dict[str, str]:
    """The share that the paper bounds for these models, and whether ours is within; of other models nothing."""
    names = ("bounded part", "bounded share", "published", "within")
    for name, bound in _bounds(run.block):
        part, phases = _PARTS[name]
        if part == _BUILDING and not parts_known(run):
            continue
        share = _share(run.steps, phases)
        low, high = (ABSENT if end != end else f"{end:.1%}" for end in (share.low, share.high))
        cells = (
            part,
            tables.with_ends(share, f"{share.value:.1%}", low, high),
            f"< {bound:g}%",
            _within(share, bound / 100),
        )
        return dict(zip(names, cells, strict=True))
    return dict.fromkeys(names, ABSENT)


def parts_known(run: Run) -> bool:
    """Whether the parts of growing a tree were recorded."""
    return "choice_s" in run.steps and bool(run.steps["choice_s"].notna().any())


def _share(steps: pd.DataFrame, phases: Sequence[str]) -> Interval:
    """Of the time of all steps."""
    part, whole = (steps[[f"{phase}_s" for phase in names]].sum(axis=1) for names in (phases, PHASES))
    return intervals.ratio_of_sums(steps.assign(part=part, whole=whole), "part", "whole", scale="logit")


def _within(share: Interval, bound: float) -> str:
    if not share.known:
        return "open"
    return "yes" if share.high < bound else "no" if share.low >= bound else "open"


def _beside(run: Run, group: str) -> str:
    """The bound on tree construction, where the paper has one for these models."""
    values = [bound for name, bound in _bounds(run.block) if _PARTS[name][0] == group]
    return f", the paper: < {values[0]:g}%" if values else ""


def _step_notes(found: Sequence[Block]) -> Iterator[str]:
    yield (
        "The paper's text: tree construction (in C++) takes less than 2% with JF68M; with the offloaded Llama-2-70B "
        "all but the two models' forwards together does. It states neither prompts nor temperature of Figure 4."
    )
    for pair in dict.fromkeys(block.pair for block in found if block.stand_in):
        yield (f"{pair} stands in for the paper's models: with forwards this short all else has a larger share.")


FIG4 = time_by_phase(
    "DySpec Figure 4: mean time of a decoding step by component",
    {_BUILDING: ["choice"], "sampling": ["sampling"], "mask, positions": ["layout"], "rest of growing": ["grown"]}
    | {"draft forwards": ["draft"], "target forward": ["score"], "judging, committing": ["judge", "commit"]},
    (4, 1, 6, 3, 5, 0, 2),
    _STEP_LEGEND,
    _step_notes,
    more=_bounded,
    beside=_beside,
)


# Figure 5
def _sizes_said() -> pd.DataFrame:
    """What the paper's text says of the size of its trees."""
    return published.find("dyspec", "fig_text", metric="tree_size")


def _published(run: Run) -> float | None:
    """The paper's mean size for these models (or a stand-in's), prompts, temperature, threshold and cap."""
    for fact in tables.named_rows(_sizes_said()):
        given = params_of(fact.params)
        asked = (float(given["threshold"]), int(given["size_max"]), fact.dataset, fact.temperature)
        ours = (run.params.get("threshold"), run.params.get("n"), run["dataset"], run["temperature"])
        if (fact.target, fact.draft) == run.block.published_as and asked == ours:
            return float(fact.value)
    return None


def _mean_size(run: Run) -> Interval:
    return intervals.ratio_of_sums(run.steps, "num_drafted")


def _correlation(run: Run) -> float | None:
    sizes, lengths = run.steps["num_drafted"], run.steps["acceptance_length"]
    return None if min(sizes.nunique(), lengths.nunique()) < 2 else float(sizes.corr(lengths))


COLUMNS = (
    Metric("threshold", lambda run: f"{value:g}" if (value := run.params.get("threshold")) is not None else None),
    Metric("cap", lambda run: str(run.params.get("n") or ABSENT)),
    Metric("steps", lambda run: len(run.steps), digits=0),
    Metric(
        "n mean",
        _mean_size,
        f"{definitions.SIZE}, over all conversations; in brackets the 95% interval ({intervals.METHOD} over them)",
    ),
    Metric(
        "n published",
        _published,
        "the paper's text for this threshold and cap; whether its size counts the root is not stated",
    ),
    Metric("n smallest", lambda run: run.steps["num_drafted"].min(), digits=0),
    Metric("n largest", lambda run: run.steps["num_drafted"].max(), digits=0),
    threshold.AT_CAP,
    threshold.DEPTH,
    metric.MAL,
    Metric("correlation", _correlation, "Pearson's, of n and A over steps"),
)
STEPS = {
    "Conversation": "prompt_id",
    "step": "step",
    "n": "num_drafted",
    "A": "acceptance_length",
    "accepted": "num_accepted",
}
"""The columns of the table of steps, and of their rows."""
_STEPS_LEGEND = {
    "A": "new tokens of the step, the one that the target adds counted",
    "accepted": "drafted tokens among them",
}


def tree_sizes(name: str, results: Results) -> list[Output]:
    """One panel per run, of its first conversation; a table of all its trees, and one of the steps that are drawn."""
    figure, summary = _SIZES(name, results)
    assert isinstance(summary, Table)
    runs = [run for block in measured_blocks(results) for run in block.ok if drafting(run)]
    steps = [(run, row) for run in runs for _, row in _shown(run).iterrows()]
    lines = [
        {"Pair": run.block.name, "Drafter": run.name} | {header: str(row[column]) for header, column in STEPS.items()}
        for run, row in steps
    ]
    listed = replace(
        summary,
        name=f"{name}_steps",
        title=f"{summary.title}, step by step",
        frame=tables.frame(lines, lines[0]),
        legend=_STEPS_LEGEND,
        runs=run_ids(run for run, _ in steps),
    )
    return [figure, summary, listed]


def _shown(run: Run) -> pd.DataFrame:
    """The steps of a run's first turn of its first conversation."""
    first = run.steps.iloc[0]
    same = (run.steps["prompt_id"] == first["prompt_id"]) & (run.steps["turn"] == first["turn"])
    return run.steps[same].sort_values("step")


def _panel(axes: Axes, run: Run) -> None:
    """Bars of A on the right axis, behind the line of n on the left."""
    steps, right, blue, orange = _shown(run), axes.twinx(), style.COLOURS[0], style.COLOURS[4]
    right.grid(visible=False)
    right.spines["right"].set_visible(True)
    axes.set_zorder(right.get_zorder() + 1)
    axes.patch.set_visible(False)
    bars = right.bar(steps["step"], steps["acceptance_length"], color=orange, alpha=0.55, label="new tokens A")
    (line,) = axes.plot(steps["step"], steps["num_drafted"], color=blue, marker="o", markersize=3, label="tree size n")
    handles = [line, bars]
    mean = _mean_size(run).value
    label = f"mean n of all conversations: {mean:.1f}{', the cap in every step' * bool(threshold.always([run]))}"
    handles.append(axes.axhline(mean, color=blue, linestyle="--", linewidth=1, label=label))
    if (size := _published(run)) is not None:
        label = f"the paper's mean: {size:g} ({models(*(run.block.published_as or ('', '')))})"
        handles.append(axes.axhline(size, color="black", linestyle=":", linewidth=1.2, label=label))
    axes.set(title=f"{run.block.name}, {run.name}, conversation {steps['prompt_id'].iloc[0]}", xlabel="step")
    axes.set_ylabel("tree size n (drafted nodes)", color=blue)
    right.set_ylabel("new tokens A (bonus counted)", color=orange)
    axes.set(xlim=(-0.7, steps["step"].max() + 0.7), ylim=(0, 1.05 * axes.get_ylim()[1]))
    axes.grid(visible=False)
    for axis in (axes.xaxis, right.yaxis):
        axis.set_major_locator(MaxNLocator(integer=True))
    right.set_ylim(0, 2 * steps["acceptance_length"].max())  # below the line
    style.legend_below(axes, handles=handles)


def _ended(found: Sequence[Block]) -> Iterator[str]:
    """The runs whose threshold ends no tree, with the paper's mean where it has one."""
    for run in threshold.always([run for block in found for run in block.ok if drafting(run)]):
        paper = f"; the paper's mean is {size:g}" if (size := _published(run)) is not None else ""
        yield f"{_name(run)}: in every step the tree {threshold.ENDED}{paper}."


_SIZES = RunFigure(
    "DySpec Figure 5: tree size and accepted tokens of every decoding step",
    [_panel],
    lambda run: [metric.cells(COLUMNS, run)],
    metric.legend(COLUMNS),
    remarks=_ended,
    panel=(8.4, 3.7),
    across=1,
    as_block=lambda block: block.standing_in(_sizes_said()),
)
