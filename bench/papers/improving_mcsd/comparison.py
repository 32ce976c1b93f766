"""Improved MCSD's comparisons of methods by dataset: alpha (Tables 2 to 4) and speedup (Figures 3 and 5)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pandas as pd
from matplotlib.axes import Axes

from bench import published
from bench.artifacts import control, definitions, grid, style, tables, ties
from bench.artifacts.arms import Arm
from bench.artifacts.blocks import Block, drafted, side_by_side
from bench.artifacts.grid import Column, Setting
from bench.artifacts.metric import FORWARDS, LOSSLESS, MAL, SPEEDS, TOKENS_PER_S, Metric, measured, or_status
from bench.artifacts.outputs import NoResultsError, Output
from bench.artifacts.run_table import run_table
from bench.artifacts.runs import Run, run_ids
from bench.artifacts.tables import Table
from bench.artifacts.wording import scale, setting, titled, who
from bench.papers.improving_mcsd import decisions
from bench.papers.improving_mcsd import methods as mcsd
from bench.published import params_of
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


def _if_ok(metric: Metric) -> Column:
    """Nothing of a run that did not end well."""
    return Column(replace(metric, of=lambda run: metric.of(run) if run.ok else None))


ALPHA = Column(mcsd.ALPHA, paper="acceptance_rate", ended=True)
DETAILS = (
    Column(Metric("Configuration", lambda run: None), words=lambda cell: mcsd.configuration(cell.arm)),
    ALPHA,
    _if_ok(measured("alpha drafted", mcsd.alpha_drafted, definitions.ALPHA_DRAFTED)),
    _if_ok(
        Metric("accepted / depth", lambda run: metrics.acceptance_rate_depth(run.steps), definitions.ACCEPTED_DEPTH, 3)
    ),
    _if_ok(
        Metric("accepted / node", lambda run: metrics.acceptance_rate_node(run.steps), definitions.ACCEPTED_NODE, 3)
    ),
    Column(MAL),
    _if_ok(Metric("draft nodes", lambda run: mcsd.NODES.of(run) - mcsd.first_tokens(run), definitions.DRAFT_NODES, 1)),
    _if_ok(Metric("verified", lambda run: mcsd.NODES.of(run) + (not mcsd.virtual(run)), definitions.VERIFIED_ROWS, 1)),
    _if_ok(replace(FORWARDS, means="forwards of the draft, mean over steps")),
    Column(mcsd.SPEEDUP),
    _if_ok(
        replace(
            LOSSLESS,
            means=f"{definitions.LOSSLESS}; of greedy decoding also the share of outputs identical to the target's own",
        )
    ),
)
Group = dict[str, Setting]
"""Methods with one draft and dataset, at one temperature, by our words for their target."""


def acceptance_table(name: str, results: Results) -> list[Output]:
    """One of the tables, twice: as printed, and a row per run with intervals, costs and verdicts."""
    layout, paper = TABLES[name], published.find(mcsd.PAPER, name)
    found = mcsd.blocks_of(results, layout.methods, layout.temperatures, drafted(paper))
    groups = _groups(layout, paper, found)
    swept = ("temperature",) if len(layout.temperatures) > 1 else ()
    title = titled(layout.title, found, but=("dataset", *swept))
    notes = (*map(scale, found), *mcsd.about_pairs(paper, found), *layout.notes)
    cells = [cell for group in groups for one in group.values() for cell in one.cells]
    notes += tuple(decisions.about(results, (cell.run for cell in cells)))
    notes += tuple(mcsd.not_shown(results, " ".join(cell.run_ids for cell in cells).split()))
    ranked = [one for one in DETAILS if one.header in ("alpha", "MAL", "speedup")]
    full = grid.in_detail(name, title, _told_once(groups), DETAILS, (*notes, *control.notes(found)), ranked=ranked)
    means = {header: text for header, text in full.legend.items() if header != ALPHA.verdict}
    details = replace(
        full,
        frame=full.frame.rename(columns={ALPHA.verdict: "verdict"}),
        legend=means | {"verdict": f"on alpha, {definitions.VERDICT}"},
    )
    return [_as_printed(name, title, layout, groups, notes), details]


def _groups(layout: Layout, paper: pd.DataFrame, found: Sequence[Block]) -> list[Group]:
    """What was run and what the paper has, in its order; what it does not have comes last.

    A setting that was run twice, with other seeds or on another device, has rows of its own for each.
    """
    names = ["dataset", "draft", "temperature"]
    places = list(dict.fromkeys(paper[names].itertuples(index=False, name=None)))

    def place(block: Block) -> tuple[str, str, float]:
        first = block.first
        return str(first["dataset"]), (block.published_as or ("", ""))[1], float(first["temperature"])

    run = side_by_side(found, lambda one: (place(one), who(one)["Draft"]), lambda one: who(one)["Target"])
    every = [(place(next(iter(blocks.values()))), blocks) for blocks in run]
    every += [(at, {}) for at in places if at not in [one for one, _ in every]]
    every.sort(key=lambda one: places.index(one[0]) if one[0] in places else len(places))
    targets = _targets(paper, found)
    return [
        {words: _setting(layout, paper, at, target, blocks.get(words)) for words, target in targets.items()}
        for at, blocks in every
    ]


def _targets(paper: pd.DataFrame, found: Sequence[Block]) -> dict[str, str]:
    """The paper's targets by our words, in its order, then others that were run."""
    run = {who(block)["Target"]: (block.published_as or ("", ""))[0] for block in found}
    printed = {
        words: target
        for target in dict.fromkeys(paper["target"])
        for words in ([words for words, name in run.items() if name == target] or [target])
    }
    return printed | run


def _setting(
    layout: Layout, paper: pd.DataFrame, at: tuple[str, str, float], target: str, block: Block | None
) -> Setting:
    """The methods with one target, by the paper's names where it was not run."""
    dataset, draft, temperature = at
    names = who(block) if block else {"Target": target, "Draft": draft, "Dataset": dataset}
    rows = paper[(paper[["dataset", "draft", "temperature", "target"]] == [*at, target]).all(axis=1)]
    return Setting({**names, "Temp": f"{temperature:g}"}, layout.methods, rows, (block,), mcsd.chosen)


def _told_once(groups: Sequence[Group]) -> list[Setting]:
    """The runs of every setting; the paper's numbers alone stand there once, where nobody ran its models."""

    def place(one: Setting) -> tuple[str, ...]:
        target, draft = (one.block.published_as or ("", "")) if one.block else (one.who["Target"], one.who["Draft"])
        return target, draft, one.who["Dataset"], one.who["Temp"]

    every = [one for group in groups for one in group.values()]
    told = {place(one) for one in every if one.block}
    kept = []
    for one in every:
        if one.block or place(one) not in told:
            told.add(place(one))
            kept.append(replace(one, shown=lambda cell: cell.run if cell.setting.block else cell.published))
    return kept


def _as_printed(name: str, title: str, layout: Layout, groups: Sequence[Group], notes: tuple[str, ...]) -> Table:
    """A row per method that was run there or that the paper has; beside each target the paper's number."""
    lines, runs = [], []
    for group in groups:
        names = next((one for one in group.values() if one.block), next(iter(group.values()))).who
        for cells in zip(*(one.cells for one in group.values()), strict=True):
            if any(cell.run or cell.published for cell in cells):
                arm = cells[0].arm
                line = {**names, "Method": arm.header, "Configuration": mcsd.configuration(arm)}
                for words, cell in zip(group, cells, strict=True):
                    line[words], line[grid.beside(words)] = ALPHA.as_printed(cell)
                lines.append(line)
                runs.append(" ".join(cell.run_ids for cell in cells if cell.run))
    targets = list(groups[0])
    columns = ["Dataset", "Draft", *["Temp"] * (len(layout.temperatures) > 1), "Method", "Configuration"]
    columns += [header for words in targets for header in (words, grid.beside(words))]
    legend = {targets[0]: f"alpha: {definitions.ALPHA.partition('; in brackets')[0]}"}
    headers = {words: f"{words}: alpha" for words in targets}
    return Table(name, title, tables.frame(lines, columns), notes, legend, tuple(runs), headers)


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
