"""GSD, Figures 3 and 6 and Table 5: what recurs and is merged, who said an answer, how far merging moves q."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from bench import published
from bench.artifacts import style, tables
from bench.artifacts.blocks import Block, drafted_blocks, measured_blocks
from bench.artifacts.case_study import DRAFT, LISTED, MERGED, TARGET, CaseStudy, Look, pages, speed
from bench.artifacts.metric import DRAFTER, Metric, measured, written
from bench.artifacts.outputs import NoResultsError, Output
from bench.artifacts.run_table import run_table
from bench.artifacts.runs import Run, per_row, run_ids
from bench.artifacts.tables import Table
from bench.artifacts.wording import draft_temperatures, scale, setting
from bench.papers.gsd.methods import labelled, of_main_pair
from bench.published import params_of
from bench.results.store import Results
from bench.statistics import graph_metrics, intervals
from bench.statistics.intervals import Interval


def _stated(artifact: str, metric: str) -> float:
    """A number of the paper's text."""
    return float(published.find("gsd", artifact, metric=metric)["value"].iloc[0])


# Figure 3

RECURRENCE = "GSD Figure 3: share of tokens that are part of n-grams that recur within a drafted tree"
_RECURRENCE_LEGEND = {
    "n": "length of the n-gram that ends at a node: its token and those of its nearest ancestors, the root counted",
    "graphs": "drafted trees or graphs, one a decoding step, that have a path of n tokens: all means are over these",
    "tokens": "of all nodes, those that are part of an n-gram that recurs, at any place, as the paper's caption says; "
    f"mean over graphs, in brackets the 95% interval ({intervals.METHOD} over conversations)",
    "tokens, full depth": "the same over the graphs that were drafted to the full depth, as the paper's trees were",
    "n-grams": "of the nodes whose path has n tokens, those whose n-gram recurs: it ends at another node too, which is "
    "neither above nor below",
}


@dataclass(frozen=True, slots=True)
class Recurring:
    """Means over the graphs that have a path of n tokens, and how many these are; `deep` over those of full depth."""

    graphs: int
    tokens: Interval
    n_grams: Interval
    deep_graphs: int
    deep: Interval | None


def by_length(run: Run) -> dict[int, Recurring]:
    """What recurs in its graphs, by n."""
    every = graph_metrics.recurrences(run.steps)
    return {int(str(n)): _recurring(graphs, run.params.get("max_steps")) for n, graphs in every.groupby("n")}


def _recurring(graphs: pd.DataFrame, levels: int | None) -> Recurring:
    deep = graphs[graphs["draft_forwards"] >= (levels or math.inf)]
    tokens, ends = (intervals.ratio_of_sums(graphs, column, scale="logit") for column in ("in_recurring", "recurring"))
    own = None if deep.empty else intervals.ratio_of_sums(deep, "in_recurring", scale="logit")
    return Recurring(len(graphs), tokens, ends, len(deep), own)


def recurrence(name: str, results: Results) -> list[Output]:
    """One panel per block, one line per run that drafted graphs or trees with their records."""
    every = map(of_main_pair, measured_blocks(results))
    found = {
        block: lines for block in every if (lines := [line for line in labelled(block) if line[1].once(by_length)])
    }
    if not found:
        raise NoResultsError("no run has a drafted graph")
    runs = [run for lines in found.values() for _, run in lines]
    rows = [(run, n, found) for run in runs for n, found in run.once(by_length).items()]
    cells = [
        {"Pair": run.block.name, "Drafter": DRAFTER.cell(run), "n": str(n), "graphs": str(found.graphs)}
        | {"tokens": tables.interval(found.tokens), "tokens, full depth": written(found.deep, 2)}
        | {"tokens published": tables.number(_tokens() if n == 1 else None), "n-grams": tables.interval(found.n_grams)}
        for run, n, found in rows
    ]
    notes = (
        *map(scale, found),
        f"The paper: {_stated('section5_1', 'setting_runs'):g} trees of TSD with sibling pruning, of depth 10 and "
        "width 4; it states neither models nor data, and prints no number but that for single tokens. Here: the trees "
        "of all decoding steps.",
        *(_full_depth(run) for run in runs if "max_steps" in run.params),
        *draft_temperatures(runs),
    )
    ids = run_ids(run for run, *_ in rows)
    figure = style.drawn(name, RECURRENCE, setting(found), _recurrences, found.items(), ids)
    return [figure, Table(name, figure.title, pd.DataFrame(cells, dtype=str), notes, _RECURRENCE_LEGEND, figure.runs)]


def _full_depth(run: Run) -> str:
    """How many graphs are as deep as the paper's, and how much of these recurs."""
    every = run.once(by_length)[1]
    share = f"Of the tokens of full-depth graphs {tables.interval(every.deep)} recur (n = 1). " if every.deep else ""
    return (
        f"{run.block.name}, {run.name}: {every.deep_graphs} of {every.graphs} graphs have the full depth of "
        f"{run.params['max_steps']}; drafting of the others ended before, where no token was probable enough. {share}"
        f"The paper: about {tables.number(_tokens())} of a tree of depth 10 and width 4."
    )


def _recurrences(axes: Axes, block: Block, lines: Sequence[tuple[str, Run]]) -> None:
    for index, (label, run) in enumerate(lines):
        found = run.once(by_length)
        last = max(found)
        words = f"{label}, {{}} (95% interval), {found[1].graphs} graphs at n = 1, {found[last].graphs} at n = {last}"
        for place, name in enumerate(("tokens", "n-grams")):
            shares = [one.n_grams if place else one.tokens for one in found.values()]
            style.band(axes, list(found), shares, 2 * index + place, label=words.format(name))
        if found[1].deep:
            words = f"{label}, tokens, {found[1].deep_graphs} graphs of full depth"
            style.points(axes, [1], [found[1].deep], 2 * index, markerfacecolor="white", markersize=7, label=words)
    words = f"paper's text: about {_tokens():.0%} at n = 1"
    axes.plot(1, _tokens(), "*", color="black", markersize=10, label=words)
    axes.set(title=block.name, xlabel="n of the n-gram (tokens)", ylabel="share that recurs", ylim=(0, 1))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    style.legend_below(axes, columns=1)


def _tokens() -> float:
    """What the paper's text says of single tokens; the curve is in its figure alone."""
    return _stated("fig3", "recurring_token_share") / 100


# Figure 6

STORY = "GSD Figure 6: one answer by who said it"
LOOKS = {
    TARGET: Look("token of the target", "#111111"),
    DRAFT: Look("accepted draft token", "#A82800", "#FBE0CC", "dotted"),
    LISTED: Look("accepted, merged or listed behind a copy", "#5B3A8C", "#E8DFF5", "dashed"),
    MERGED: Look("accepted behind a merge edge", "#00507F", "#D6E9F5", "solid"),
}
_STORY_LEGEND = {
    "Said by": "the target itself; or the draft, and the target accepted it: before or behind the path's merge edge. "
    "In the paper's code what is merged, or listed behind a copy, counts too: it has the colour of what is behind",
    "pieces": "of text: a token each, but where several make up one character",
    "published": "the paper's share of the accepted, from its text",
}


def story(name: str, study: CaseStudy) -> list[Output]:
    """The answer as a page and a figure in the paper's colours, and a table of who said how much of it."""
    study = replace(study, title=f"{STORY} ({study.title})")
    accepted, every = study.count(DRAFT, LISTED, MERGED), len(study.pieces)
    paper = f"about {_stated('fig6', 'accepted_from_merged_share'):g}%"

    def share(part: int, whole: int) -> str:
        return tables.percent(part / whole if whole else None)

    summary = (
        f"{speed(study)}; {accepted} of {every} pieces are accepted draft tokens, "
        f"{share(study.count(LISTED, MERGED), accepted)} of them merged as the paper's code counts "
        f"({share(study.count(MERGED), accepted)} behind a merge edge). The paper: {paper} of the accepted."
    )
    rows = [
        {
            "Said by": look.words,
            "pieces": str(study.count(who)),
            "share of the answer": share(study.count(who), every),
            "share of the accepted": tables.ABSENT if who == TARGET else share(study.count(who), accepted),
            "published": paper if who == MERGED else tables.ABSENT,
        }
        for who, look in LOOKS.items()
    ]
    notes = (
        f'The paper: {paper} of the accepted drafted tokens "are derived from the subtrees associated with merged '
        'nodes". Its code colours the tokens of the last two rows alike. It does not say whose answer it shows.',
    )
    table = Table(name, study.title, pd.DataFrame(rows, dtype=str), notes, _STORY_LEGEND, (study.run_id,) * len(rows))
    return [*pages(name, study, LOOKS, summary), table]


# Table 5

DIVERGENCE = "GSD Table 5: KL divergence of merging, by k and tau"
UNLIMITED = 32
"""The k that stands for the paper's unlimited one: no node has so many children that pass the thresholds."""
_KL = "KL(q on the redundant node's own path || q at the node it is merged into), q the draft's distribution, in nats"
_INFERENCE = "the printed values look like a mean over the vocabulary's elements, which is our inference"
_PAPERS_DRAFT = "meta-llama/Llama-2-7b-hf"
"""The draft of the paper's main pair, whose vocabulary its values are taken to be divided by."""
_NOTES = (
    "The paper: means of {examples:g} examples; it states neither models nor data, direction nor unit, nor what it "
    "divides by.",
    "Its tau = 0 can only count tokens of context (by its text a single token is tau = 1), and so do the columns "
    "here: they are the text's tau 1, 2, 3, ...",
)
_STAND_IN = "{} stands in for the paper's models, which it does not name: absolute values are not comparable."


def _place(run: Run) -> tuple[int, int]:
    """Its k, and its tau as the table counts it: tokens of context beside the redundant one itself."""
    return int(run.params["k"]), int(run.params["tau"]) + bool(run.params.get("tau_as_context")) - 1


def merges(run: Run) -> pd.DataFrame:
    """A row per merge edge whose distributions were compared."""
    return graph_metrics.merge_divergences(run.steps)


@cache
def vocabulary(model_id: str) -> int | None:
    """Elements of the model's distribution; None for a model whose config is not in the package, as one in a folder.

    The configs, published shapes and the embedded models' own, are read as data: what else reads them
    (`bench.measure.hub_configs`) needs transformers.
    """
    package = files("bench")
    shapes: dict[str, dict[str, Any]] = json.loads(package.joinpath("measure", "hub_configs.json").read_text("utf-8"))
    own = package.joinpath(model_id, "config.json")
    if model_id.startswith("tiny/") and own.is_file():
        shapes[model_id] = json.loads(own.read_text("utf-8"))
    size = shapes.get(model_id, {}).get("vocab_size")
    return None if size is None else int(size)


def _vocabulary(run: Run) -> int | None:
    return vocabulary(str(run["draft_id"]))


def _per_element(run: Run) -> float | None:
    """The divergence over the size of the vocabulary; None where one of them is not known."""
    kl, size = KL.of(run), _vocabulary(run)
    return kl.value / size if kl and size else None


@cache
def _printed() -> Mapping[tuple[int, int], float]:
    """The paper's values by k and tau."""
    rows = [
        (params_of(row.params), row.value) for row in tables.named_rows(published.find("gsd", "table5", metric="kl"))
    ]
    return {(int(at["k"].replace("inf", str(UNLIMITED))), int(at["tau"])): float(value) for at, value in rows}


def _printed_nats(place: tuple[int, int]) -> float | None:
    """The paper's value times the vocabulary."""
    value, size = _printed().get(place), vocabulary(_PAPERS_DRAFT)
    return value * size if value and size else None


def _k(k: int) -> str:
    return f"unlimited ({k})" if k == UNLIMITED else str(k)


def _scientific(value: float | None, digits: int = 2) -> str:
    return tables.ABSENT if value is None else f"{value:.{digits}e}"


KL = measured(
    "KL",
    lambda run: per_row(run.once(merges), "kl"),
    f"{_KL}; mean over merge edges, in brackets the 95% interval ({intervals.METHOD} over conversations)",
    3,
)
DETAILS = (
    Metric("k", lambda run: _k(_place(run)[0])),
    Metric("tau", lambda run: _place(run)[1], "tokens of context that are alike beside the redundant token itself", 0),
    Metric(
        "n-gram",
        lambda run: _place(run)[1] + 1,
        "length of the n-gram whose recurrence makes a node redundant, tau + 1; the paper's text calls that tau",
        0,
    ),
    Metric("merges", lambda run: len(run.once(merges)) if run.ok else None, "merge edges", 0),
    replace(KL, of=lambda run: KL.of(run) if run.ok else run.status),
    Metric("V", _vocabulary, "size of the draft's vocabulary", 0),
    Metric("KL / V", _per_element, f"the mean divided by V: {_INFERENCE}", text=_scientific),
    Metric(
        "KL published",
        lambda run: _printed().get(_place(run)),
        "as the paper prints it, beside KL / V",
        text=_scientific,
    ),
)


def merge_kl(name: str, results: Results) -> list[Output]:
    """The paper's layout, a row per k and a column per tau; and a row per run with intervals and counts."""
    every = {block: _probes(block) for block in map(of_main_pair, drafted_blocks(results))}
    found = {block: runs for block, runs in every.items() if any(run.ok for run in runs)}
    if not found:
        raise NoResultsError("no run compared the draft's distributions with and without merging")
    title = f"{DIVERGENCE} ({setting(found)})"
    rows = [({"Pair": block.name}, run) for block, runs in found.items() for run in runs]
    notes = [text.format(examples=_stated("table5", "setting_examples")) for text in _NOTES]
    notes += [_STAND_IN.format(pair) for pair in dict.fromkeys(block.pair for block in found if block.stand_in)]
    notes += [text for block, runs in found.items() for text in _same(block, runs)]
    details = run_table(f"{name}_details", f"{title}, details", rows, DETAILS, said=notes, timed=False)
    return [_by_tau(name, title, found, details.notes), details]


def _same(block: Block, runs: Sequence[Run]) -> Iterator[str]:
    """Why runs of several k have one KL: no more children of a node go on than the threshold leaves."""
    known = [run for run in runs if KL.of(run) and run.params.get("theta_prob")]
    least = min((float(run.params["theta_prob"]) for run in known), default=1.0)
    most = math.floor(1 / least + 1e-9)
    by_tau: dict[int, list[Run]] = {}
    for run in known:
        if _place(run)[0] >= most:
            by_tau.setdefault(_place(run)[1], []).append(run)
    several = [every for every in by_tau.values() if len(every) > 1]
    if alike := [every for every in several if len(set(map(KL.cell, every))) == 1]:
        names = " and ".join(_k(k) for k in sorted({_place(run)[0] for every in alike for run in every}))
        yield (
            f"{block.name}: k = {names} have one KL at {len(alike)} of {len(several)} tau. With theta_prob = {least:g} "
            f"at most {most} children of a node go on, and only these are merged: what a larger k adds are leaves, "
            "which change later steps if one is accepted."
        )


def _probes(block: Block) -> list[Run]:
    """The runs whose drafter merges and compares, by k and tau; of those that failed: merges."""
    merging = [run for run in block.every if run.params.get("tau") is not None]
    return sorted((run for run in merging if not run.ok or run.steps["merge_kl"].notna().any()), key=_place)


def _by_tau(name: str, title: str, found: Mapping[Block, Sequence[Run]], notes: tuple[str, ...]) -> Table:
    places = {*_printed(), *(_place(run) for runs in found.values() for run in runs)}
    taus, rows, ids = sorted({tau for _, tau in places}), [], []
    for block, runs in found.items():
        for k in sorted({k for k, _ in _printed()} | {_place(run)[0] for run in runs}):
            row = {"Pair": block.name, "k": _k(k)}
            for tau in taus:
                here = [run for run in runs if _place(run) == (k, tau)]
                row[f"tau {tau}"] = " / ".join(map(_nats, here)) or "not run"
                row[f"tau {tau} published x V"] = tables.number(_printed_nats((k, tau)), KL.digits)
            rows.append(row)
            ids.append(" ".join(run.run_id for run in runs if _place(run)[0] == k))
    legend = {
        "tau 0": f"mean of {_KL}, over merge edges. tau counts the tokens of context that are alike beside the "
        "redundant token itself",
        "tau 0 published x V": f"the paper's value times V = {vocabulary(_PAPERS_DRAFT)}, the vocabulary of its main "
        f"pair's draft: {_INFERENCE}, and so is V. As printed it stands in the details",
    }
    return Table(name, title, pd.DataFrame(rows, dtype=str), notes, legend, tuple(ids))


def _nats(run: Run) -> str:
    """The divergence, or how the run ended."""
    if not run.ok:
        return run.status
    return tables.number(KL.of(run).value, KL.digits) if KL.of(run) else tables.ABSENT
