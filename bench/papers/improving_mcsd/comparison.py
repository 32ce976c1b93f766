"""Improved MCSD's comparisons of methods by dataset: alpha (Tables 2 to 4) and speedup (Figures 3 and 5)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pandas as pd
from matplotlib.axes import Axes

from bench import published
from bench.artifacts import arms, definitions, frame, notes, style, tables, ties
from bench.artifacts import metrics as shown
from bench.artifacts.arms import Arm
from bench.artifacts.blocks import Block, side_by_side
from bench.artifacts.metric import MAL, SPEEDS, TOKENS_PER_S, or_status
from bench.artifacts.outputs import NoResultsError, Output
from bench.artifacts.run_table import run_table
from bench.artifacts.runs import Run, run_ids
from bench.artifacts.table import table
from bench.artifacts.tables import Table, named_rows
from bench.artifacts.wording import scale, setting
from bench.papers.improving_mcsd import decisions
from bench.papers.improving_mcsd import methods as mcsd
from bench.published import params_of
from bench.results.rows import AUTOREGRESSIVE
from bench.results.store import Results
from bench.statistics import intervals, metrics, samples
from bench.statistics.intervals import Interval

CONTROL = (
    "TI-MCSD, one first token (ours) is MCSD's own rule below a token drawn from the target's distribution: lossless, "
    "and alpha has the distribution of MCSD's with the same k-configuration, 4x3x1x1."
)


@dataclass(frozen=True, slots=True)
class Layout:
    """One of the tables or figures."""

    title: str
    methods: tuple[Arm, ...]
    temperatures: tuple[float, ...]
    notes: tuple[str, ...]

    @property
    def ours(self) -> Arm:
        """The paper's own method."""
        return next(one for one in self.methods if one.paper and one.header.endswith(mcsd.LOSSY))


TABLES: Mapping[str, Layout] = {
    "table2": Layout(
        "Improved MCSD Table 2: acceptance rate alpha of static trees",
        mcsd.STATIC,
        (0.7,),
        (mcsd.BUDGETS, CONTROL, mcsd.LOSSY_NOTE),
    ),
    "table3": Layout(
        "Improved MCSD Table 3: acceptance rate alpha beside dynamic trees",
        mcsd.DYNAMIC,
        (1.0,),
        (mcsd.DYNAMIC_BUDGETS, *mcsd.OF_DYNAMIC),
    ),
    "table4": Layout(
        "Improved MCSD Table 4: acceptance rate alpha of dynamic trees", mcsd.TREES, (0.0, 1.0), mcsd.OF_DYNAMIC
    ),
}
FIGURES: Mapping[str, Layout] = {
    "fig3": Layout(
        "Improved MCSD Figure 3: speedup of static trees", mcsd.STATIC, (0.7,), (mcsd.BUDGETS, mcsd.LOSSY_NOTE)
    ),
    "fig5": Layout(
        "Improved MCSD Figure 5: speedup beside dynamic trees",
        mcsd.DYNAMIC,
        (1.0,),
        (mcsd.DYNAMIC_BUDGETS, *mcsd.OF_DYNAMIC),
    ),
}


# The tables

NAMES = {"alpha": "acceptance_rate"}
"""The paper's metric by the key of ours."""
SETTING = ["dataset", "draft", "temperature", "target"]
"""What tells the settings of a table, the first before others in its order."""
ROWS = {"target_words": "Target", "draft_words": "Draft", "dataset": "Dataset", "temperature": "temperature"}
ROWS |= {"label": "Method", "configuration": "Configuration"}
ALPHA_DRAFTED = shown.Metric("alpha_drafted", "alpha drafted", definitions.ALPHA_DRAFTED, mcsd.alpha_drafted)
OF_NODES = (
    shown.Metric(
        "accepted_per_depth",
        "accepted / depth",
        definitions.ACCEPTED_DEPTH,
        lambda run: metrics.acceptance_rate_depth(run.steps),
        3,
    ),
    shown.Metric(
        "accepted_per_node",
        "accepted / node",
        definitions.ACCEPTED_NODE,
        lambda run: metrics.acceptance_rate_node(run.steps),
        3,
    ),
    shown.Metric(
        "draft_nodes",
        "draft nodes",
        definitions.DRAFT_NODES,
        lambda run: run.mean_size - mcsd.first_tokens(run),
        1,
    ),
    shown.Metric(
        "verified", "verified", definitions.VERIFIED_ROWS, lambda run: run.mean_size + (not mcsd.virtual(run)), 1
    ),
)
COSTS = (replace(shown.MAL), shown.FORWARDS, shown.SPEEDUP, shown.LOSSLESS)
"""MAL is a copy, which is ranked among trees of whatever size."""
METRICS = (mcsd.LONG_ALPHA, ALPHA_DRAFTED, *OF_NODES, *COSTS)
ASIDE = ("temperature", "Configuration", *(one.header for one in METRICS[1:]))


def acceptance_table(name: str, results: Results) -> list[Output]:
    """A row per method and setting, and for what the paper alone has."""
    layout, paper = TABLES[name], published.find(mcsd.PAPER, name)
    loaded = mcsd.load(results, layout.methods, layout.temperatures, paper)
    runs = in_order(loaded, paper)
    long = arms.judged(runs, paper, layout.methods, ("dataset", "temperature"), METRICS, NAMES)
    long = long[(long["run_id"] != "") | long["theirs"].map(bool)]
    long = frame.put(long, configuration=map(mcsd.configuration, long["arm"]))
    said = [*notes.of_blocks(loaded), *layout.notes, *decisions.about(results, named_rows(loaded))]
    said += mcsd.unshown(results, long["run_id"])
    title = notes.titled(layout.title, loaded, but=("dataset", *["temperature"] * (len(layout.temperatures) > 1)))
    aside = ASIDE[len(layout.temperatures) > 1 :]
    return [table(name, title, long, ROWS, METRICS, aside=aside, notes=said)]


def in_order(runs: pd.DataFrame, paper: pd.DataFrame) -> pd.DataFrame:
    """The runs in the paper's order, and for each of its settings without a block a row without a run."""
    settings = [*dict.fromkeys(paper[SETTING].itertuples(index=False, name=None))]
    places = {key: at for at, key in enumerate(settings)}
    lost = [key for key in settings if key not in {*runs[SETTING].itertuples(index=False, name=None)}]
    empty = pd.DataFrame([frame.unrun(runs.iloc[0])] * len(lost), columns=runs.columns, dtype=object)
    empty = empty.assign(block=[-1 - at for at in range(len(lost))], method=AUTOREGRESSIVE, variant="", stand_in=False)
    empty[SETTING] = lost
    empty[["pair", "incomplete"]] = "", False
    both = pd.concat([runs.astype(object), empty], ignore_index=True)
    place = [places.get(key, len(settings)) for key in both[SETTING].itertuples(index=False, name=None)]
    return both.assign(place=place).sort_values("place", kind="stable", ignore_index=True)


# The figures

DATASETS = {"mt_bench": "MT-Bench", "triviaqa": "TriviaQA", "alpaca": "Alpaca"}
"""The paper's, in its order."""
ALL, MOST, _CLAIMED = "mean of datasets", "most of datasets", "published"
_GAIN = (
    "the mean of the method's speedups on the datasets that both ran / that of the other's; in brackets the 95% "
    f"interval, {intervals.METHOD} over the conversations that both decoded"
)
_MOST = "the largest of the datasets' gains"
_OWN = "Every run has its own autoregressive arm, so that slow changes of the machine cancel in part."
_CLAIM = (
    "Published: the abstract's 27.5%, the most by which the method is faster than MCSD across the three datasets, with "
    "Llama-2-7B and the draft of 68M; it stands beside the most of ours. The files that the paper released have about "
    "as much for the mean of datasets."
)
_WIDTH = 0.84  # of the bars of one dataset together
Panel = Mapping[str, Block]
"""A pair in one place, seed and length: its blocks by dataset."""


def speedup_bars(name: str, results: Results) -> list[Output]:
    """The figure, its numbers, and how much faster the paper's method is than the others."""
    layout, printed = FIGURES[name], published.find(mcsd.PAPER, "table4")  # it has the figure's pairs
    found = mcsd.blocks_of(results, layout.methods, layout.temperatures, printed)
    if not any(block.ran for block in found):
        raise NoResultsError(f"no run of {', '.join(one.header for one in layout.methods)} ended well")
    panels = side_by_side(found, lambda block: block.pair, lambda block: str(block.first["dataset"]))
    ran = dict.fromkeys(name for panel in panels for name in panel)
    datasets = [name for name in DATASETS if name in ran] + [name for name in ran if name not in DATASETS]
    rows = [
        (
            {"Pair": _name(panel), "Dataset": dataset, "Method": arm.header, "Configuration": mcsd.configuration(arm)},
            run,
        )
        for panel in panels
        for dataset in datasets
        for arm in layout.methods
        if (run := _run(panel, dataset, arm))
    ]
    words, ids = setting(found, but=("dataset",)), run_ids(run for _, run in rows)
    speeds = run_table(
        name,
        f"{layout.title} ({words})",
        rows,
        (or_status(mcsd.SPEEDUP), *SPEEDS, mcsd.ALPHA, MAL),
        ranked=(mcsd.SPEEDUP, TOKENS_PER_S, mcsd.ALPHA, MAL),
        said=(
            *(*mcsd.about_pairs(printed, found), *_text(name, layout), *layout.notes),
            *decisions.about(results, (run for _, run in rows)),
            *mcsd.not_shown(results, ids),
        ),
    )
    drawn = [(panel, layout, datasets) for panel in panels if any(block.ran for block in panel.values())]
    figure = style.drawn(name, layout.title, words, _draw, drawn, ids)
    top = max(axis.get_ylim()[1] for axis in figure.canvas.axes)
    for axis in figure.canvas.axes:
        axis.set_ylim(0, top)
    return [figure, speeds, _gains(name, layout, words, panels, datasets)]


def _run(panel: Panel, dataset: str, method: Arm) -> Run | None:
    """However it ended; None if there is none."""
    return mcsd.chosen(method, panel[dataset]) if dataset in panel else None


def _ok(panel: Panel, dataset: str, method: Arm) -> Run | None:
    """A run that ended well."""
    run = _run(panel, dataset, method)
    return run if run and run.ok else None


def _name(panel: Panel) -> str:
    """The pair, and what tells the panel from others of this pair."""
    every = list(panel.values())
    marks = (mark for block in every for mark in block.mark.split(", "))
    return ", ".join([every[0].pair, *dict.fromkeys(m for m in marks if m and not m.startswith("dataset "))])


def _text(name: str, layout: Layout) -> Iterator[str]:
    """What the paper's text says of the figure, whose bars have no numbers."""
    yield "The paper: one RTX 4090, targets in bfloat16, drafts in double precision. Its bars have no numbers."
    for fact in tables.named_rows(published.find(mcsd.PAPER, "fig_text", method=layout.ours.paper, metric="speedup")):
        if params_of(fact.params)["figure"] == name.removeprefix("fig"):
            yield (
                f"Its text: at most {fact.value:.2f}x over autoregressive decoding on {fact.dataset} ({fact.draft}; "
                "the target is not stated)."
            )


def _draw(axes: Axes, panel: Panel, layout: Layout, datasets: Sequence[str]) -> None:
    """A group of bars per dataset; a method has its colour in every panel; what is lossy is hatched."""
    shown = [one for one in layout.methods if any(_ok(panel, dataset, one) for dataset in datasets)]
    others, rest = [one for one in layout.methods if one is not layout.ours], (0, 1, 2, 4, 5, 6)
    for index, method in enumerate(shown):
        place = others.index(method) if method in others else 0
        found = {
            at: run.speedup
            for at, dataset in enumerate(datasets)
            if (run := _ok(panel, dataset, method)) and run.speedup
        }
        own = 3 if method is layout.ours else rest[place % len(rest)]  # the paper's has one colour in both figures
        look = {"color": style.look(own)["color"], "hatch": "///" if method.header.endswith(mcsd.LOSSY) else ""}
        look |= {"label": method.header, "edgecolor": "white", "linewidth": 0}
        x = style.bars(axes, found, found.values(), index, len(shown), width=_WIDTH, **look)
        for foot, speedup in zip(x, found.values(), strict=True):
            _number(axes, foot, speedup.value)
    axes.axhline(1, color="black", linestyle="--", linewidth=1, label="autoregressive decoding")
    axes.set(title=_name(panel), ylabel="speedup (95% interval)", xlim=(-0.5, len(datasets) - 0.5))
    axes.set_xticks(range(len(datasets)), [DATASETS.get(name, name) for name in datasets])
    axes.grid(axis="x", visible=False)
    style.legend_below(axes)


def _number(axes: Axes, x: float, value: float) -> None:
    """At the foot of a bar."""
    plate = {"facecolor": "white", "edgecolor": "none", "alpha": 0.9, "pad": 0.8}
    words, foot = f"{value:.2f}", (x, 0)
    axes.annotate(words, foot, (0, 4), textcoords="offset points", ha="center", fontsize=6.5, bbox=plate)


def _gains(name: str, layout: Layout, words: str, panels: Sequence[Panel], datasets: Sequence[str]) -> Table:
    """How many times as fast the paper's method is, by dataset and by the mean of all; a row per other method."""
    rows, runs = [], []
    for panel in panels:
        noisy = {one: mcsd.unranked(_run(panel, one, arm) for arm in layout.methods) for one in datasets}
        for other in layout.methods:
            each = {one: (_ok(panel, one, layout.ours), _ok(panel, one, other)) for one in datasets}
            both = {one: (ours, theirs) for one, (ours, theirs) in each.items() if ours and theirs}
            if both and other is not layout.ours:
                row = {"Pair": _name(panel), "Method": layout.ours.header}
                row |= {"over": f"{other.header} {mcsd.configuration(other)}"}
                row |= dict.fromkeys(datasets, tables.ABSENT)
                row |= {one: _written([pair], noisy[one]) for one, pair in both.items()}
                row |= {ALL: _written(list(both.values()), any(noisy[one] for one in both))}
                row |= {MOST: row[max(both, key=lambda one: _rank(_gain([both[one]])))]}
                rows.append(row | {_CLAIMED: tables.number(_claim(layout.ours, other, panel), 3)})
                runs.append(" ".join(run.run_id for pair in both.values() for run in pair))
    claimed = any(row[_CLAIMED] != tables.ABSENT for row in rows)
    columns = ["Pair", "Method", "over", *datasets, ALL, *[MOST, _CLAIMED] * claimed]
    scales = (scale(block) for panel in panels for block in panel.values())
    title = f"{layout.title}, gain over other methods ({words})"
    frame = tables.frame(rows, columns)
    notes = (*scales, _OWN, *[_CLAIM] * claimed, *ties.note(frame))
    return Table(f"{name}_gains", title, frame, notes, {ALL: _GAIN, MOST: _MOST}, tuple(runs))


def _written(pairs: Sequence[tuple[Run, Run]], noisy: bool) -> str:
    """The gain, marked where the times of a block are too noisy to rank anything."""
    return tables.ratio(_gain(pairs)) + ties.UNRANKED * noisy


def _rank(gain: Interval) -> float:
    return -math.inf if math.isnan(gain.value) else gain.value


def _gain(pairs: Sequence[tuple[Run, Run]]) -> Interval:
    """The mean speedup of the first runs over that of the others, over the conversations that both decoded."""
    sides = ([run.sample("speedup") for run in side] for side in zip(*pairs, strict=True))
    first, other = (samples.mean_over(*filter(None, side)) for side in sides)
    return samples.paired_ratio(first, other)


def _claim(ours: Arm, other: Arm, panel: Panel) -> float | None:
    """What the abstract says of two of the paper's own methods and these models, as a ratio."""
    target, draft = next(iter(panel.values())).published_as or ("", "")
    rows = published.find(
        mcsd.PAPER, "claim_text", metric="speedup_gain", method=ours.paper, target=target, draft=draft
    )
    for text, percent in zip(rows["params"], rows["value"], strict=True):
        if other.paper and params_of(text).get("baseline") == other.paper:
            return 1 + float(percent) / 100
    return None
