"""Improved MCSD's comparisons of methods by dataset: alpha (Tables 2 to 4) and speedup (Figures 3 and 5)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd
from matplotlib.axes import Axes

from specdec_trees import published
from specdec_trees.artifacts import arms, definitions, frame, notes, style, ties
from specdec_trees.artifacts import metrics as shown
from specdec_trees.artifacts.arms import Arm
from specdec_trees.artifacts.outputs import NoResultsError, Output
from specdec_trees.artifacts.table import table
from specdec_trees.artifacts.tables import Table, named_rows
from specdec_trees.papers.improving_mcsd import decisions
from specdec_trees.papers.improving_mcsd import methods as mcsd
from specdec_trees.published import params_of
from specdec_trees.results.roles import Role, columns
from specdec_trees.results.rows import AUTOREGRESSIVE, RunRow
from specdec_trees.results.store import Results
from specdec_trees.statistics import intervals, samples
from specdec_trees.statistics.intervals import Interval

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
ROWS = ("target_words", "draft_words", "dataset", "temperature", "label", "configuration")
ALPHA_DRAFTED = shown.Metric("alpha_drafted", "alpha drafted", definitions.ALPHA_DRAFTED, mcsd.alpha_drafted)
OF_NODES = (
    shown.Metric(
        "draft_nodes", "draft nodes", definitions.DRAFT_NODES, lambda run: run.mean_size - mcsd.first_tokens(run), 1
    ),
    shown.Metric(
        "verified_rows", "verified", definitions.VERIFIED_ROWS, lambda run: run.mean_size + (not mcsd.virtual(run)), 1
    ),
)
COSTS = (replace(shown.MAL), shown.FORWARDS, shown.SPEEDUP, shown.LOSSLESS)
"""MAL is a copy, which is ranked among trees of whatever size."""
METRICS = (mcsd.ALPHA, ALPHA_DRAFTED, *OF_NODES, *COSTS)
ASIDE = ("temperature", "configuration", *(one.key for one in METRICS[1:]))


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
    empty[SETTING] = pd.DataFrame(lost, empty.index, SETTING)
    empty[["pair", "incomplete"]] = "", False
    both = pd.concat([runs.astype(object), empty], ignore_index=True)
    place = [places.get(key, len(settings)) for key in both[SETTING].itertuples(index=False, name=None)]
    return both.assign(place=place).sort_values("place", kind="stable", ignore_index=True)


# The figures

DATASETS = {"mt_bench": "MT-Bench", "triviaqa": "TriviaQA", "alpaca": "Alpaca"}
"""The paper's, in its order."""
ALL = shown.Metric(
    "mean_of_datasets",
    "mean of datasets",
    "the mean of the method's speedups on the datasets that both ran / that of the other's; in brackets the 95% "
    f"interval, {intervals.METHOD} over the conversations that both decoded",
    lambda run: None,
    3,
)
MOST = shown.Metric(
    "most_of_datasets", "most of datasets", "the largest of the datasets' gains", lambda run: None, 3, judged=False
)
_OWN = "Every run has its own autoregressive arm, so that slow changes of the machine cancel in part."
_CLAIM = (
    "Published: the abstract's 27.5%, the most by which the method is faster than MCSD across the three datasets, with "
    "Llama-2-7B and the draft of 68M; it stands beside the most of ours. The files that the paper released have about "
    "as much for the mean of datasets."
)
_WIDTH = 0.84  # of the bars of one dataset together
BAR_ROWS = ("panel", "dataset", "label", "configuration")
BARS = (shown.SPEEDUP, *shown.SPEEDS, mcsd.ALPHA, shown.MAL)


def speedup_bars(name: str, results: Results) -> list[Output]:
    """The figure, its numbers, and how much faster the paper's method is than the others."""
    layout, printed = FIGURES[name], published.find(mcsd.PAPER, "table4")  # it has the figure's pairs
    loaded = mcsd.load(results, layout.methods, layout.temperatures, printed)
    if not loaded["ok"].any():
        raise NoResultsError(f"no run of {', '.join(one.header for one in layout.methods)} ended well")
    long = frame.rank(frame.measure(_bars(loaded, layout.methods), BARS))
    datasets, words = [*long["dataset"].unique()], notes.setting(loaded, but=("dataset",))
    drawn = [(rows, layout, datasets) for _, rows in long.groupby("number") if rows["ok"].any()]
    figure = style.drawn(name, layout.title, words, _draw, drawn, long["run_id"].unique())
    top = max(axis.get_ylim()[1] for axis in figure.canvas.axes)
    for axis in figure.canvas.axes:
        axis.set_ylim(0, top)
    said = [*notes.of_blocks(loaded), *notes.not_run(printed, loaded), *_text(name, layout), *layout.notes]
    said += [*decisions.about(results, named_rows(loaded)), *mcsd.unshown(results, long["run_id"])]
    aside = ("configuration", shown.AUTOREGRESSIVE_TOKENS_PER_S.key)
    speeds = table(name, figure.title, long, BAR_ROWS, BARS, aside=aside, notes=said)
    return [figure, speeds, _gains(name, layout, long, words)]


def _bars(runs: pd.DataFrame, methods: Sequence[Arm]) -> pd.DataFrame:
    """The run of each method in each block, in the order of panels, datasets and methods."""
    blocks = [(block, list(named_rows(rows))) for block, rows in runs.groupby("block", sort=False)]
    chosen = [(place, run.Index) for _, own in blocks for place, arm in enumerate(methods) if (run := arm.chosen(own))]
    places = [place for place, _ in chosen]
    known = [*DATASETS, *runs["dataset"].unique()]
    rows = _in_panels(runs).loc[[index for _, index in chosen]].assign(place=places)
    rows = rows.assign(dataset_place=rows["dataset"].map(known.index))
    arms_of = [methods[place] for place in places]
    rows = frame.put(rows, arm=arms_of, label=[one.header for one in arms_of])
    rows = frame.put(rows, configuration=map(mcsd.configuration, arms_of))
    return rows.sort_values(["number", "dataset_place", "place"], kind="stable", ignore_index=True)


def _in_panels(runs: pd.DataFrame) -> pd.DataFrame:
    """The runs with the `number` and the name of their `panel`: datasets of one pair, run alike and in one place.

    What failed may know neither device nor dtype; another run of a dataset has a panel of its own.
    """
    firsts = runs.drop_duplicates("block").set_index("block")
    alike = [firsts[column] for column in ("pair", *columns(RunRow, Role.OPTIONS))]
    where = firsts[["device_name", "dtype"]].where(firsts["ok"].astype(bool))
    where = where.fillna(where.groupby(alike, dropna=False).transform("first")).astype(str)
    alike += [where[column] for column in where]
    again = firsts.groupby([*alike, firsts["dataset"]], dropna=False).cumcount()
    number = firsts.groupby([*alike, again], sort=False, dropna=False).ngroup()
    marks = [[mark for mark in words.split(", ") if not mark.startswith("dataset ")] for words in firsts["variant"]]
    names = {
        one: ", ".join(dict.fromkeys([pair, *filter(None, words)]))
        for one, pair, words in zip(number, firsts["pair"], marks, strict=True)
    }
    numbers = runs["block"].map(number)
    return runs.assign(number=numbers, panel=numbers.map(names))


def _text(name: str, layout: Layout) -> Iterator[str]:
    """What the paper's text says of the figure, whose bars have no numbers."""
    yield "The paper: one RTX 4090, targets in bfloat16, drafts in double precision. Its bars have no numbers."
    for fact in named_rows(published.find(mcsd.PAPER, "fig_text", method=layout.ours.paper, metric="speedup")):
        if params_of(fact.params)["figure"] == name.removeprefix("fig"):
            yield (
                f"Its text: at most {fact.value:.2f}x over autoregressive decoding on {fact.dataset} ({fact.draft}; "
                "the target is not stated)."
            )


def _draw(axes: Axes, rows: pd.DataFrame, layout: Layout, datasets: Sequence[str]) -> None:
    """A group of bars per dataset; a method has its colour in every panel; what is lossy is hatched."""
    ran = rows[rows["ok"].astype(bool) & rows["metric"].isin([shown.SPEEDUP])]
    others, rest = [one for one in layout.methods if one is not layout.ours], (0, 1, 2, 4, 5, 6)
    groups = [(own["arm"].iloc[0], own) for _, own in ran.groupby("place")]
    for index, (method, own) in enumerate(groups):
        own = own[own["interval"].notna()]
        place = others.index(method) if method in others else 0
        colour = 3 if method is layout.ours else rest[place % len(rest)]  # the paper's has one colour in both figures
        look = {"color": style.look(colour)["color"], "hatch": "///" if method.header.endswith(mcsd.LOSSY) else ""}
        look |= {"label": method.header, "edgecolor": "white", "linewidth": 0}
        feet = style.bars(
            axes, map(datasets.index, own["dataset"]), own["interval"], index, len(groups), width=_WIDTH, **look
        )
        for foot, speedup in zip(feet, own["interval"], strict=True):
            _number(axes, foot, speedup.value)
    axes.axhline(1, color="black", linestyle="--", linewidth=1, label="autoregressive decoding")
    axes.set(title=rows["panel"].iloc[0], ylabel="speedup (95% interval)", xlim=(-0.5, len(datasets) - 0.5))
    axes.set_xticks(range(len(datasets)), [DATASETS.get(name, name) for name in datasets])
    axes.grid(axis="x", visible=False)
    style.legend_below(axes)


def _number(axes: Axes, x: float, value: float) -> None:
    """At the foot of a bar."""
    plate = {"facecolor": "white", "edgecolor": "none", "alpha": 0.9, "pad": 0.8}
    words, foot = f"{value:.2f}", (x, 0)
    axes.annotate(words, foot, (0, 4), textcoords="offset points", ha="center", fontsize=6.5, bbox=plate)


def _gains(name: str, layout: Layout, long: pd.DataFrame, words: str) -> Table:
    """How many times as fast the paper's method is, by dataset and by the mean of all; a row per other method."""
    datasets = [shown.Metric(dataset, dataset, "", lambda run: None, 3) for dataset in long["dataset"].unique()]
    noisy = set(long.loc[long["mark"] == ties.UNRANKED, "block"])
    speeds = long[long["metric"].isin([shown.SPEEDUP]) & long["interval"].notna()].sort_values("place", kind="stable")
    ours = speeds["label"] == layout.ours.header
    both = speeds[~ours].merge(speeds[ours], on=["number", "dataset"], suffixes=("", "_ours"))
    rows = pd.DataFrame(_gain_rows(both, datasets, noisy), columns=[*GAIN_ROWS, *_OF_GAIN], dtype=object)
    claimed = bool(rows["published"].notna().any())
    gains = frame.of_values(rows, list(rows["gain"]))
    below = [_OWN, *[_CLAIM] * claimed]
    title = f"{layout.title}, gain over other methods ({words})"
    return table(f"{name}_gains", title, gains, GAIN_ROWS, (*datasets, ALL, *[MOST] * claimed), notes=below)


GAIN_ROWS = ("panel", "label", "over")
_OF_GAIN = ("block", "run_id", "ok", "metric", "gain", "mark", "published")


def _gain_rows(both: pd.DataFrame, datasets: Sequence[shown.Metric], noisy: set[int]) -> Iterator[list[Any]]:
    """A row per panel, other method and column; `both` has that method's speedups beside the paper's method's."""
    for (number, _), pairs in both.groupby(["number", "place"]):
        other, ours = pairs["arm"].iloc[0], pairs["arm_ours"].iloc[0]
        who = [pairs["panel"].iloc[0], ours.header, f"{other.header} {mcsd.configuration(other)}"]
        who += [number, " ".join(f"{one.run_id_ours} {one.run_id}" for one in named_rows(pairs)), True]
        parts = {metric: pairs[pairs["dataset"] == metric.key] for metric in datasets}
        parts = {metric: own for metric, own in parts.items() if len(own)} | {ALL: pairs}
        made = {metric: _gain(own) for metric, own in parts.items()}
        most = max((metric for metric in parts if metric is not ALL), key=lambda metric: _rank(made[metric]))
        made, parts = made | {MOST: made[most]}, parts | {MOST: parts[most]}
        claim = _claim(ours, other, pairs.iloc[0])
        for metric in (*datasets, ALL, MOST):
            mark = ties.UNRANKED if metric in parts and not noisy.isdisjoint(parts[metric]["block"]) else ""
            yield [*who, metric, made.get(metric), mark, claim if metric is MOST else None]


def _gain(pairs: pd.DataFrame) -> Interval:
    """The mean speedup of the paper's method over that of the other, over the conversations that both decoded."""
    return samples.paired_ratio(*(samples.mean_over(*pairs[side]) for side in ("sample_ours", "sample")))


def _rank(gain: Interval) -> float:
    return -math.inf if math.isnan(gain.value) else gain.value


def _claim(ours: Arm, other: Arm, run: pd.Series) -> float | None:
    """What the abstract says of two of the paper's own methods and these models, as a ratio."""
    models = {"target": run["target"] or "", "draft": run["draft"] or ""}
    rows = published.find(mcsd.PAPER, "claim_text", metric="speedup_gain", method=ours.paper, **models)
    for text, percent in zip(rows["params"], rows["value"], strict=True):
        if other.paper and params_of(text).get("baseline") == other.paper:
            return 1 + float(percent) / 100
    return None
