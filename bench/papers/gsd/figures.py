"""GSD, Figures 5, 7 and 8: what its parameters do, and which children of their parents the accepted tokens are."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.markers import CARETUPBASE

from bench import published
from bench.artifacts import style
from bench.artifacts.blocks import Block, measured_blocks
from bench.artifacts.metric import MAL, Metric, measured
from bench.artifacts.outputs import NoResultsError, Output
from bench.artifacts.run_table import run_table
from bench.artifacts.runs import Run, per_row, run_ids
from bench.artifacts.sweep import Mark, Panel, Series, Sweep, series, twin
from bench.artifacts.tables import named_rows
from bench.artifacts.wording import setting
from bench.papers.gsd.methods import CAPPED, DRAFTED, MERGES, RATE, VERIFIED, labelled, of_main_pair, per_sample
from bench.published import params_of
from bench.results.store import Results
from bench.statistics import graph_metrics, intervals, samples
from bench.statistics.samples import Sample

_SWEPT = {
    "k": "most children of a node",
    "tau": "tokens of the recurring n-gram, or of its context",
    "theta_prob": "draft probability below which a node is a leaf",
    "theta_sib": "share of the best sibling's probability below which a node is pruned",
}
ACCEPTED = per_sample(
    "accepted",
    "accepted_per_step",
    "accepted drafted tokens / decoding steps, mean over samples; in brackets the 95% interval",
    2,
)


CUT = 0.05
"""Share of cut trees from which a point is marked."""
_PRUNING = "TSD prunes no siblings, and (ii) does not count those that GSD prunes; Table 1 has TSD with pruning too."


def _drafts(swept: str) -> list[tuple[float, float]]:
    """What the paper's text says of its curves: k, and how many tokens TSD drafts there."""
    facts = named_rows(published.find("gsd", "fig5", metric="drafted_tokens"))
    return [(float(params_of(fact.params)["k"]), fact.value) for fact in facts] if swept == "k" else []


def _ablation(letter: str, swept: str) -> Sweep:
    """A panel of Figure 5."""
    at_least = {"marker": CARETUPBASE, "markerfacecolor": "none", "markeredgewidth": 1.3, "markersize": 11}

    def marks(panel: Panel) -> Iterator[Mark]:
        for k, tokens in _drafts(swept):
            words = f"paper's text: TSD drafts more than {tokens:g} (right) at k = {k:g}"
            yield Mark(words, k, tokens, look=at_least, right=True)

    def remarks(panels: Sequence[Panel], results: Results) -> Iterator[str]:
        yield "The paper states neither models nor data of this figure, and prints its values in the figure alone."
        for k, tokens in _drafts(swept):
            yield f"Its text: at k = {k:g} TSD's tree has more than {tokens:g} tokens."
            yield _PRUNING
        if any(_capped(run) for panel in panels for run in panel.runs):
            yield f"Ringed: our cap of verified nodes cut more than {CUT:.0%} of the trees; the paper states no cap."

    return Sweep(
        f"GSD Figure 5{letter}: acceptance rate and drafted tokens against {swept}",
        swept,
        f"{swept}: {_SWEPT[swept]}",
        [[twin(RATE, DRAFTED, log=True), _ring, _ticks]],
        (RATE, ACCEPTED, DRAFTED, MERGES, replace(VERIFIED, header="verified"), CAPPED, MAL),
        means=_SWEPT[swept],
        only=lambda run: bool(run.steps["num_live"].notna().any()),
        as_block=of_main_pair,
        marks=marks,
        remarks=remarks,
        legend_columns=1,
        timed=False,
        whose="run of a token graph",
    )


def _capped(run: Run) -> bool:
    return (CAPPED.of(run) or 0.0) > CUT


def _ring(axes: Axes, panel: Panel) -> None:
    """A ring around the acceptance rates of trees that the cap cut."""
    cut = [(x, RATE.of(run)) for line in panel.lines for x, run in line.points if _capped(run)]
    if points := [(x, rate.value) for x, rate in cut if rate]:
        words = f"the cap of verified nodes cut more than {CUT:.0%} of the trees"
        axes.plot(*zip(*points, strict=True), "o", color="black", fillstyle="none", markersize=11, label=words)


def _ticks(axes: Axes, panel: Panel) -> None:
    axes.set_xticks(sorted(set(panel.x)))


FIG5 = {f"fig5{letter}": _ablation(letter, swept) for letter, swept in zip("abcd", _SWEPT, strict=True)}


def accepted(run: Run) -> pd.DataFrame:
    """A row per accepted drafted token whose rank among its siblings is known."""
    return graph_metrics.accepted_children(run.steps)


def _share(header: str, those: Callable[[pd.Series], pd.Series], means: str) -> Metric:
    def sums(run: Run) -> Sample | None:
        found = run.once(accepted)
        return per_row(found.assign(those=those(found["child"]).astype(float)), "those", most=1.0)

    return measured(header, sums, means)


def visited(run: Run) -> pd.DataFrame:
    """A row per visited node: how many children it has, and which of them was accepted."""
    return graph_metrics.visited_nodes(run.steps)


def _child(rank: int) -> Metric:
    """The share of visited nodes whose i-th child is accepted: the bars."""
    means = (
        "share of all visited nodes (the root and accepted ones) whose i-th most probable child is accepted: a node "
        f"without an i-th child counts as one whose i-th is not; in brackets the 95% interval ({intervals.METHOD} over "
        "conversations)"
    )
    return _of_visited(f"child {rank}", rank, 0, means)


def _where_drafted(rank: int) -> Metric:
    means = "the same over the visited nodes that have at least i children in the verified tree"
    return _of_visited(f"child {rank} if drafted", rank, rank, means)


def _of_visited(header: str, rank: int, fewest: int, means: str) -> Metric:
    """The share whose child of this rank is accepted, of the visited nodes with so many children."""

    def sums(run: Run) -> Sample | None:
        nodes = run.once(visited)
        nodes = nodes[nodes["children"] >= fewest]
        return per_row(nodes.assign(accepted=(nodes["accepted"] == rank).astype(float)), "accepted", most=1.0)

    return _where_there_are(rank, measured(header, sums, means * (rank == 1)))


def _of_accepted(rank: int) -> Metric:
    means = "share of the accepted drafted tokens that are the i-th most probable child of their parent"
    return _where_there_are(rank, _share(f"{rank} of accepted", lambda child: child == rank, means * (rank == 1)))


def _where_there_are(rank: int, metric: Metric) -> Metric:
    """Nothing of runs that never draft so many children."""
    return replace(metric, of=lambda run: metric.of(run) if rank <= _ranks(run) else None)


TOKENS = Metric("accepted tokens", lambda run: len(run.once(accepted)), "accepted drafted tokens of all steps", 0)
LATER = _share("> 1 of accepted", lambda child: child > 1, "share of them that are no first children")


def _ranks(run: Run) -> int:
    """As many as a node has children, or as were accepted."""
    return int(max(run.params.get("k", 1), run.once(visited)["children"].max()))


def _child_ranks(
    title: str,
    header: str,
    bars: Callable[[Block], Iterable[tuple[str, Run]]],
    remarks: Callable[[Iterable[Block]], Iterable[str]],
) -> Callable[[str, Results], list[Output]]:
    """Figure 7 or 8: a group of bars by rank, of which each run of `bars` has one, with its label under `header`."""

    def build(name: str, results: Results) -> list[Output]:
        every = [block.standing_in(published.find("gsd", name)) for block in measured_blocks(results)]
        known = {block: [bar for bar in bars(block) if len(bar[1].once(visited))] for block in every}
        found = {block: drawn for block, drawn in known.items() if drawn}
        if not found:
            raise NoResultsError("no run has counted the children of the nodes that it visited")
        rows = [({"Pair": run.block.name, header: label}, run) for drawn in found.values() for label, run in drawn]
        figure = style.drawn(name, title, setting(found), _panel, found.items(), run_ids(run for _, run in rows))
        most = max(_ranks(run) for _, run in rows)
        shares = [metric(rank) for metric in (_child, _where_drafted, _of_accepted) for rank in range(1, most + 1)]
        return [figure, run_table(name, figure.title, rows, (*shares, LATER, TOKENS), said=remarks(found), timed=False)]

    return build


def _panel(axes: Axes, block: Block, drawn: Sequence[tuple[str, Run]]) -> None:
    looks = style.of_methods([run.method for _, run in drawn])
    for index, (label, run) in enumerate(drawn):
        ranks = range(1, _ranks(run) + 1)
        shares = [_child(rank).of(run) for rank in ranks]
        color = looks[index]["color"]
        style.bars(axes, ranks, shares, index, len(drawn), width=0.8, color=color, label=label)
    axes.set(title=block.name, xlabel="rank of the accepted child (1: the most probable)")
    axes.set_ylabel("share of visited nodes (95% interval)")
    axes.set_ylim(bottom=0)
    axes.set_xticks(range(1, max(_ranks(run) for _, run in drawn) + 1))
    axes.grid(axis="x", visible=False)
    style.legend_below(axes, columns=2 if len(drawn) > 3 else len(drawn))


def _by_threshold(block: Block) -> Iterator[tuple[str, Run]]:
    lines = series(block, "theta_sib")
    for line in lines:
        of = f"{line.label}, " if len(lines) > 1 else ""
        yield from ((f"{of}theta_sib = {x:g}", run) for x, run in line.points)


def _methods_said(found: Iterable[Block]) -> Iterator[str]:
    fact = published.find("gsd", "fig7", metric="accepted_child_gt1_share").iloc[0]
    yield (
        f"The paper's text: about {fact['value']:g}% of the accepted tokens of TSD and GSD are children with a rank "
        f"above 1 ({fact['target']}; the data are not stated, and the bars have no numbers)."
    )


def _thresholds_said(found: Iterable[Block]) -> Iterator[str]:
    facts = published.find("gsd", "fig8").set_index("metric")["value"]
    stated = ", ".join(f"{name} = {facts[f'setting_{name}']:g}" for name in ("k", "tau", "theta_prob"))
    yield (
        f'The paper: {stated}. Its text: "a clear negative correlation between the increase of theta_sib and the '
        'acceptance rate for tokens at latter positions"; its bars have no numbers.'
    )
    lines = [(block, line) for block in found for line in series(block, "theta_sib") if len(line.runs) > 1]
    for block, line in lines:
        yield f"{block.name}, {line.label}, theta_sib {line.x[0]:g} to {line.x[-1]:g}: {_trend(line, _child)} here."
        yield f"Over the nodes with such a child, the caption's other reading: {_trend(line, _where_drafted)}."


def _trend(line: Series, share: Callable[[int], Metric]) -> str:
    """Whether later children are accepted less often at the highest theta_sib than at the lowest, in pairs."""
    ends = line.runs[0], line.runs[-1]
    every = [share(rank) for rank in range(2, max(map(_ranks, ends)) + 1)]
    signs = [_ahead(metric, *ends) for metric in every]
    told = {-1: "less often", 1: "more often", 0: "not told apart"}
    words = [
        f"{metric.header} {' to '.join(map(metric.cell, ends))} ({told[sign]})"
        for metric, sign in zip(every, signs, strict=True)
    ]
    seen = signs.count(-1)
    return f"{', '.join(words)}: the trend is seen at {seen} of {len(signs)} ranks"


def _ahead(metric: Metric, first: Run, last: Run) -> int:
    """1 where the last has surely more, -1 where it has less, else 0."""
    own, other = (metric.entry(run).sample for run in (last, first))
    return (samples.compare(own, other).ahead if own and other else None) or 0


FIG7 = _child_ranks("GSD Figure 7: how often the i-th child is accepted", "Method", labelled, _methods_said)
FIG8 = _child_ranks(
    "GSD Figure 8: how often the i-th child is accepted, by theta_sib", "Line", _by_threshold, _thresholds_said
)
