"""Uncertainty: percentile bootstrap over whole conversations, whose turns and steps are not independent of each other.

Every function takes the same number of conversations, with replacement, as there are. The draws depend on the seed and
the number of conversations alone, not on the order of the rows, so an interval can be computed again from the files.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Interval:
    """A measured value, its interval, and `n`, the number of conversations behind it; nan bounds where n < 2."""

    value: float
    low: float
    high: float
    n: int


def bootstrap(
    frame: pd.DataFrame,
    statistic: Callable[[pd.DataFrame], float],
    *,
    by: str = "prompt_id",
    resamples: int = 1000,
    level: float = 0.95,
    seed: int = 0,
) -> Interval:
    """Interval of any statistic of a frame, resampling the clusters that `by` names.

    The statistic is computed once per resample: for a ratio of sums, `ratio_of_sums` gives the same numbers faster.
    """
    groups = {} if frame.empty else frame.groupby(by).indices
    clusters = [np.asarray(rows, dtype=np.int64) for _, rows in sorted(groups.items())]
    value = statistic(frame)
    if len(clusters) < 2:
        return Interval(value, math.nan, math.nan, len(clusters))
    draws = _draw_counts(len(clusters), resamples, seed)
    values = np.array([statistic(_resample(frame, clusters, counts, by)) for counts in draws], dtype=np.float64)
    return Interval(value, *_percentiles(values, level), len(clusters))


def ratio_of_sums(
    frame: pd.DataFrame,
    numerator: str,
    denominator: str | None = None,
    by: str = "prompt_id",
    *,
    resamples: int = 1000,
    level: float = 0.95,
    seed: int = 0,
) -> Interval:
    """Interval of sum(numerator) / sum(denominator), resampling clusters; without a denominator: per row."""
    if frame.empty:
        return Interval(math.nan, math.nan, math.nan, 0)
    grouped = frame.groupby(by)
    below = grouped.size() if denominator is None else grouped[denominator].sum()
    sums = np.column_stack([grouped[numerator].sum(), below]).astype(float)
    return of_sums(sums, lambda total: _divide(total[0], total[1]), resamples, level, seed)


def of_totals(
    frame: pd.DataFrame,
    statistic: Callable[[Mapping[str, NDArray[np.float64]]], NDArray[np.float64]],
    by: str = "prompt_id",
    *,
    resamples: int = 1000,
    level: float = 0.95,
    seed: int = 0,
) -> Interval:
    """Interval of a function of the totals of all other columns, which sees all resamples at once."""
    if frame.empty:
        return Interval(math.nan, math.nan, math.nan, 0)
    sums = frame.groupby(by).sum()
    values = sums.to_numpy(dtype=float)
    return of_sums(values, lambda total: statistic(dict(zip(sums.columns, total, strict=True))), resamples, level, seed)


def of_sums(
    sums: NDArray[np.float64],
    statistic: Callable[[NDArray[np.float64]], NDArray[np.float64]],
    resamples: int = 1000,
    level: float = 0.95,
    seed: int = 0,
) -> Interval:
    """Interval of a statistic of column totals; `sums` is [clusters, columns], the statistic sees [columns, ...]."""
    value, clusters = float(statistic(sums.sum(axis=0))), len(sums)
    if clusters < 2:
        return Interval(value, math.nan, math.nan, clusters)
    return Interval(value, *_percentiles(statistic(totals(sums, resamples, seed)), level), clusters)


def totals(sums: NDArray[np.float64], resamples: int = 1000, seed: int = 0) -> NDArray[np.float64]:
    """Column totals of resampled clusters, [columns, resamples]; `sums` is [clusters, columns]."""
    return (_draw_counts(len(sums), resamples, seed) @ sums).T


def needed(found: Interval, low: float, high: float) -> float:
    """Clusters after which an interval would lie wholly within or wholly outside [low, high]; inf: no number would.

    Its value is taken to stay, its reach to shrink with the root of their number. It needs no more than it has where it
    lies so already.
    """
    if math.isnan(found.value + found.low + found.high):
        return math.inf
    if low <= found.value <= high:
        shares = [
            _share(found.value - found.low, found.value - low),
            _share(found.high - found.value, high - found.value),
        ]
        return found.n * max(1.0, *shares)
    above = found.value > high
    reach, room = (
        (found.value - found.low, found.value - high) if above else (found.high - found.value, low - found.value)
    )
    return found.n * max(1.0, _share(reach, room))


def _share(reach: float, room: float) -> float:
    """By how many times as many clusters an interval's reach fits into its room."""
    return (max(reach, 0.0) / room) ** 2 if room > 0 else math.inf if reach > 0 else 0.0


@functools.lru_cache(maxsize=64)
def _draw_counts(clusters: int, resamples: int, seed: int) -> NDArray[np.int64]:
    """How often each cluster is drawn in each resample: [resamples, clusters], rows sum to the number of clusters."""
    drawn = np.random.default_rng(seed).multinomial(clusters, np.full(clusters, 1 / clusters), size=resamples)
    drawn.setflags(write=False)
    return drawn


def _resample(
    frame: pd.DataFrame, clusters: list[NDArray[np.int64]], counts: NDArray[np.int64], by: str
) -> pd.DataFrame:
    drawn = [clusters[cluster] for cluster in np.repeat(np.arange(len(clusters)), counts)]
    # A conversation drawn twice is two conversations: under its old name a statistic that groups would merge them.
    names = np.repeat(np.arange(len(drawn)), [len(rows) for rows in drawn])
    return frame.iloc[np.concatenate(drawn)].assign(**{by: names})


def _percentiles(values: NDArray[np.float64], level: float) -> tuple[float, float]:
    finite = values[np.isfinite(values)]  # a resample without a denominator says nothing
    if not len(finite):
        return math.nan, math.nan
    low, high = np.quantile(finite, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def _divide(numerator: NDArray[np.float64], denominator: NDArray[np.float64]) -> NDArray[np.float64]:
    numerator, denominator = np.asarray(numerator), np.asarray(denominator)
    return np.divide(numerator, denominator, out=np.full(numerator.shape, np.nan), where=denominator != 0)
