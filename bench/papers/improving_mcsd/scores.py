"""Improved MCSD, Figure 7: what decision models say of tokens that were accepted and of others, and how far apart."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from numpy.typing import NDArray

from bench import published
from bench.artifacts import style, tables
from bench.artifacts.metric import Metric, cells, headers, legend
from bench.artifacts.outputs import NoResultsError, Output
from bench.artifacts.tables import Table
from bench.papers.improving_mcsd import decisions
from bench.papers.improving_mcsd.methods import PAPER
from bench.results.store import Results
from bench.statistics import intervals
from bench.statistics.intervals import Interval

TITLE = "Improved MCSD Figure 7: scores of decision models for accepted and for rejected tokens"
BINS = 20
BETA = float(published.find(PAPER, "setup_text", metric="decision_threshold")["value"].iloc[0])
"""The paper's threshold: trees go on while a score is above it."""
_MODEL = ["pair", "dataset", "temperature", "device_name", "kind", "run_id"]
_READS = {
    "hidden": "hidden: reads the draft's hidden state",
    "topk": "topk: reads the 10 largest probabilities and the entropy",
}
Floats = NDArray[np.float64]


def _column(rows: pd.DataFrame, name: str) -> str:
    """What all tokens of a model share."""
    return str(rows[name].iloc[0])


def _of_fate(rows: pd.DataFrame, fate: bool) -> pd.Series:
    """The scores of the accepted tokens, or of the rejected ones."""
    return rows["score"][rows["accepted"].astype(bool) == fate]


COLUMNS = (
    Metric("Pair", lambda rows: _column(rows, "pair")),
    Metric("Dataset", lambda rows: _column(rows, "dataset")),
    Metric("temperature", lambda rows: f"{float(_column(rows, 'temperature')):g}"),
    Metric("Kind", lambda rows: _column(rows, "kind"), "; ".join(_READS.values())),
    Metric("trained on", lambda rows: _column(rows, "num_prompts"), "conversations; none of them is scored here"),
    Metric(
        "conversations",
        lambda rows: str(rows["prompt_id"].nunique()),
        "whose tokens are scored; they also chose the epoch whose weights were kept, so that others may be scored "
        "worse",
    ),
    Metric(
        "tokens",
        lambda rows: str(len(rows)),
        "drafted tokens that were scored, with the fate of each: accepted with probability min(1, p/q)",
    ),
    Metric("accepted", lambda rows: tables.percent(rows["accepted"].mean()), "share of them that were accepted"),
    Metric("mean accepted", lambda rows: _of_fate(rows, True).mean(), "mean score of the accepted tokens", 3),
    Metric("mean rejected", lambda rows: _of_fate(rows, False).mean(), "mean score of the rejected tokens", 3),
    Metric(
        "AUC",
        lambda rows: None if math.isnan((found := auc(rows)).value) else found,
        "probability that an accepted token has a higher score than a rejected one, ties counted half; 0.5 tells "
        f"nothing; in brackets the 95% interval ({intervals.METHOD} over conversations)",
        3,
    ),
    Metric(
        "overlap",
        lambda rows: overlap(rows),
        f"area that the two histograms of {BINS} bins share: 0 apart, 1 alike",
        3,
    ),
    Metric(
        "accepted, below",
        lambda rows: tables.percent((_of_fate(rows, True) <= BETA).mean()),
        f"share of the accepted tokens whose score is not above the paper's threshold of {BETA:g}: alone they would "
        "end a tree too early",
    ),
    Metric(
        "rejected, above",
        lambda rows: tables.percent((_of_fate(rows, False) > BETA).mean()),
        f"share of the rejected tokens whose score is above the paper's threshold of {BETA:g}: a tree goes on for them "
        "in vain",
    ),
)
"""Of the tokens that a decision model scored and was not trained on, as rows."""


def scores(name: str, results: Results) -> list[Output]:
    """One panel per decision model, two histograms laid over each other; a table of how far they are apart."""
    rows = results.decisions
    if rows.empty:
        raise NoResultsError("no decision model scored a token; run it with measure=decision")
    kinds = list(_READS)
    found = [group for _, group in rows.groupby(_MODEL, sort=False)]
    found.sort(key=lambda one: (_column(one, "pair"), kinds.index(_column(one, "kind"))))
    heat = "temperature " + _several(f"{value:g}" for value in rows["temperature"])
    words = ", ".join([_several(rows["pair"]), _several(rows["dataset"]), heat, _several(rows["device_name"])])
    ids, panels = (_column(one, "run_id") for one in found), [(one, _name(one, found)) for one in found]
    figure = style.drawn(name, TITLE, words, _draw, panels, ids)
    frame = tables.frame([cells(COLUMNS, one) for one in found], headers(COLUMNS))
    return [
        figure,
        Table(
            name,
            figure.title,
            frame,
            (*_notes(found), *decisions.not_those_of("Figure 8", results)),
            legend(COLUMNS),
            figure.runs,
        ),
    ]


def _several(values: Iterable[object]) -> str:
    return " / ".join(dict.fromkeys(map(str, values)))


def _name(one: pd.DataFrame, found: Sequence[pd.DataFrame]) -> str:
    """Pair and kind, and what else tells a model from the others."""
    named = ("pair", "kind")
    alike = [other for other in found if all(_column(other, name) == _column(one, name) for name in named)]
    more = [column for column in _MODEL if any(_column(other, column) != _column(one, column) for other in alike)]
    words = [f"{column.replace('_', ' ')} {_column(one, column)[:12]}" for column in more]
    return ", ".join([*(_column(one, name) for name in named), *words])


def _draw(axes: Axes, one: pd.DataFrame, name: str) -> None:
    edges = np.linspace(0, 1, BINS + 1)
    for fate, colour, line in ((True, style.COLOURS[0], "-"), (False, style.COLOURS[1], "--")):
        scored = _of_fate(one, fate)
        shares = histogram(scored) / max(len(scored), 1)
        axes.stairs(shares, edges, fill=True, color=colour, alpha=0.35)
        label = f"{'accepted' if fate else 'rejected'}: {len(scored)} tokens"
        axes.stairs(shares, edges, color=colour, linewidth=1.6, linestyle=line, label=label)
    axes.axvline(BETA, color="black", linestyle=":", linewidth=1.4, label=f"the paper's threshold: {BETA:g}")
    axes.set_title(f"{name}\nAUC {tables.number(auc(one).value)}, overlap {tables.number(overlap(one))}")
    axes.set(xlim=(0, 1), xlabel="score of the decision model", ylabel="share of the tokens of this fate")
    style.legend_below(axes)


def _notes(found: Sequence[pd.DataFrame]) -> Iterator[str]:
    yield (
        "The paper shows its hidden model alone and prints no number: its histograms share a significant area, by "
        "which it explains that trees end early."
    )
    yield "Histograms are shares of the tokens of one fate: what they have in common does not depend on their numbers."
    for one in found:
        if one["accepted"].nunique() < 2:
            yield f"{_name(one, found)}: all tokens had the same fate, so that nothing can be told apart."


def histogram(scores: pd.Series) -> Floats:
    """Number of scores in each of 20 bins of equal width over [0, 1]; a border counts above it, 1 in the last."""
    index = np.clip((scores.to_numpy(dtype=float) * BINS).astype(int), 0, BINS - 1)
    return np.bincount(index, minlength=BINS).astype(float)


def overlap(rows: pd.DataFrame) -> float:
    """Sum over bins of the smaller of two shares, of the accepted tokens and of the rejected: 0 apart, 1 alike.

    `rows` are `DecisionRow`s. nan where all tokens had the same fate. No interval: thin histograms have less in common.
    """
    fates = [_of_fate(rows, fate) for fate in (True, False)]
    if not all(map(len, fates)):
        return math.nan
    shares = [histogram(scored) / len(scored) for scored in fates]
    return float(np.minimum(*shares).sum())


def auc(rows: pd.DataFrame) -> Interval:
    """Probability that an accepted token has a higher score than a rejected one, ties counted half.

    Exact: the pairs are counted once for every two conversations, and one that is left out takes its own away. nan
    where all tokens had the same fate.
    """
    groups = dict(iter(rows.groupby("prompt_id")))
    accepted, rejected = (
        [np.sort(_of_fate(group, fate).to_numpy(dtype=float)) for group in groups.values()] for fate in (True, False)
    )
    wins = _wins(accepted, rejected)
    pairs = np.outer(list(map(len, accepted)), list(map(len, rejected))).astype(float)
    drawn = pd.DataFrame(np.eye(len(groups))).rename(columns=str).assign(prompt_id=list(groups))

    def value(total: Mapping[str, Floats]) -> Floats:
        times = np.stack([np.asarray(total[str(place)]) for place in range(len(groups))])
        return _share(_weighed(times, wins), _weighed(times, pairs))

    return intervals.of_totals(drawn, value, scale="logit")


def _wins(accepted: list[Floats], rejected: list[Floats]) -> Floats:
    """[i, j]: pairs of an accepted token of conversation i and a rejected one of j that the first wins, ties half."""
    every, of = np.concatenate(accepted), np.repeat(np.arange(len(accepted)), list(map(len, accepted)))
    columns = [
        (np.searchsorted(scores, every, "left") + np.searchsorted(scores, every, "right")) / 2 for scores in rejected
    ]
    return np.stack([np.bincount(of, column, minlength=len(accepted)) for column in columns], axis=1)


def _weighed(times: Floats, counts: Floats) -> Floats:
    """Sum of the counts of all two conversations, as often as both were drawn: [...] of [conversations, ...]."""
    return np.asarray(np.einsum("i...,ij,j...->...", times, counts, times, optimize=True))


def _share(part: Floats, whole: Floats) -> Floats:
    return np.divide(part, whole, out=np.full(np.shape(part), np.nan), where=np.asarray(whole) != 0)
