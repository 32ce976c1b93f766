"""DySpec, Figure 5: the size of the tree and the tokens it gives, step by step through one conversation."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from bench import published
from bench.artifacts import definitions, style, tables
from bench.artifacts.blocks import Block, measured_blocks
from bench.artifacts.outputs import NoResultsError, Output
from bench.artifacts.runs import Run
from bench.artifacts.speedups.arms import params_of
from bench.artifacts.tables import Table
from bench.artifacts.wording import models, scale, setting
from bench.results.store import Results
from bench.statistics import intervals

TITLE = "DySpec Figure 5: tree size and accepted tokens of every decoding step"
COLUMNS = ("Pair", "Drafter", "threshold", "cap", "steps", "n mean", "n published", "n smallest", "n largest", "at cap")
LEGEND = {
    "n mean": f"{definitions.SIZE}, over all conversations; in brackets the 95% interval (bootstrap over them)",
    "n published": "the paper's text for this threshold and cap; whether its size counts the root is not stated",
    "at cap": "share of the steps whose tree has as many nodes as it may: further layers are left out there",
    "depth mean": "of the deepest node, on average over steps",
    "MAL": definitions.MAL,
    "correlation": "Pearson's, of n and A over steps",
    "A": "new tokens of the step, the one that the target adds counted",
    "accepted": "drafted tokens among them",
}


@style.styled
def tree_sizes(name: str, results: Results) -> list[Output]:
    """One panel per run, of its first conversation; a table of all its trees, and one of the steps that are drawn."""
    found = [block.standing_in(_facts()) for block in measured_blocks(results)]
    runs = [(block, run, shown(block, run)) for block in found for run in block.ok if run.method != "autoregressive"]
    if not runs:
        raise NoResultsError("no run but autoregressive ones")
    words = setting(found)
    canvas, axes = style.panels(TITLE, words, len(runs), columns=1, panel=(8.4, 3.7))
    for axis, (block, run, steps) in zip(axes, runs, strict=True):
        _panel(axis, block, run, steps)
    ids = tuple(run.run_id for _, run, _ in runs)
    title, columns = f"{TITLE} ({words})", (*COLUMNS, "depth mean", "MAL", "correlation")
    notes = tuple(map(scale, found))
    summary = Table(name, title, tables.frame([_row(*of[:2]) for of in runs], columns), notes, LEGEND, ids)
    lines = [(line, run.run_id) for block, run, steps in runs for line in _steps(block, run, steps)]
    frame = tables.frame([line for line, _ in lines], ("Pair", "Drafter", "Conversation", "step", "n", "A", "accepted"))
    listed = Table(
        f"{name}_steps", f"{title}, step by step", frame, notes, LEGEND, tuple(run_id for _, run_id in lines)
    )
    return [style.Figure(name, title, canvas, ids), summary, listed]


def shown(block: Block, run: Run) -> pd.DataFrame:
    """The steps of a run's first turn of its first conversation."""
    steps = run.steps
    first = steps.iloc[0]
    same = (steps["prompt_id"] == first["prompt_id"]) & (steps["turn"] == first["turn"])
    return steps[same].sort_values("step")


def _panel(axes: Axes, block: Block, run: Run, steps: pd.DataFrame) -> None:
    """Bars of A on the right axis, behind the line of n on the left."""
    right, blue, orange = axes.twinx(), style.COLOURS[0], style.COLOURS[4]
    right.grid(visible=False)
    right.spines["right"].set_visible(True)
    axes.set_zorder(right.get_zorder() + 1)
    axes.patch.set_visible(False)
    bars = right.bar(steps["step"], steps["acceptance_length"], color=orange, alpha=0.55, label="accepted tokens A")
    (line,) = axes.plot(steps["step"], steps["num_drafted"], color=blue, marker="o", markersize=3, label="tree size n")
    handles = [line, bars]
    mean = intervals.ratio_of_sums(run.steps, "num_drafted").value
    label = f"mean n of all conversations: {mean:.1f}"
    handles.append(axes.axhline(mean, color=blue, linestyle="--", linewidth=1, label=label))
    if (size := _published(block, run)) is not None:
        label = f"the paper's mean: {size:g} ({models(*(block.published_as or ('', '')))})"
        handles.append(axes.axhline(size, color="black", linestyle=":", linewidth=1.2, label=label))
    axes.set(title=f"{block.name}, {run.drafter}, conversation {steps['prompt_id'].iloc[0]}", xlabel="step")
    axes.set_ylabel("tree size n (drafted nodes)", color=blue)
    right.set_ylabel("accepted tokens A", color=orange)
    axes.set(xlim=(-0.7, steps["step"].max() + 0.7), ylim=(0, 1.05 * axes.get_ylim()[1]))
    axes.grid(visible=False)
    for axis in (axes.xaxis, right.yaxis):
        axis.set_major_locator(MaxNLocator(integer=True))
    right.set_ylim(0, 2 * steps["acceptance_length"].max())  # below the line
    style.legend_below(axes, handles=handles)


def _row(block: Block, run: Run) -> dict[str, str]:
    steps, params = run.steps, run.params
    sizes, cap, threshold = steps["num_drafted"], params.get("n"), params.get("threshold")
    alone = min(sizes.nunique(), steps["acceptance_length"].nunique()) < 2
    return {
        "Pair": block.name,
        "Drafter": run.drafter,
        "threshold": tables.ABSENT if threshold is None else f"{threshold:g}",
        "cap": str(cap or tables.ABSENT),
        "steps": str(len(steps)),
        "n mean": tables.interval(intervals.ratio_of_sums(steps, "num_drafted")),
        "n published": tables.number(_published(block, run)),
        "n smallest": str(sizes.min()),
        "n largest": str(sizes.max()),
        "at cap": tables.percent((sizes >= cap).mean() if cap else None),
        "depth mean": tables.number(steps["depth"].mean(), 1),
        "MAL": tables.interval(run.mal),
        "correlation": tables.number(None if alone else float(sizes.corr(steps["acceptance_length"]))),
    }


def _steps(block: Block, run: Run, steps: pd.DataFrame) -> Iterator[dict[str, str]]:
    for row in tables.named_rows(steps):
        yield {
            "Pair": block.name,
            "Drafter": run.drafter,
            "Conversation": str(row.prompt_id),
            "step": str(row.step),
            "n": str(row.num_drafted),
            "A": str(row.acceptance_length),
            "accepted": str(row.num_accepted),
        }


def _published(block: Block, run: Run) -> float | None:
    """The paper's mean size for these models (or a stand-in's), prompts, temperature, threshold and cap."""
    params, first = run.params, block.first
    for fact in tables.named_rows(_facts()):
        given = params_of(fact.params)
        asked = (float(given["threshold"]), int(given["size_max"]), fact.dataset, fact.temperature)
        ours = (params.get("threshold"), params.get("n"), first["dataset"], first["temperature"])
        if (fact.target, fact.draft) == block.published_as and asked == ours:
            return float(fact.value)
    return None


def _facts() -> pd.DataFrame:
    """What the paper's text says of the size of its trees."""
    return published.find("dyspec", "fig_text", metric="tree_size")
