"""GSD, Figures 3 and 6 and Table 5: what recurs and is merged, who said an answer, how far merging moves q."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from importlib.resources import files
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from specdec_trees import published
from specdec_trees.artifacts import draw, frame, metrics, notes, style, tables, verdict
from specdec_trees.artifacts.case_study import DRAFT, LISTED, MERGED, TARGET, CaseStudy, Look, pages, speed
from specdec_trees.artifacts.outputs import NoResultsError, Output
from specdec_trees.artifacts.table import table
from specdec_trees.artifacts.tables import Table
from specdec_trees.published import params_of
from specdec_trees.results.store import Results
from specdec_trees.statistics import graph_metrics, intervals
from specdec_trees.statistics.intervals import Interval


def _stated(artifact: str, metric: str) -> float:
    """A number of the paper's text."""
    return float(published.find("gsd", artifact, metric=metric)["value"].iloc[0])


# Figure 3

RECURRENCE = "GSD Figure 3: share of tokens that are part of n-grams that recur within a drafted tree"
_IN_BRACKETS = f"mean over graphs, in brackets the 95% interval ({intervals.METHOD} over conversations)"


def _share(graphs: pd.DataFrame, column: str) -> Interval | None:
    """The mean over graphs; None without any."""
    return None if graphs.empty else intervals.ratio_of_sums(graphs, column, scale="logit")


def _deep(run: Any) -> pd.DataFrame:
    """The graphs that were drafted to the full depth."""
    return run.drafted[run.drafted["draft_forwards"] >= run.params.get("max_steps", math.inf)]


GRAPHS = metrics.Metric(
    "graphs",
    "graphs",
    "drafted trees or graphs, one a decoding step, that have a path of n tokens: all means are over these",
    lambda run: len(run.drafted),
    0,
)
TOKENS = metrics.Metric(
    "tokens",
    "tokens",
    "of all nodes, those that are part of an n-gram that recurs, at any place, as the paper's caption says; "
    f"{_IN_BRACKETS}",
    lambda run: _share(run.drafted, "in_recurring"),
    judged=False,
)
DEEP_GRAPHS = metrics.Metric(
    "deep_graphs",
    "graphs of full depth",
    "those that were drafted to the full depth, as the paper's trees were; drafting of the others ended before, where "
    "no token was probable enough",
    lambda run: len(_deep(run)),
    0,
)
DEEP = metrics.Metric(
    "deep", "tokens, full depth", "the same share over these alone", lambda run: _share(_deep(run), "in_recurring")
)
N_GRAMS = metrics.Metric(
    "n_grams",
    "n-grams",
    "of the nodes whose path has n tokens, those whose n-gram recurs: it ends at another node too, which is neither "
    "above nor below",
    lambda run: _share(run.drafted, "recurring"),
)
RECURRING = (TOKENS, DEEP, N_GRAMS, GRAPHS, DEEP_GRAPHS)
_N = "length of the n-gram that ends at a node: its token and those of its nearest ancestors, the root counted"


def recurrence(name: str, results: Results) -> list[Output]:
    """Shares by n of every run that drafted graphs or trees with their records, and their curves."""
    loaded = frame.standing_in(frame.finished(results), published.find("gsd", "table1"))
    long = frame.measure(_by_length(loaded), RECURRING)
    stated = _stated("fig3", "recurring_token_share") / 100
    first = long["metric"].isin([TOKENS]) & (long["x"] == 1)
    long = frame.put(long, published=[stated if one else None for one in first])
    paper = (
        f"The paper: {_stated('section5_1', 'setting_runs'):g} trees of TSD with sibling pruning, of depth 10 and "
        "width 4; it states neither models nor data, and prints no number but that for single tokens. Here: the trees "
        "of all decoding steps."
    )
    blocks = loaded[loaded["block"].isin(long["block"])]
    star = {"words": f"paper's text: about {stated:.0%} at n = 1", "x": 1, "y": stated}
    marks = [{"block": block} | star for block in long["block"].unique()]
    drawings: list[draw.Drawing] = [(draw.pair, TOKENS, N_GRAMS), (_full_depth, DEEP)]
    words = RECURRENCE, notes.setting(blocks), "n of the n-gram (tokens)"
    figure = draw.curves(name, words, long, [drawings], marks, columns=1)
    rows = (*draw.RUN_ROWS, "n")
    below = draw.below(loaded, long, [paper], timed=False)
    return [figure, table(name, figure.title, long, rows, RECURRING, notes=below, means={"n": _N})]


def _by_length(runs: pd.DataFrame) -> pd.DataFrame:
    """The runs once for every n, with the `drafted` graphs that have a path of n tokens. NoResultsError without any."""
    lengths = [
        {"run_id": run.run_id, "n": str(n), "x": float(str(n)), "drafted": graphs}
        for run in tables.named_rows(runs)
        for n, graphs in graph_metrics.recurrences(run.steps).groupby("n")
    ]
    if not lengths:
        raise NoResultsError("no run has a drafted graph")
    return runs.assign(line=runs["name"], curve=runs.index).merge(pd.DataFrame(lengths), on="run_id")


def _full_depth(axes: Axes, rows: pd.DataFrame, metric: metrics.Metric) -> None:
    """A point at n = 1 for each line, of the graphs that are as deep as the paper's."""
    known = rows[rows["metric"].isin([metric]) & (rows["x"] == 1) & rows["interval"].notna()]
    for place, row in enumerate(tables.named_rows(known)):
        words = f"{row.line}, tokens, {len(_deep(row))} of {len(row.drafted)} graphs of full depth"
        style.points(axes, [1], [row.interval], 2 * place, markerfacecolor="white", markersize=7, label=words)
    axes.set(ylabel="share that recurs (95% interval)", ylim=(0, 1))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))


# Figure 6

STORY = "GSD Figure 6: one answer by who said it"
LOOKS = {
    TARGET: Look("token of the target", "#111111"),
    DRAFT: Look("accepted draft token", "#A82800", "#FBE0CC", "dotted"),
    LISTED: Look("accepted, merged or listed behind a copy", "#5B3A8C", "#E8DFF5", "dashed"),
    MERGED: Look("accepted behind a merge edge", "#00507F", "#D6E9F5", "solid"),
}
_STORY_HEADERS = {"who": "Said by", "of_answer": "share of the answer", "of_accepted": "share of the accepted"}
_STORY_LEGEND = {
    "who": "the target itself; or the draft, and the target accepted it: before or behind the path's merge edge. "
    "In the paper's code what is merged, or listed behind a copy, counts too: it has the colour of what is behind",
    "pieces": "of text: a token each, but where several make up one character",
    "published": "the paper's share of the accepted, from its text",
}


def story(name: str, study: CaseStudy) -> list[Output]:
    """The answer as a page and a figure in the paper's colours, and a table of who said how much of it."""
    study = replace(study, title=f"{STORY} ({study.title})")
    accepted, pieces = study.count(DRAFT, LISTED, MERGED), len(study.pieces)
    paper = f"about {_stated('fig6', 'accepted_from_merged_share'):g}%"

    def share(part: int, whole: int) -> str:
        return tables.percent(part / whole if whole else None)

    summary = (
        f"{speed(study)}; {accepted} of {pieces} pieces are accepted draft tokens, "
        f"{share(study.count(LISTED, MERGED), accepted)} of them merged as the paper's code counts "
        f"({share(study.count(MERGED), accepted)} behind a merge edge). The paper: {paper} of the accepted."
    )
    rows = [
        {
            "who": look.words,
            "pieces": str(study.count(who)),
            "of_answer": share(study.count(who), pieces),
            "of_accepted": tables.ABSENT if who == TARGET else share(study.count(who), accepted),
            "published": paper if who == MERGED else tables.ABSENT,
        }
        for who, look in LOOKS.items()
    ]
    remarks = (
        f'The paper: {paper} of the accepted drafted tokens "are derived from the subtrees associated with merged '
        'nodes". Its code colours the tokens of the last two rows alike. It does not say whose answer it shows.',
    )
    grid, ids = pd.DataFrame(rows, dtype=str), (study.run_id,) * len(rows)
    counts = Table(name, study.title, grid, remarks, _STORY_LEGEND, ids, _STORY_HEADERS)
    return [*pages(name, study, LOOKS, summary), counts]


# Table 5

DIVERGENCE = "GSD Table 5: KL divergence of merging, by k and tau"
UNLIMITED = 32
"""The k that stands for the paper's unlimited one: no node has so many children that pass the thresholds."""
_INFERENCE = "the printed values look like a mean over the vocabulary's elements, which is our inference"
_PAPERS_DRAFT = "meta-llama/Llama-2-7b-hf"
"""The draft of the paper's main pair, whose vocabulary its values are taken to be divided by."""
_NOTES = (
    "The paper: means of {examples:g} examples; it states neither models nor data, direction nor unit, nor what it "
    "divides by.",
    "Its tau = 0 can only count tokens of context (by its text a single token is tau = 1), and so do the columns "
    "here: they are the text's tau 1, 2, 3, ...",
)


def _place(params: Mapping[str, Any]) -> tuple[int, int]:
    """Its k, and its tau as the table counts it: tokens of context beside the redundant one itself."""
    return int(params["k"]), int(params["tau"]) + bool(params.get("tau_as_context")) - 1


@cache
def vocabulary(model_id: str) -> int | None:
    """Elements of the model's distribution; None for a model whose config is not in the package, as one in a folder.

    The configs, published shapes and the embedded models' own, are read as data: what else reads them
    (`specdec_trees.measure.hub_configs`) needs transformers.
    """
    package = files("specdec_trees")
    shapes: dict[str, dict[str, Any]] = json.loads(package.joinpath("measure", "hub_configs.json").read_text("utf-8"))
    own = package.joinpath(model_id, "config.json")
    if model_id.startswith("tiny/") and own.is_file():
        shapes[model_id] = json.loads(own.read_text("utf-8"))
    size = shapes.get(model_id, {}).get("vocab_size")
    return None if size is None else int(size)


@cache
def _printed() -> Mapping[tuple[int, int], float]:
    """The paper's values by k and tau."""
    facts = published.find("gsd", "table5", metric="kl")
    rows = zip(map(params_of, facts["params"]), facts["value"], strict=True)
    return {(int(at["k"].replace("inf", str(UNLIMITED))), int(at["tau"])): float(value) for at, value in rows}


def _k(k: int) -> str:
    return f"unlimited ({k})" if k == UNLIMITED else str(k)


def _scientific(value: float | None) -> str | None:
    return None if value is None else f"{value:.2e}"


def _per_element(run: Any) -> str | None:
    """The divergence over the size of the vocabulary; None where one of them is not known."""
    size = vocabulary(str(run.draft_id))
    return _scientific(run.merges["kl"].mean() / size) if size and len(run.merges) else None


KL = metrics.Metric(
    "kl",
    "KL",
    "KL(q on the redundant node's own path || q at the node it is merged into), q the draft's distribution, in nats; "
    f"mean over merge edges, in brackets the 95% interval ({intervals.METHOD} over conversations); published: the "
    f"paper's value times V = {vocabulary(_PAPERS_DRAFT)}, the vocabulary of its main pair's draft: {_INFERENCE}, and "
    "so is V",
    lambda run: metrics.per_row(run.merges, "kl"),
    3,
    judged=False,
)
SHOWN = (
    KL,
    metrics.Metric("merges", "merges", "merge edges", lambda run: len(run.merges), 0),
    metrics.Metric("vocabulary", "V", "size of the draft's vocabulary", lambda run: vocabulary(str(run.draft_id)), 0),
    metrics.Metric("kl_by_v", "KL / V", f"the mean divided by V: {_INFERENCE}", _per_element),
)
MEANS = {
    "tau": "tokens of context that are alike beside the redundant token itself",
    "printed": "as the paper prints it",
}
ROWS = ("setting", "k", "tau", "printed")
HEADERS = {"printed": "KL / V published"}


def merge_kl(name: str, results: Results) -> list[Output]:
    """A row per k and tau that was run or that the paper prints, ours beside the paper's."""
    runs = _probes(frame.standing_in(frame.load(results), published.find("gsd", "table1")))
    lines = pd.concat([_with_unrun(rows) for _, rows in runs.groupby("block", sort=False)], ignore_index=True)
    size = vocabulary(_PAPERS_DRAFT) or math.nan
    lines = frame.put(
        lines,
        k=[_k(k) for k, _ in lines["place"]],
        tau=[tau for _, tau in lines["place"]],
        printed=[_scientific(_printed().get(place)) or tables.ABSENT for place in lines["place"]],
    )
    long = frame.measure(lines, SHOWN)
    theirs = [_printed().get(row.place) if row.metric is KL else None for row in tables.named_rows(long)]
    values = [verdict.NOT_RUN if row.metric is KL and not row.run_id else row.value for row in tables.named_rows(long)]
    long = frame.put(long, value=values, published=[None if one is None else one * size for one in theirs])
    below = [
        *notes.of_blocks(runs, timed=False),
        *(text.format(examples=_stated("table5", "setting_examples")) for text in _NOTES),
        *(text for _, rows in lines.groupby("block", sort=False) for text in _same(rows)),
    ]
    title, aside = notes.titled(DIVERGENCE, runs), ["printed", *(one.key for one in SHOWN[1:])]
    return [table(name, title, long, ROWS, SHOWN, aside=aside, notes=below, headers=HEADERS, means=MEANS)]


def _probes(runs: pd.DataFrame) -> pd.DataFrame:
    """The runs whose drafter merges and compares, of blocks with one that ended well; of those that failed: merges."""
    merging = runs[runs["params"].map(lambda params: params.get("tau") is not None).astype(bool)]
    known = merging["steps"].map(lambda steps: steps["merge_kl"].notna().any()).astype(bool)
    probes = merging[known | ~merging["ok"].astype(bool)]
    probes = probes[probes["block"].isin(probes.loc[probes["ok"].astype(bool), "block"])]
    if probes.empty:
        raise NoResultsError("no run compared the draft's distributions with and without merging")
    places, edges = map(_place, probes["params"]), probes["steps"].map(graph_metrics.merge_divergences)
    return frame.put(probes, place=places, merges=edges)


def _with_unrun(runs: pd.DataFrame) -> pd.DataFrame:
    """The runs of a block and the paper's places without one, by k and tau."""
    lost = [place for place in _printed() if place not in set(runs["place"])]
    empty = frame.put(pd.DataFrame([frame.unrun(runs.iloc[0]) for _ in lost], columns=runs.columns), place=lost)
    return pd.concat([runs.astype(object), empty]).sort_values("place", kind="stable")


def _same(rows: pd.DataFrame) -> Iterator[str]:
    """Why runs of several k have one KL: no more children of a node go on than the threshold leaves."""
    known = [run for run in tables.named_rows(rows) if run.ok and len(run.merges) and run.params.get("theta_prob")]
    least = min((float(run.params["theta_prob"]) for run in known), default=1.0)
    most = math.floor(1 / least + 1e-9)
    by_tau: dict[int, list[Any]] = {}
    for run in known:
        if run.place[0] >= most:
            by_tau.setdefault(run.tau, []).append(run)
    several = [group for group in by_tau.values() if len(group) > 1]
    means = [{round(run.merges["kl"].mean(), KL.digits) for run in group} for group in several]
    if alike := [group for group, values in zip(several, means, strict=True) if len(values) == 1]:
        names = " and ".join(_k(k) for k in sorted({run.place[0] for group in alike for run in group}))
        yield (
            f"{rows['setting'].iloc[0]}: k = {names} have one KL at {len(alike)} of {len(several)} tau. With "
            f"theta_prob = {least:g} at most {most} children of a node go on, and only these are merged: what a larger "
            "k adds are leaves, which change later steps if one is accepted."
        )
