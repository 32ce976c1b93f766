"""GSD, Figures 5, 7 and 8: what its parameters do, and which children of their parents the accepted tokens are."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.markers import CARETUPBASE

from specdec_trees import published
from specdec_trees.artifacts import draw, frame, notes, style
from specdec_trees.artifacts.metrics import MAL, Metric, per_row
from specdec_trees.artifacts.outputs import NoResultsError, Output
from specdec_trees.artifacts.table import table
from specdec_trees.artifacts.tables import named_rows
from specdec_trees.papers.gsd.metrics import CAPPED, DRAFTED, MERGES, RATE, VERIFIED, per_sample
from specdec_trees.published import params_of
from specdec_trees.results.store import Results
from specdec_trees.statistics import graph_metrics, intervals, samples
from specdec_trees.statistics.samples import Sample

_SWEPT = {
    "k": "most children of a node",
    "tau": "tokens of the recurring n-gram, or of its context",
    "theta_prob": "draft probability below which a node is a leaf",
    "theta_sib": "share of the best sibling's probability below which a node is pruned",
}
CUT = 0.05
"""Share of cut trees from which a point is marked."""
_PRUNING = (
    "TSD prunes no siblings, and drafted tokens do not count those that GSD prunes; Table 1 has TSD with pruning too."
)


ACCEPTED = per_sample(
    "accepted_per_step",
    "accepted",
    "accepted drafted tokens / decoding steps, mean over samples; in brackets the 95% interval",
    2,
)
POINT = (RATE, ACCEPTED, DRAFTED, CAPPED, MAL, MERGES, VERIFIED)


def fig5(letter: str, swept: str, name: str, results: Results) -> list[Output]:
    """What one of the parameters does: acceptance rate and drafted tokens over it."""
    loaded = frame.standing_in(frame.finished(results), published.find("gsd", "table1"))
    runs = draw.lines(loaded[loaded["steps"].map(lambda steps: steps["num_live"].notna().any()).astype(bool)], swept)
    runs = frame.put(runs, samples=runs["steps"].map(graph_metrics.samples))
    long = frame.measure(runs, POINT)
    title = f"GSD Figure 5{letter}: acceptance rate and drafted tokens against {swept}"
    words, more_than = (title, notes.setting(runs), f"{swept}: {_SWEPT[swept]}"), _more_than(swept)
    figure = draw.curves(name, words, long, [[(partial(_rates, more_than=more_than),)]], columns=1)
    below = draw.below(loaded, runs, _ablation_said(long, more_than), timed=False)
    rows, aside = (*draw.LINE_ROWS, swept), [MERGES.key, VERIFIED.key]
    long, means = long.assign(**{swept: long["point"]}), {swept: _SWEPT[swept]}
    return [figure, table(name, figure.title, long, rows, POINT, aside=aside, notes=below, means=means)]


FIG5 = {f"fig5{letter}": partial(fig5, letter, swept) for letter, swept in zip("abcd", _SWEPT, strict=True)}


def _more_than(swept: str) -> list[tuple[float, float]]:
    """What the paper's text says of its curves: k, and than how many tokens TSD drafts more there."""
    facts = named_rows(published.find("gsd", "fig5", metric="drafted_tokens"))
    return [(float(params_of(fact.params)["k"]), fact.value) for fact in facts] if swept == "k" else []


def _ablation_said(long: pd.DataFrame, more_than: Iterable[tuple[float, float]]) -> Iterator[str]:
    yield "The paper states neither models nor data of this figure, and prints its values in the figure alone."
    for k, tokens in more_than:
        yield f"Its text: at k = {k:g} TSD's tree has more than {tokens:g} tokens."
        yield _PRUNING
    if len(_cut(long)):
        yield f"Ringed: our cap of verified nodes cut more than {CUT:.0%} of the trees; the paper states no cap."


def _cut(long: pd.DataFrame) -> pd.DataFrame:
    """The acceptance rates of trees that the cap cut."""
    capped = long[long["metric"].isin([CAPPED])]
    runs = capped.loc[capped["value"].astype(float) > CUT, "run_id"]
    return long[long["metric"].isin([RATE]) & long["run_id"].isin(runs) & long["interval"].notna()]


def _rates(axes: Axes, rows: pd.DataFrame, more_than: Iterable[tuple[float, float]]) -> None:
    """Both metrics, a ring around what the cap cut, and marks at what the paper's text says."""
    right = draw.twin(axes, rows, RATE, DRAFTED)
    right.set_ylabel(f"{DRAFTED.header}, log (95% interval)")
    style.few_log_ticks(right)
    if len(cut := _cut(rows)):
        words = f"the cap of verified nodes cut more than {CUT:.0%} of the trees"
        axes.plot(cut["x"], cut["value"], "o", color="black", fillstyle="none", markersize=11, label=words)
    axes.set_xticks(sorted(rows["x"].unique()))
    look: dict[str, Any] = {"color": "black", "linestyle": "", "marker": CARETUPBASE, "markersize": 11}
    look |= {"markerfacecolor": "none", "markeredgewidth": 1.3}
    for k, tokens in more_than:
        right.plot(k, tokens, **look)
        axes.plot([], [], label=f"paper's text: TSD drafts more than {tokens:g} (right) at k = {k:g}", **look)


def _child(rank: int) -> Metric:
    """The share of visited nodes whose i-th child is accepted: the bars."""
    means = (
        "share of all visited nodes (the root and accepted ones) whose i-th most probable child is accepted: a node "
        f"without an i-th child counts as one whose i-th is not; in brackets the 95% interval ({intervals.METHOD} over "
        "conversations)"
    )
    return Metric(f"child_{rank}", f"child {rank}", means * (rank == 1), lambda run: _of_visited(run, rank, 0))


def _where_drafted(rank: int) -> Metric:
    means = "the same over the visited nodes that have at least i children in the verified tree"
    header = f"child {rank} if drafted"
    return Metric(f"drafted_{rank}", header, means * (rank == 1), lambda run: _of_visited(run, rank, rank))


def _of_visited(run: Any, rank: int, fewest: int) -> Sample | None:
    """Of the visited nodes with so many children; nothing of runs that never draft so many."""
    nodes = run.visited[run.visited["children"] >= fewest]
    return _share(nodes, nodes["accepted"] == rank) if rank <= run.ranks else None


def _share(rows: pd.DataFrame, those: pd.Series) -> Sample | None:
    return per_row(rows.assign(those=those.astype(float)), "those", most=1.0)


LATER = Metric(
    "later",
    "> 1 of accepted",
    "share of the accepted drafted tokens that are no first children",
    lambda run: _share(run.accepted, run.accepted["child"] > 1),
)
TOKENS = Metric(
    "accepted_tokens", "accepted tokens", "accepted drafted tokens of all steps", lambda run: len(run.accepted), 0
)


def fig7(name: str, results: Results) -> list[Output]:
    """Which children of their parents are accepted, by method."""
    runs = frame.finished(results)
    runs = draw.lines(runs, "", [0.0] * len(runs))
    title = "GSD Figure 7: how often the i-th child is accepted"
    return _child_ranks(name, title, "Method", frame.put(runs, bar=runs["line"]), _methods_said)


def fig8(name: str, results: Results) -> list[Output]:
    """The same by theta_sib."""
    runs = draw.lines(frame.finished(results), "theta_sib")
    several = runs.groupby("block")["curve"].transform("nunique") > 1
    bars = [
        f"{run.line}, " * more + f"theta_sib = {run.point}" for run, more in zip(named_rows(runs), several, strict=True)
    ]
    title = "GSD Figure 8: how often the i-th child is accepted, by theta_sib"
    return _child_ranks(name, title, "Line", frame.put(runs, bar=bars), _thresholds_said)


def _child_ranks(
    name: str, title: str, header: str, runs: pd.DataFrame, remarks: Callable[[pd.DataFrame], Iterable[str]]
) -> list[Output]:
    """A group of bars by rank, of which each run has one with its label `bar`, which stands under `header`."""
    runs = frame.put(
        frame.standing_in(runs, published.find("gsd", name)),
        visited=runs["steps"].map(graph_metrics.visited_nodes),
        accepted=runs["steps"].map(graph_metrics.accepted_children),
    )
    runs = runs[runs["visited"].map(len) > 0]
    if runs.empty:
        raise NoResultsError("no run has counted the children of the nodes that it visited")
    runs = frame.put(
        runs, ranks=[int(max(run.params.get("k", 1), run.visited["children"].max())) for run in named_rows(runs)]
    )
    ranks = range(1, runs["ranks"].max() + 1)
    bars, drafted = [_child(rank) for rank in ranks], [_where_drafted(rank) for rank in ranks]
    shown = (*bars, LATER, TOKENS, *drafted)
    long = frame.measure(runs, shown)
    panels = [(rows, bars) for _, rows in long.groupby("block", sort=False)]
    figure = style.drawn(name, title, notes.setting(runs), _bars, panels, runs["run_id"])
    below = [*notes.of_blocks(runs, timed=False), *remarks(long)]
    aside, rows, headers = [one.key for one in drafted], ("setting", "bar"), {"bar": header}
    return [figure, table(name, figure.title, long, rows, shown, aside=aside, notes=below, headers=headers)]


def _bars(axes: Axes, rows: pd.DataFrame, bars: Sequence[Metric]) -> None:
    known = rows[rows["metric"].isin(bars) & rows["interval"].notna()]
    runs = [points for _, points in known.groupby("run_id", sort=False)]
    looks = style.of_methods([points["method"].iloc[0] for points in runs])
    for index, (points, look) in enumerate(zip(runs, looks, strict=True)):
        ranks, label = range(1, len(points) + 1), points["bar"].iloc[0]
        style.bars(axes, ranks, points["interval"], index, len(runs), width=0.8, color=look["color"], label=label)
    axes.set(title=rows["setting"].iloc[0], xlabel="rank of the accepted child (1: the most probable)")
    axes.set_ylabel("share of visited nodes (95% interval)")
    axes.set_ylim(bottom=0)
    axes.set_xticks(range(1, rows["ranks"].max() + 1))
    axes.grid(axis="x", visible=False)
    style.legend_below(axes, columns=2 if len(runs) > 3 else len(runs))


def _methods_said(long: pd.DataFrame) -> Iterator[str]:
    fact = published.find("gsd", "fig7", metric="accepted_child_gt1_share").iloc[0]
    yield (
        f"The paper's text: about {fact['value']:g}% of the accepted tokens of TSD and GSD are children with a rank "
        f"above 1 ({fact['target']}; the data are not stated, and the bars have no numbers)."
    )


def _thresholds_said(long: pd.DataFrame) -> Iterator[str]:
    facts = published.find("gsd", "fig8").set_index("metric")["value"]
    stated = ", ".join(f"{name} = {facts[f'setting_{name}']:g}" for name in ("k", "tau", "theta_prob"))
    yield (
        f'The paper: {stated}. Its text: "a clear negative correlation between the increase of theta_sib and the '
        'acceptance rate for tokens at latter positions"; its bars have no numbers.'
    )
    for _, rows in long.groupby("curve", sort=False):
        first, last = (rows.sort_values("x", kind="stable").iloc[place] for place in (0, -1))
        if first["run_id"] != last["run_id"]:
            ends = rows[rows["run_id"].isin([first["run_id"], last["run_id"]])]
            span = f"theta_sib {first['point']} to {last['point']}"
            yield f"{first['setting']}, {first['line']}, {span}: {_trend(ends, 'child_')} here."
            yield f"Over the nodes with such a child, the caption's other reading: {_trend(ends, 'drafted_')}."


def _trend(ends: pd.DataFrame, kind: str) -> str:
    """Whether later children are accepted less often at the highest theta_sib than at the lowest, in pairs."""
    told = {-1: "less often", 1: "more often", 0: "not told apart"}
    words, signs = [], []
    for rank in range(2, ends["ranks"].max() + 1):
        first, last = named_rows(ends[ends["metric"].map(lambda one, key=f"{kind}{rank}": one.key == key).astype(bool)])
        known = first.sample is not None and last.sample is not None
        signs.append((samples.compare(last.sample, first.sample).ahead if known else None) or 0)
        cells = " to ".join(one.metric.cell(one.value, one.interval) for one in (first, last))
        words.append(f"{first.metric.header} {cells} ({told[signs[-1]]})")
    return f"{', '.join(words)}: the trend is seen at {signs.count(-1)} of {len(signs)} ranks"
