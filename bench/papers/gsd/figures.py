"""GSD, Figures 5, 7 and 8: what its parameters do, and which children of their parents the accepted tokens are."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

import pandas as pd
from matplotlib.axes import Axes

from bench import published
from bench.artifacts import style
from bench.artifacts.blocks import Block, measured_blocks
from bench.artifacts.metric import MAL, Metric, measured
from bench.artifacts.outputs import NoResultsError, Output
from bench.artifacts.run_table import run_table
from bench.artifacts.runs import Run, per_row, run_ids
from bench.artifacts.sweep import Mark, Panel, Sweep, series, twin
from bench.artifacts.tables import named_rows
from bench.artifacts.wording import setting
from bench.papers.gsd.methods import CAPPED, DRAFTED, MERGES, RATE, VERIFIED, labelled, of_main_pair, per_sample
from bench.published import params_of
from bench.results.store import Results
from bench.statistics import graph_metrics
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
    star = {"color": style.COLOURS[1], "markeredgecolor": "black", "markersize": 11}

    def marks(panel: Panel) -> Iterator[Mark]:
        for k, tokens in _drafts(swept):
            words = f"paper's text: TSD drafts more than {tokens:g} (right) at k = {k:g}"
            yield Mark(words, k, tokens, look=star, right=True)

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
        return per_row(found.assign(those=those(found["child"]).astype(float)), "those")

    return measured(header, sums, means)


def visited(run: Run) -> pd.DataFrame:
    """A row per child of a node that was visited: its rank, and whether it was accepted."""
    return graph_metrics.visited_children(run.steps)


def _child(rank: int) -> Metric:
    """The share of i-th children accepted, over the nodes that have one: the bars."""

    def sums(run: Run) -> Sample | None:
        found = run.once(visited)
        return per_row(found[found["child"] == rank], "accepted")

    means = (
        "of the visited nodes (the root and accepted ones) with at least i children in the verified tree, the share "
        "whose i-th most probable child is accepted; in brackets the 95% interval (bootstrap over conversations)"
    )
    return measured(f"child {rank}", sums, means * (rank == 1))


def _of_accepted(rank: int) -> Metric:
    means = "share of the accepted drafted tokens that are the i-th most probable child of their parent"
    share = _share(f"{rank} of accepted", lambda child: child == rank, means * (rank == 1))
    return replace(share, of=lambda run: share.of(run) if rank <= _ranks(run) else None)


TOKENS = Metric("accepted tokens", lambda run: len(run.once(accepted)), "accepted drafted tokens of all steps", 0)
LATER = _share("child > 1", lambda child: child > 1, "share of them that are no first children")


def _ranks(run: Run) -> int:
    """As many as a node has children, or as were accepted."""
    return int(max(run.params.get("k", 1), run.once(visited)["child"].max()))


def _child_ranks(
    title: str, header: str, bars: Callable[[Block], Iterable[tuple[str, Run]]], remarks: Callable[[], Iterable[str]]
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
        columns = (*map(_child, range(1, most + 1)), TOKENS, *map(_of_accepted, range(1, most + 1)), LATER)
        return [figure, run_table(name, figure.title, rows, columns, said=remarks(), timed=False)]

    return build


def _panel(axes: Axes, block: Block, drawn: Sequence[tuple[str, Run]]) -> None:
    looks = style.of_methods([run.method for _, run in drawn])
    for index, (label, run) in enumerate(drawn):
        ranks = range(1, _ranks(run) + 1)
        shares = [_child(rank).of(run) for rank in ranks]
        color = looks[index]["color"]
        style.bars(axes, ranks, shares, index, len(drawn), width=0.8, color=color, label=label)
    axes.set(title=block.name, xlabel="rank of the child (1: the most probable)", ylim=(0, 1.03))
    axes.set_ylabel("share of i-th children accepted (95% interval)")
    axes.set_xticks(range(1, max(_ranks(run) for _, run in drawn) + 1))
    axes.grid(axis="x", visible=False)
    style.legend_below(axes, columns=2 if len(drawn) > 3 else len(drawn))


def _by_threshold(block: Block) -> Iterator[tuple[str, Run]]:
    lines = series(block, "theta_sib")
    for line in lines:
        of = f"{line.label}, " if len(lines) > 1 else ""
        yield from ((f"{of}theta_sib = {x:g}", run) for x, run in line.points)


def _methods_said() -> Iterator[str]:
    fact = published.find("gsd", "fig7", metric="accepted_child_gt1_share").iloc[0]
    yield (
        f"The paper's text: about {fact['value']:g}% of the accepted tokens of TSD and GSD are children with a rank "
        f"above 1 ({fact['target']}; the data are not stated, and the bars have no numbers)."
    )


def _thresholds_said() -> Iterator[str]:
    facts = published.find("gsd", "fig8").set_index("metric")["value"]
    stated = ", ".join(f"{name} = {facts[f'setting_{name}']:g}" for name in ("k", "tau", "theta_prob"))
    yield f"The paper: {stated}; its text: the higher theta_sib, the fewer later children; its bars have no numbers."


FIG7 = _child_ranks("GSD Figure 7: how often the i-th child is accepted", "Method", labelled, _methods_said)
FIG8 = _child_ranks(
    "GSD Figure 8: how often the i-th child is accepted, by theta_sib", "Line", _by_threshold, _thresholds_said
)
