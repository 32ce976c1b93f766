"""Improved MCSD, Figure 7: what decision models say of tokens that were accepted and of others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from bench import published
from bench.artifacts import style, tables
from bench.artifacts.outputs import NoResultsError, Output
from bench.artifacts.tables import Table
from bench.papers.improving_mcsd import separation
from bench.papers.improving_mcsd.settings import PAPER
from bench.results.store import Results
from bench.statistics.intervals import Interval

TITLE = "Improved MCSD Figure 7: scores of decision models for accepted and for rejected tokens"
_MODEL = ["pair", "dataset", "temperature", "device_name", "kind", "run_id"]
_READS = {
    "hidden": "hidden: reads the draft's hidden state",
    "topk": "topk: reads the 10 largest probabilities and the entropy",
}
COLUMNS = (
    *("Pair", "Dataset", "temperature", "Kind", "trained on", "conversations", "tokens", "accepted", "mean accepted"),
    *("mean rejected", "AUC", "overlap", "accepted, below", "rejected, above"),
)


@dataclass(frozen=True)
class _Scored:
    """A decision model, and the tokens that it scored and was not trained on."""

    rows: pd.DataFrame

    @cached_property
    def first(self) -> pd.Series:
        """A row that stands for what all of them share."""
        return self.rows.iloc[0]

    @property
    def accepted(self) -> pd.Series:
        """Which of its tokens were accepted."""
        return self.rows["accepted"].astype(bool)

    @cached_property
    def auc(self) -> Interval:
        """Area under its ROC curve."""
        return separation.auc(self.rows)

    @cached_property
    def overlap(self) -> float:
        """What the two histograms share."""
        return separation.overlap(self.rows)


@style.styled
def scores(name: str, results: Results) -> list[Output]:
    """One panel per decision model, two histograms laid over each other; a table of how far they are apart."""
    rows = results.decisions
    if rows.empty:
        raise NoResultsError("no decision model scored a token; run it with measure=decision")
    kinds = list(_READS)
    found = [_Scored(group) for _, group in rows.groupby(_MODEL, sort=False)]
    found.sort(key=lambda one: (str(one.first["pair"]), kinds.index(one.first["kind"])))
    canvas, axes = style.panels(TITLE, _setting(rows), len(found))
    for axis, one in zip(axes, found, strict=True):
        _draw(axis, one, found)
    title = f"{TITLE} ({_setting(rows)})"
    ids = tuple(str(one.first["run_id"]) for one in found)
    table = Table(name, title, tables.frame(map(_row, found), COLUMNS), tuple(_notes(found)), _legend(), ids)
    return [style.Figure(name, title, canvas, ids), table]


def _beta() -> float:
    """The paper's threshold: trees go on while a score is above it."""
    return float(published.find(PAPER, "setup_text", metric="decision_threshold")["value"].iloc[0])


def _legend() -> dict[str, str]:
    beta = f"the paper's threshold of {_beta():g}"
    return {
        "Kind": "; ".join(_READS.values()),
        "trained on": "conversations; none of them is scored here",
        "conversations": "whose tokens are scored; they also chose the epoch whose weights were kept, so that others "
        "may be scored worse",
        "tokens": "drafted tokens that were scored, with the fate of each: accepted with probability min(1, p/q)",
        "accepted": "share of them that were accepted",
        "mean accepted": "mean score of the accepted tokens",
        "mean rejected": "mean score of the rejected tokens",
        "AUC": "probability that an accepted token has a higher score than a rejected one, ties counted half; 0.5 "
        "tells nothing; in brackets the 95% interval (bootstrap over conversations)",
        "overlap": f"area that the two histograms of {separation.BINS} bins share: 0 apart, 1 alike",
        "accepted, below": f"share of the accepted tokens whose score is not above {beta}: alone they would end a tree "
        "too early",
        "rejected, above": f"share of the rejected tokens whose score is above {beta}: a tree goes on for them in vain",
    }


def _setting(rows: pd.DataFrame) -> str:
    names = [_several(rows[column]) for column in ("pair", "dataset")]
    heat = "temperature " + _several(f"{value:g}" for value in rows["temperature"])
    return ", ".join([*names, heat, _several(rows["device_name"])])


def _several(values: Sequence[object] | pd.Series | Iterator[str]) -> str:
    return " / ".join(dict.fromkeys(map(str, values)))


def _name(one: _Scored, found: Sequence[_Scored]) -> str:
    """Pair and kind, and what else tells a model from the others."""
    first, others = one.first, [other.first for other in found]
    alike = [other for other in others if (other["pair"], other["kind"]) == (first["pair"], first["kind"])]
    more = [column for column in _MODEL if any(other[column] != first[column] for other in alike)]
    words = [f"{column.replace('_', ' ')} {str(first[column])[:12]}" for column in more]
    return ", ".join([str(first["pair"]), str(first["kind"]), *words])


def _draw(axes: Axes, one: _Scored, found: Sequence[_Scored]) -> None:
    edges = np.linspace(0, 1, separation.BINS + 1)
    for index, (fate, those) in enumerate((("accepted", one.accepted), ("rejected", ~one.accepted))):
        scored, colour = one.rows["score"][those], style.COLOURS[index]
        shares = separation.histogram(scored) / max(len(scored), 1)
        axes.stairs(shares, edges, fill=True, color=colour, alpha=0.35)
        label = f"{fate}: {len(scored)} tokens"
        axes.stairs(shares, edges, color=colour, linewidth=1.6, linestyle=("-", "--")[index], label=label)
    label = f"the paper's threshold: {_beta():g}"
    axes.axvline(_beta(), color="black", linestyle=":", linewidth=1.4, label=label)
    axes.set_title(f"{_name(one, found)}\nAUC {tables.number(one.auc.value)}, overlap {tables.number(one.overlap)}")
    axes.set(xlim=(0, 1), xlabel="score of the decision model", ylabel="share of the tokens of this fate")
    style.legend_below(axes)


def _row(one: _Scored) -> dict[str, str]:
    first, score, accepted = one.first, one.rows["score"], one.accepted
    above = score > _beta()
    return {
        "Pair": str(first["pair"]),
        "Dataset": str(first["dataset"]),
        "temperature": f"{first['temperature']:g}",
        "Kind": str(first["kind"]),
        "trained on": str(first["num_prompts"]),
        "conversations": str(one.rows["prompt_id"].nunique()),
        "tokens": str(len(one.rows)),
        "accepted": tables.percent(accepted.mean()),
        "mean accepted": tables.number(score[accepted].mean(), 3),
        "mean rejected": tables.number(score[~accepted].mean(), 3),
        "AUC": _known(one.auc),
        "overlap": tables.number(one.overlap, 3),
        "accepted, below": tables.percent((~above)[accepted].mean()),
        "rejected, above": tables.percent(above[~accepted].mean()),
    }


def _known(value: Interval) -> str:
    return tables.interval(None if np.isnan(value.value) else value, 3)


def _notes(found: Sequence[_Scored]) -> Iterator[str]:
    yield (
        "The paper shows its hidden model alone and prints no number: its histograms share a significant area, by "
        "which it explains that trees end early."
    )
    yield "Histograms are shares of the tokens of one fate: what they have in common does not depend on their numbers."
    for one in found:
        if len(set(one.accepted)) < 2:
            yield f"{_name(one, found)}: all tokens had the same fate, so that nothing can be told apart."
