"""Improved MCSD, Figures 3 and 5: speedup over autoregressive decoding by dataset, a panel per pair; and the gains."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes

from bench import published
from bench.artifacts import style, tables
from bench.artifacts.blocks import Block, side_by_side
from bench.artifacts.metric import MAL, SPEEDS, TOKENS_PER_S, or_status
from bench.artifacts.outputs import NoResultsError, Output
from bench.artifacts.run_table import run_table
from bench.artifacts.runs import Run, run_ids
from bench.artifacts.tables import Table
from bench.artifacts.wording import scale, setting
from bench.papers.improving_mcsd import methods as mcsd
from bench.published import params_of
from bench.results.store import Results
from bench.statistics import samples
from bench.statistics.intervals import Interval

DATASETS = {"mt_bench": "MT-Bench", "triviaqa": "TriviaQA", "alpaca": "Alpaca"}
"""The paper's, in its order."""
ALL, _CLAIMED = "mean of datasets", "published"
_GAIN = (
    "the mean of the method's speedups on the datasets that both ran / that of the other's; in brackets the 95% "
    "interval, bootstrap over the conversations that both decoded"
)
_OWN = "Every run has its own autoregressive arm, so that slow changes of the machine cancel."
_CLAIM = (
    "Published: the abstract's 27.5%, the most by which the method is faster than MCSD across the three datasets, with "
    "Llama-2-7B and the draft of 68M; read as a ratio of mean speedups."
)
_WIDTH = 0.84  # of the bars of one dataset together
Panel = Mapping[str, Block]
"""A pair in one place, seed and length: its blocks by dataset."""


@dataclass(frozen=True, slots=True)
class Layout:
    """One of the figures."""

    name: str
    title: str
    methods: tuple[mcsd.Method, ...]
    ours: mcsd.Method  # the paper's own
    temperature: float
    notes: tuple[str, ...]


FIG3 = Layout(
    "fig3",
    "Improved MCSD Figure 3: speedup of static trees",
    mcsd.STATIC,
    mcsd.STATIC[3],
    0.7,
    (mcsd.BUDGETS, mcsd.LOSSY_NOTE),
)
FIG5 = Layout(
    "fig5",
    "Improved MCSD Figure 5: speedup beside dynamic trees",
    mcsd.DYNAMIC,
    mcsd.DYNAMIC[2],
    1.0,
    (mcsd.DYNAMIC_BUDGETS, *mcsd.OF_DYNAMIC),
)
LAYOUTS = {layout.name: layout for layout in (FIG3, FIG5)}


def speedup_bars(name: str, results: Results) -> list[Output]:
    """The figure, its numbers, and how much faster the paper's method is than the others."""
    layout, printed = LAYOUTS[name], published.find(mcsd.PAPER, "table4")  # it has the figure's pairs
    found = mcsd.blocks_of(results, layout.methods, (layout.temperature,), printed)
    if not any(block.ran for block in found):
        raise NoResultsError(f"no run of {', '.join(one.header for one in layout.methods)} ended well")
    panels = side_by_side(found, lambda block: block.pair, lambda block: str(block.first["dataset"]))
    run = dict.fromkeys(name for panel in panels for name in panel)
    datasets = [name for name in DATASETS if name in run] + [name for name in run if name not in DATASETS]
    rows = [
        (
            {"Pair": _name(panel), "Dataset": name, "Method": method.header, "Configuration": method.configuration},
            chosen,
        )
        for panel in panels
        for name in datasets
        for method in layout.methods
        if (chosen := _run(panel, name, method))
    ]
    words, ids = setting(found, but=("dataset",)), run_ids(run for _, run in rows)
    speeds = run_table(
        layout.name,
        f"{layout.title} ({words})",
        rows,
        (or_status(mcsd.SPEEDUP), *SPEEDS, mcsd.ALPHA, MAL),
        ranked=(mcsd.SPEEDUP, TOKENS_PER_S, mcsd.ALPHA, MAL),
        said=(*mcsd.about_pairs(printed, found), *_text(layout), *layout.notes, *mcsd.not_shown(results, ids)),
    )
    drawn = [(panel, layout, datasets) for panel in panels if any(block.ran for block in panel.values())]
    figure = style.drawn(layout.name, layout.title, words, _draw, drawn, ids)
    top = max(axis.get_ylim()[1] for axis in figure.canvas.axes)
    for axis in figure.canvas.axes:
        axis.set_ylim(0, top)
    return [figure, speeds, _gains(layout, words, panels, datasets)]


def _run(panel: Panel, dataset: str, method: mcsd.Method) -> Run | None:
    """However it ended; None if there is none."""
    return method.chosen(panel[dataset]) if dataset in panel else None


def _ok(panel: Panel, dataset: str, method: mcsd.Method) -> Run | None:
    """A run that ended well."""
    run = _run(panel, dataset, method)
    return run if run and run.ok else None


def _name(panel: Panel) -> str:
    """The pair, and what tells the panel from others of this pair."""
    every = list(panel.values())
    marks = (mark for block in every for mark in block.mark.split(", "))
    return ", ".join([every[0].pair, *dict.fromkeys(m for m in marks if m and not m.startswith("dataset "))])


def _text(layout: Layout) -> Iterator[str]:
    """What the paper's text says of the figure, whose bars have no numbers."""
    yield "The paper: one RTX 4090, targets in bfloat16, drafts in double precision. Its bars have no numbers."
    for fact in tables.named_rows(published.find(mcsd.PAPER, "fig_text", method=layout.ours.method, metric="speedup")):
        if params_of(fact.params)["figure"] == layout.name.removeprefix("fig"):
            yield (
                f"Its text: at most {fact.value:.2f}x over autoregressive decoding on {fact.dataset} ({fact.draft}; "
                "the target is not stated)."
            )


def _draw(axes: Axes, panel: Panel, layout: Layout, datasets: Sequence[str]) -> None:
    """A group of bars per dataset; a method has its colour in every panel; what is lossy is hatched."""
    shown = [one for one in layout.methods if any(_ok(panel, dataset, one) for dataset in datasets)]
    for index, method in enumerate(shown):
        found = {
            place: run.speedup
            for place, dataset in enumerate(datasets)
            if (run := _ok(panel, dataset, method)) and run.speedup
        }
        own = 3 if method is layout.ours else layout.methods.index(method)  # the paper's has one colour in both figures
        look = {"color": style.look(own)["color"], "hatch": "///" if method.header.endswith(mcsd.LOSSY) else ""}
        look |= {"label": method.header, "edgecolor": "white", "linewidth": 0}
        x = style.bars(axes, found, found.values(), index, len(shown), width=_WIDTH, **look)
        for place, speedup in zip(x, found.values(), strict=True):
            _number(axes, place, speedup.value)
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


def _gains(layout: Layout, words: str, panels: Sequence[Panel], datasets: Sequence[str]) -> Table:
    """How many times as fast the paper's method is, by dataset and by the mean of all; a row per other method."""
    rows, runs = [], []
    for panel in panels:
        for other in layout.methods:
            each = {name: (_ok(panel, name, layout.ours), _ok(panel, name, other)) for name in datasets}
            both = {name: (ours, theirs) for name, (ours, theirs) in each.items() if ours and theirs}
            if both and other is not layout.ours:
                row = {"Pair": _name(panel), "Method": layout.ours.header}
                row |= {"over": f"{other.header} {other.configuration}"}
                row |= {name: tables.ratio(_gain([both[name]]) if name in both else None) for name in datasets}
                row |= {ALL: tables.ratio(_gain(list(both.values())))}
                rows.append(row | {_CLAIMED: tables.number(_claim(layout.ours, other, panel), 3)})
                runs.append(" ".join(run.run_id for pair in both.values() for run in pair))
    claimed = any(row[_CLAIMED] != tables.ABSENT for row in rows)
    columns = ["Pair", "Method", "over", *datasets, ALL, *[_CLAIMED] * claimed]
    scales = (scale(block) for panel in panels for block in panel.values())
    title = f"{layout.title}, gain over other methods ({words})"
    notes = (*scales, _OWN, *[_CLAIM] * claimed)
    return Table(f"{layout.name}_gains", title, tables.frame(rows, columns), notes, {ALL: _GAIN}, tuple(runs))


def _gain(pairs: Sequence[tuple[Run, Run]]) -> Interval:
    """The mean speedup of the first runs over that of the others, over the conversations that both decoded."""
    sides = ([run.sample("speedup") for run in side] for side in zip(*pairs, strict=True))
    first, other = (samples.mean_over(*filter(None, side)) for side in sides)
    return samples.paired_ratio(first, other)


def _claim(ours: mcsd.Method, other: mcsd.Method, panel: Panel) -> float | None:
    """What the abstract says of two of the paper's own methods and these models, as a ratio."""
    target, draft = next(iter(panel.values())).published_as or ("", "")
    rows = published.find(
        mcsd.PAPER, "claim_text", metric="speedup_gain", method=ours.method, target=target, draft=draft
    )
    for text, percent in zip(rows["params"], rows["value"], strict=True):
        if other.params and params_of(text).get("baseline") == other.method:
            return 1 + float(percent) / 100
    return None
