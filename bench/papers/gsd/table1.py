"""GSD, Table 1: acceptance, drafted tokens, graph success and speedup by method; and whether GSD drafts fewer nodes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace

import pandas as pd

from bench import published
from bench.artifacts import control, definitions, grid, tables
from bench.artifacts.blocks import NO_DRAFT, Block
from bench.artifacts.grid import Cell, Column, Setting
from bench.artifacts.metric import MAL, SPEEDUP
from bench.artifacts.outputs import Output
from bench.artifacts.runs import Run
from bench.artifacts.speedups import times
from bench.artifacts.tables import signed
from bench.artifacts.wording import NO_MODEL, titled, who
from bench.papers.gsd import methods
from bench.papers.gsd.methods import (
    GREEDY,
    GSD,
    GSD_CODE,
    GSD_LEAVES,
    LARGE,
    SAMPLED,
    SSD,
    SSD_ADAPTIVE,
    SSD_NO_EXIT,
    TSD,
    TSD_SIB,
    bound,
    self_drafting,
)
from bench.results.store import Results
from bench.statistics import graph_metrics, intervals, samples
from bench.statistics.intervals import Interval

TITLE = "GSD Table 1: acceptance rate, drafted tokens, graph success and speedup"
METHODS = (SSD, SSD_ADAPTIVE, SSD_NO_EXIT, TSD, TSD_SIB, GSD, GSD_LEAVES, GSD_CODE)
ARMS = tuple(bound(arm, LARGE) for arm in METHODS)
OWN = tuple(bound(self_drafting(arm), LARGE) for arm in METHODS)
"""The same where the target drafts for itself."""
RATE = Column(
    replace(methods.RATE, header="Acceptance Rate"), paper="acceptance_rate", beside="Acceptance published", ended=True
)
DRAFTED = Column(
    replace(methods.DRAFTED, header="Drafted Token Num"), paper="drafted_tokens", beside="Drafted published"
)
SUCCESS = Column(
    methods.SUCCESS,
    paper="graph_success",
    unit=0.01,
    beside="Graph published",
    plain=tables.percent,
    without=lambda cell: "" if cell.arm.ours[0].startswith("gsd") else "0 without merging",
)
MEAN = Column(
    replace(SPEEDUP, header="Speedup", means=f"{definitions.MEAN_SPEEDUP}; each is {definitions.SPEEDUP}"),
    of=(GREEDY, SAMPLED),
    paper="speedup",
    plain=times,
    timed=True,
)
SPEEDUPS = tuple(
    Column(replace(SPEEDUP, header=header, means=f"speedup of {means}, with its 95% interval"), of=(place,), ended=True)
    for place, header, means in (
        (GREEDY, "greedy", "greedy decoding"),
        (SAMPLED, "top-p", "sampling at temperature 0.7 from the top 0.7"),
    )
)
LENGTH = Column(MAL)
COUNTS = (methods.CREATED, methods.MERGES, methods.PRUNED, methods.VERIFIED, methods.CAPPED)
OTHERS = (methods.CROSSED, methods.SHARED)
DETAILS = (RATE, DRAFTED, *map(Column, COUNTS), SUCCESS, *map(Column, OTHERS), *SPEEDUPS, MEAN, LENGTH)
DETAILS += (Column(methods.LOSSLESS),)


def table1(name: str, results: Results) -> list[Output]:
    """Table 1, twice: as printed, and with all counts, intervals and verdicts."""
    paper = published.find("gsd", name)
    found = methods.found_blocks(results, paper)
    settings = _settings(paper, found)
    title = titled(TITLE, found, but=["temperature"])
    notes = (*methods.said(paper, found), *_notes(settings), *control.notes(found), *dict.fromkeys(_skipped(found)))
    notes += tuple(methods.not_shown(results, ARMS, settings))
    ranked = (RATE, *SPEEDUPS, MEAN, LENGTH)
    return [
        grid.as_printed(name, title, settings, (RATE, DRAFTED, SUCCESS, MEAN), notes),
        grid.in_detail(name, title, settings, DETAILS, notes, ranked=ranked, marks=[methods.MEANS_TIED], beside=False),
    ]


def _settings(paper: pd.DataFrame, found: list[Block]) -> list[Setting]:
    """In the paper's order: target, dataset, self-drafting first; what it does not have comes last.

    Of the paper's settings all, where nothing was run.
    """
    run = [_setting(who(block), methods.of_setting(paper, block), block) for block in found]
    named = paper.replace({"draft": {NO_DRAFT: NO_MODEL}}).groupby(["target", "draft", "dataset"], sort=False)
    unrun = [
        _setting(dict(zip(("Target", "Draft", "Dataset"), map(str, names), strict=True)), rows) for names, rows in named
    ]
    targets, datasets = ([*dict.fromkeys(paper[column]), ""] for column in ("target", "dataset"))

    def place(one: Setting) -> tuple[int, int, bool]:
        first = one.paper.iloc[0] if len(one.paper) else {"target": "", "dataset": ""}
        return targets.index(first["target"]), datasets.index(first["dataset"]), one.who["Draft"] != NO_MODEL

    return sorted(run or unrun, key=place)


def _setting(names: dict[str, str], paper: pd.DataFrame, block: Block | None = None) -> Setting:
    """Of methods those of the paper, and ours that were run."""
    arms, blocks = OWN if names["Draft"] == NO_MODEL else ARMS, methods.by_decoding(block)
    return Setting(names, arms, paper, blocks, shown=lambda cell: cell.arm.paper or cell.run_ids)


def _notes(settings: list[Setting]) -> Iterator[str]:
    yield methods.NO_HARDWARE
    yield "Acceptance rates, counts, Graph Success and MAL are of greedy decoding; the paper does not say of which."
    yield "The paper does not say whether its TSD prunes siblings: TSD does not here; with sibling pruning it is a row."
    yield methods.READINGS
    for one in settings:
        yield from _fewer_nodes(one)


def _skipped(found: list[Block]) -> Iterator[str]:
    own = [block for block in found if who(block)["Draft"] == NO_MODEL]
    for block in own:
        draft = json.loads(block.first["config"])["pair"].get("draft", {})
        parts = {"layers": "skipped_layers", "attention of layers": "skipped_attention", "MLP of layers": "skipped_mlp"}
        if left_out := [f"{words} {', '.join(map(str, draft[key]))}" for words, key in parts.items() if draft.get(key)]:
            yield f"{block.pair}: the target drafts for itself without {' and '.join(left_out)}."
    if own:
        yield (
            "The paper does not say what its Self SSD leaves out; python -m bench.skip_search finds a set. With the "
            "adaptive exit the threshold starts at 0.6 and moves towards an acceptance rate of 0.9, and at most 12 "
            "tokens are drafted (Zhang et al., 2023)."
        )


def _fewer_nodes(one: Setting) -> Iterator[str]:
    """A sentence for each tree run beside GSD: fewer nodes at the same rate? Paired over the samples of both."""
    found = {cell.arm.header: cell for cell in one.cells}
    graph = found.get(GSD.header)
    for tree in (found.get(arm.header) for arm in (TSD, TSD_SIB)):
        if graph and tree and (text := _compared(graph, tree)):
            yield f"{one.who['Dataset']}, {one.who['Target']}: {text}"


def _compared(graph: Cell, tree: Cell) -> str:
    mine, other = (cell.runs[GREEDY] for cell in (graph, tree))
    gain = _gain(mine, other) if mine and other and mine.ok and other.ok else None
    if gain is None:
        return ""
    drafted, created, verified = (
        samples.paired_ratio(*(Column(metric).sample(cell) for cell in (graph, tree)))
        for metric in (methods.DRAFTED, methods.CREATED, methods.VERIFIED)
    )
    return (
        f"GSD drafts {tables.ratio(drafted)} times the nodes (ii) of {tree.arm.header}, at an acceptance rate of "
        f"{signed(gain)}: {_conclusion(drafted, gain)}.{_paper(graph, tree)} With what is pruned beside a sibling (i) "
        f"it is {tables.ratio(created)}; the target reads {tables.ratio(verified)} times the nodes."
    )


def _gain(graph: Run, tree: Run) -> Interval | None:
    """How far the acceptance rate is ahead, over the samples of both; None without any."""
    both = graph.once(methods.drafts).merge(tree.once(methods.drafts), on=graph_metrics.SAMPLE, suffixes=("", "_tree"))
    both["gain"] = both["acceptance_rate"] - both["acceptance_rate_tree"]
    if both.empty:
        return None
    return intervals.ratio_of_sums(both.dropna(subset=["gain"]), "gain", stretch=intervals.IN_PAIRS, scale="plain")


def _conclusion(drafted: Interval, gain: Interval) -> str:
    if not (drafted.known and gain.known):
        return "so few conversations have no interval to judge by"
    nodes = "fewer" if drafted.high < 1 else "more" if drafted.low > 1 else "neither fewer nor more"
    rate = "higher" if gain.low > 0 else "lower" if gain.high < 0 else "not measurably different"
    return f"{nodes} nodes, the rate {rate}"


def _paper(graph: Cell, tree: Cell) -> str:
    ours, theirs = graph.published, tree.published
    if not {"drafted_tokens", "acceptance_rate"} <= ours.keys() & theirs.keys():
        return ""
    ratio = ours["drafted_tokens"] / theirs["drafted_tokens"]
    gain = ours["acceptance_rate"] - theirs["acceptance_rate"]
    return f" The paper: {ratio:.2f}x at {gain:+.3f}."
