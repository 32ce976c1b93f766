"""Improved MCSD, Figure 7: what decision models say of tokens that were accepted and of others, and how far apart."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from numpy.typing import NDArray

from specdec_trees import published
from specdec_trees.artifacts import frame, style, tables
from specdec_trees.artifacts.metrics import Metric
from specdec_trees.artifacts.outputs import NoResultsError, Output
from specdec_trees.artifacts.table import table
from specdec_trees.artifacts.tables import named_rows
from specdec_trees.papers.improving_mcsd import decisions
from specdec_trees.papers.improving_mcsd.methods import PAPER
from specdec_trees.results.store import Results
from specdec_trees.statistics import intervals
from specdec_trees.statistics.intervals import Interval

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


def _of_fate(tokens: pd.DataFrame, fate: bool) -> pd.Series:
    """The scores of the accepted tokens, or of the rejected ones."""
    return tokens["score"][tokens["accepted"].astype(bool) == fate]


def _beyond(tokens: pd.DataFrame, fate: bool) -> float:
    """The share of the tokens of one fate that are on the other side of the paper's threshold."""
    scores = _of_fate(tokens, fate)
    return float(((scores > BETA) != fate).mean())


ROWS = ("pair", "dataset", "temperature", "kind")
METRICS = (
    Metric(
        "accepted",
        "accepted",
        "share of the scored tokens that were accepted",
        lambda model: float(model.tokens["accepted"].mean()),
        percent=True,
    ),
    Metric(
        "auc",
        "AUC",
        "probability that an accepted token has a higher score than a rejected one, ties counted half; 0.5 tells "
        f"nothing; in brackets the 95% interval ({intervals.METHOD} over conversations)",
        lambda model: auc(model.tokens),
        3,
    ),
    Metric(
        "overlap",
        "overlap",
        f"area that the two histograms of {BINS} bins share: 0 apart, 1 alike",
        lambda model: overlap(model.tokens),
        3,
    ),
    Metric(
        "accepted_below",
        "accepted, below",
        f"share of the accepted tokens whose score is not above the paper's threshold of {BETA:g}: alone they would "
        "end a tree too early",
        lambda model: _beyond(model.tokens, True),
        percent=True,
    ),
    Metric(
        "rejected_above",
        "rejected, above",
        f"share of the rejected tokens whose score is above the paper's threshold of {BETA:g}: a tree goes on for them "
        "in vain",
        lambda model: _beyond(model.tokens, False),
        percent=True,
    ),
    Metric(
        "num_prompts",
        "trained on",
        "conversations; none of them is scored here",
        lambda model: float(model.num_prompts),
        0,
    ),
    Metric(
        "conversations",
        "conversations",
        "whose tokens are scored; they also chose the epoch whose weights were kept, so that others may be scored "
        "worse",
        lambda model: float(model.tokens["prompt_id"].nunique()),
        0,
    ),
    Metric(
        "num_tokens",
        "tokens",
        "drafted tokens that were scored, with the fate of each: accepted with probability min(1, p/q)",
        lambda model: float(len(model.tokens)),
        0,
    ),
)
"""Of the tokens that a decision model scored and was not trained on, as rows."""
ASIDE = ("dataset", "temperature", *(metric.key for metric in METRICS[3:]))


def scores(name: str, results: Results) -> list[Output]:
    """One panel per decision model, two histograms laid over each other; a table of how far they are apart."""
    if results.decisions.empty:
        raise NoResultsError("no decision model scored a token; run it with measure=decision")
    models = _models(results.decisions)
    degrees = models["temperature"].map("temperature {:g}".format)
    columns = (models["pair"], models["dataset"], degrees, models["device_name"])
    words = ", ".join(" / ".join(column.unique()) for column in columns)
    figure = style.drawn(name, TITLE, words, _draw, [(one,) for one in named_rows(models)], models["run_id"])
    below = (*_notes(models), *decisions.not_those_of("Figure 8", results))
    long, means = frame.measure(models, METRICS), {"kind": "; ".join(_READS.values())}
    return [figure, table(name, figure.title, long, ROWS, METRICS, aside=ASIDE, notes=below, means=means)]


def _models(decisions: pd.DataFrame) -> pd.DataFrame:
    """A row per model, by pair and by what it reads, with the `tokens` that it scored."""
    parts = [tokens for _, tokens in decisions.groupby(_MODEL, sort=False)]
    firsts = pd.DataFrame([tokens.iloc[0] for tokens in parts]).reset_index(drop=True)
    place = firsts["kind"].map([*_READS].index)
    firsts = frame.put(firsts.assign(block=range(len(firsts)), ok=True, place=place), tokens=parts)
    firsts = firsts.sort_values(["pair", "place"], kind="stable", ignore_index=True)
    return frame.put(firsts, name=[_name(one, firsts) for _, one in firsts.iterrows()])


def _name(model: pd.Series, models: pd.DataFrame) -> str:
    """Pair and kind, and what else tells a model from the others."""
    alike = models[(models[["pair", "kind"]] == model[["pair", "kind"]]).all(axis=1)]
    more = [column for column in _MODEL if alike[column].nunique() > 1]
    words = [f"{column.replace('_', ' ')} {str(model[column])[:12]}" for column in more]
    return ", ".join([model["pair"], model["kind"], *words])


def _draw(axes: Axes, model: Any) -> None:
    edges = np.linspace(0, 1, BINS + 1)
    for fate, colour, line in ((True, style.COLOURS[0], "-"), (False, style.COLOURS[1], "--")):
        scored = _of_fate(model.tokens, fate)
        shares = histogram(scored) / max(len(scored), 1)
        axes.stairs(shares, edges, fill=True, color=colour, alpha=0.35)
        label = f"{'accepted' if fate else 'rejected'}: {len(scored)} tokens"
        axes.stairs(shares, edges, color=colour, linewidth=1.6, linestyle=line, label=label)
    axes.axvline(BETA, color="black", linestyle=":", linewidth=1.4, label=f"the paper's threshold: {BETA:g}")
    apart = f"AUC {tables.number(auc(model.tokens).value)}, overlap {tables.number(overlap(model.tokens))}"
    axes.set_title(f"{model.name}\n{apart}")
    axes.set(xlim=(0, 1), xlabel="score of the decision model", ylabel="share of the tokens of this fate")
    style.legend_below(axes)


def _notes(models: pd.DataFrame) -> Iterator[str]:
    yield (
        "The paper shows its hidden model alone and prints no number: its histograms share a significant area, by "
        "which it explains that trees end early."
    )
    yield "Histograms are shares of the tokens of one fate: what they have in common does not depend on their numbers."
    for model in named_rows(models):
        if model.tokens["accepted"].nunique() < 2:
            yield f"{model.name}: all tokens had the same fate, so that nothing can be told apart."


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
        won, of = _weighed(times, wins), _weighed(times, pairs)
        return np.divide(won, of, out=np.full(of.shape, np.nan), where=of != 0)

    return intervals.of_totals(drawn, value, scale="logit")


def _wins(accepted: list[Floats], rejected: list[Floats]) -> Floats:
    """[i, j]: pairs of an accepted token of conversation i and a rejected one of j that the first wins, ties half."""
    pooled, of = np.concatenate(accepted), np.repeat(np.arange(len(accepted)), list(map(len, accepted)))
    columns = [
        (np.searchsorted(scores, pooled, "left") + np.searchsorted(scores, pooled, "right")) / 2 for scores in rejected
    ]
    return np.stack([np.bincount(of, column, minlength=len(accepted)) for column in columns], axis=1)


def _weighed(times: Floats, counts: Floats) -> Floats:
    """Sum of the counts of all two conversations, as often as both were drawn: [...] of [conversations, ...]."""
    return np.asarray(np.einsum("i...,ij,j...->...", times, counts, times, optimize=True))
