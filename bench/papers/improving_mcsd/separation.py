"""How far apart a decision model's scores of accepted and of rejected tokens are, with intervals over conversations."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bench.statistics import intervals
from bench.statistics.intervals import Interval

BINS = 20
Floats = NDArray[np.float64]


def histogram(scores: pd.Series) -> Floats:
    """Number of scores in each of 20 bins of equal width over [0, 1]; a border counts above it, 1 in the last."""
    index = np.clip((scores.to_numpy(dtype=float) * BINS).astype(int), 0, BINS - 1)
    return np.bincount(index, minlength=BINS).astype(float)


def overlap(rows: pd.DataFrame) -> float:
    """Sum over bins of the smaller of two shares, of the accepted tokens and of the rejected: 0 apart, 1 alike.

    `rows` are `DecisionRow`s. nan where all tokens had the same fate. No interval: thin histograms have less in common,
    and those of a resample are thinner.
    """
    accepted = rows["accepted"].astype(bool)
    if accepted.nunique() < 2:
        return math.nan
    shares = [histogram(rows["score"][those]) / those.sum() for those in (accepted, ~accepted)]
    return float(np.minimum(*shares).sum())


def auc(rows: pd.DataFrame) -> Interval:
    """Probability that an accepted token has a higher score than a rejected one, ties counted half.

    Exact: the pairs are counted once for every two conversations, and a resample weighs these counts. nan where all
    tokens had the same fate.
    """
    groups = dict(iter(rows.groupby("prompt_id")))
    accepted, rejected = ([_sorted(group, fate) for group in groups.values()] for fate in (True, False))
    wins = _wins(accepted, rejected)
    pairs = np.outer(list(map(len, accepted)), list(map(len, rejected))).astype(float)
    drawn = pd.DataFrame(np.eye(len(groups))).rename(columns=str).assign(prompt_id=list(groups))

    def value(total: Mapping[str, Floats]) -> Floats:
        times = np.stack([np.asarray(total[str(place)]) for place in range(len(groups))])
        return _share(_weighed(times, wins), _weighed(times, pairs))

    return intervals.of_totals(drawn, value)


def _sorted(rows: pd.DataFrame, fate: bool) -> Floats:
    return np.sort(rows["score"][rows["accepted"].astype(bool) == fate].to_numpy(dtype=float))


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
