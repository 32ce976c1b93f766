"""DySpec, Figures 4 and 5: what a decoding step's time goes into, and its tree and tokens, step by step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from bench import published
from bench.artifacts import definitions, metric, style, tables
from bench.artifacts.blocks import Block, measured_blocks
from bench.artifacts.metric import Metric
from bench.artifacts.outputs import NoResultsError, Output
from bench.artifacts.phases import time_by_phase
from bench.artifacts.runs import Run, run_ids
from bench.artifacts.tables import ABSENT, Table
from bench.artifacts.wording import models, scale, setting
from bench.published import params_of
from bench.results.rows import AUTOREGRESSIVE
from bench.results.store import Results
from bench.statistics import intervals
from bench.statistics.intervals import Interval
from bench.statistics.metrics import PHASES

# Figure 4
_BUILDING = "tree construction"
_FORWARDS = ("draft", "score")
_PARTS = {
    "tree_construction_time_share": (_BUILDING, ("tree",)),
    "other_components_time_share": ("all but the forwards", tuple(set(PHASES) - set(_FORWARDS))),
}
"""What the paper bounds, by the metric of its rows."""
_STEP_LEGEND = {
    f"{_BUILDING} ms": "growing the tree without its draft forwards, and the target's mask and positions",
    "judging ms": "the rule of acceptance, its random draws among them",
    "committing ms": "keeping the accepted path in the caches",
    "bounded share": "share of the time of all steps that the paper states a bound for; in brackets the 95% interval "
    "(bootstrap over conversations)",
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
        share = _share(run.steps, phases)
        low, high = (ABSENT if end != end else f"{end:.1%}" for end in (share.low, share.high))
        cells = (part, f"{share.value:.1%} [{low}, {high}]", f"< {bound:g}%", _within(share, bound / 100))
        return dict(zip(names, cells, strict=True))
    return dict.fromkeys(names, ABSENT)


def _share(steps: pd.DataFrame, phases: Sequence[str]) -> Interval:
    """Of the time of all steps."""
    part, whole = (steps[[f"{phase}_s" for phase in names]].sum(axis=1) for names in (phases, PHASES))
    return intervals.ratio_of_sums(steps.assign(part=part, whole=whole), "part", "whole")


def _within(share: Interval, bound: float) -> str:
    if not share.low <= share.high:  # a single conversation has no interval
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
    {_BUILDING: ["tree"], "draft forwards": ["draft"], "target forward": ["score"], "judging": ["judge"]}
    | {"committing": ["commit"]},
    (4, 5, 0, 2, 3),
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


def _at_cap(run: Run) -> str:
    cap = run.params.get("n")
    return tables.percent((run.steps["num_drafted"] >= cap).mean() if cap else None)


def _correlation(run: Run) -> float | None:
    sizes, lengths = run.steps["num_drafted"], run.steps["acceptance_length"]
    return None if min(sizes.nunique(), lengths.nunique()) < 2 else float(sizes.corr(lengths))


SIZES = "DySpec Figure 5: tree size and accepted tokens of every decoding step"
COLUMNS = (
    *(metric.PAIR, metric.DRAFTER),
    Metric("threshold", lambda run: f"{value:g}" if (value := run.params.get("threshold")) is not None else None),
    Metric("cap", lambda run: str(run.params.get("n") or ABSENT)),
    Metric("steps", lambda run: len(run.steps), digits=0),
    Metric(
        "n mean",
        _mean_size,
        f"{definitions.SIZE}, over all conversations; in brackets the 95% interval (bootstrap over them)",
    ),
    Metric(
        "n published",
        _published,
        "the paper's text for this threshold and cap; whether its size counts the root is not stated",
    ),
    Metric("n smallest", lambda run: run.steps["num_drafted"].min(), digits=0),
    Metric("n largest", lambda run: run.steps["num_drafted"].max(), digits=0),
    Metric(
        "at cap",
        _at_cap,
        "share of the steps whose tree has as many nodes as it may: further layers are left out there",
    ),
    Metric("depth mean", lambda run: run.steps["depth"].mean(), "of the deepest node, on average over steps", 1),
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


@style.styled
def tree_sizes(name: str, results: Results) -> list[Output]:
    """One panel per run, of its first conversation; a table of all its trees, and one of the steps that are drawn."""
    found = [block.standing_in(_sizes_said()) for block in measured_blocks(results)]
    runs = [run for block in found for run in block.ok if run.method != AUTOREGRESSIVE]
    if not runs:
        raise NoResultsError("no run but autoregressive ones")
    words = setting(found)
    canvas, axes = style.panels(SIZES, words, len(runs), columns=1, panel=(8.4, 3.7))
    for axis, run in zip(axes, runs, strict=True):
        _panel(axis, run)
    title, ids, notes = f"{SIZES} ({words})", run_ids(runs), tuple(map(scale, found))
    frame = tables.frame([metric.cells(COLUMNS, run) for run in runs], metric.headers(COLUMNS))
    summary = Table(name, title, frame, notes, metric.legend(COLUMNS), ids)
    lines = [
        {"Pair": run.block.name, "Drafter": run.drafter}
        | {header: str(row[column]) for header, column in STEPS.items()}
        for run in runs
        for _, row in _shown(run).iterrows()
    ]
    behind = run_ids(run for run in runs for _ in range(len(_shown(run))))
    listed = Table(
        f"{name}_steps", f"{title}, step by step", tables.frame(lines, lines[0]), notes, _STEPS_LEGEND, behind
    )
    return [style.Figure(name, title, canvas, ids), summary, listed]


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
    bars = right.bar(steps["step"], steps["acceptance_length"], color=orange, alpha=0.55, label="accepted tokens A")
    (line,) = axes.plot(steps["step"], steps["num_drafted"], color=blue, marker="o", markersize=3, label="tree size n")
    handles = [line, bars]
    mean = _mean_size(run).value
    label = f"mean n of all conversations: {mean:.1f}"
    handles.append(axes.axhline(mean, color=blue, linestyle="--", linewidth=1, label=label))
    if (size := _published(run)) is not None:
        label = f"the paper's mean: {size:g} ({models(*(run.block.published_as or ('', '')))})"
        handles.append(axes.axhline(size, color="black", linestyle=":", linewidth=1.2, label=label))
    axes.set(title=f"{run.block.name}, {run.drafter}, conversation {steps['prompt_id'].iloc[0]}", xlabel="step")
    axes.set_ylabel("tree size n (drafted nodes)", color=blue)
    right.set_ylabel("accepted tokens A", color=orange)
    axes.set(xlim=(-0.7, steps["step"].max() + 0.7), ylim=(0, 1.05 * axes.get_ylim()[1]))
    axes.grid(visible=False)
    for axis in (axes.xaxis, right.yaxis):
        axis.set_major_locator(MaxNLocator(integer=True))
    right.set_ylim(0, 2 * steps["acceptance_length"].max())  # below the line
    style.legend_below(axes, handles=handles)
