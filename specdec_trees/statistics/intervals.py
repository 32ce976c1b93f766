"""Uncertainty: a jackknife over whole conversations, whose turns and steps are not independent of each other.

Each conversation is left out once. What the metric's logarithm then moves by gives its standard error, Student's t over
one less than the conversations the reach. So few conversations miss the rare ones that metrics hang on: the reach is
stretched by 1 + c / n, with c by measured coverage (`specdec_trees.statistics.coverage`). Nothing is drawn, so that
nothing hangs on a seed. Below `FEWEST` conversations there is no interval, but the range of what each of them gives.

Jackknife: Tukey 1958; several strata: Jones 1974, with the degrees of freedom of Satterthwaite 1946.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import special

METHOD = "jackknife"
"""How intervals are made, for legends."""
LEVEL = 0.95
FEWEST = 6
"""Conversations that can decide: a sign test of fewer never reaches 5%."""
ALONE, EVEN, IN_PAIRS = 5.0, 1.0, 1.0
"""The c of the stretch: of a metric of one run; of E(A), to which rare conversations matter less; of two runs over the
same conversations, which share the rare."""
Scale = Literal["log", "logit", "plain"]
"""On what the standard error is taken: of what is above 0, of a share of 1, of a difference."""
_ROUNDING = 1e-12


@dataclass(frozen=True, slots=True)
class Interval:
    """A measured value, its interval, and `n`, the number of conversations behind it; nan bounds where n < 2.

    Below `FEWEST` conversations the bounds are the least and the largest value of any of them. `freedom`: Student's
    degrees of freedom, where they are fewer than n - 1, as of a mean over several datasets.
    """

    value: float
    low: float
    high: float
    n: int
    freedom: float = math.inf

    @property
    def degrees(self) -> float:
        """Degrees of freedom of Student's t behind the ends."""
        return min(self.freedom, self.n - 1)

    @property
    def known(self) -> bool:
        """Whether there is an interval, and not a range of few conversations or nothing."""
        return self.n >= FEWEST and math.isfinite(self.low + self.high)

    @property
    def ends(self) -> tuple[float, float]:
        """The bounds of an interval, nan of a range: figures draw no interval where there is none."""
        return (self.low, self.high) if self.known else (math.nan, math.nan)

    def within(self, least: float, most: float) -> Interval:
        """The same where the value can lie by its definition; a range of few conversations as it is."""
        return replace(self, low=max(self.low, least), high=min(self.high, most)) if self.known else self


def ratio_of_sums(
    frame: pd.DataFrame,
    numerator: str,
    denominator: str | None = None,
    by: str = "prompt_id",
    *,
    stretch: float = ALONE,
    scale: Scale = "log",
) -> Interval:
    """Interval of sum(numerator) / sum(denominator) over clusters; without a denominator: per row.

    Clusters in which both are 0 say nothing of the ratio and do not count.
    """
    if frame.empty:
        return Interval(math.nan, math.nan, math.nan, 0)
    grouped = frame.groupby(by)
    below = grouped.size() if denominator is None else grouped[denominator].sum()
    sums = np.column_stack([grouped[numerator].sum(), below]).astype(float)
    sums = sums[(sums != 0).any(axis=1)]
    return of_sums(sums, lambda total: _divide(total[0], total[1]), stretch=stretch, scale=scale)


def of_totals(
    frame: pd.DataFrame,
    statistic: Callable[[Mapping[str, NDArray[np.float64]]], NDArray[np.float64]],
    by: str = "prompt_id",
    *,
    scale: Scale = "log",
) -> Interval:
    """Interval of a function of the totals of all other columns, which sees all that is left at once."""
    if frame.empty:
        return Interval(math.nan, math.nan, math.nan, 0)
    sums = frame.groupby(by).sum()
    values = sums.to_numpy(dtype=float)
    return of_sums(values, lambda total: statistic(dict(zip(sums.columns, total, strict=True))), scale=scale)


def of_sums(
    sums: NDArray[np.float64],
    statistic: Callable[[NDArray[np.float64]], NDArray[np.float64]],
    *,
    stretch: float = ALONE,
    scale: Scale = "log",
    strata: NDArray[np.integer[Any]] | None = None,
) -> Interval:
    """Interval of a statistic of column totals; `sums` is [clusters, columns], the statistic sees [columns, ...].

    `strata` says of each cluster which of several populations it is of, such as datasets.
    """
    value, clusters = float(statistic(sums.sum(axis=0))), len(sums)
    if clusters < FEWEST:
        return Interval(value, *_range(statistic(sums.T)), clusters)
    if scale == "log" and (sums < 0).any():
        scale = "plain"  # a mean of differences, which has both signs
    without = np.asarray(statistic(left_out(sums)), dtype=float)
    low, high, freedom = bounds(np.asarray(value), without, stretch, scale, strata)
    return Interval(value, float(low), float(high), clusters, float(freedom))


def of_median(values: NDArray[np.float64]) -> Interval:
    """The median of one value per cluster between two of its values, by the sign test, since no jackknife knows it."""
    known, count = np.sort(values), len(values)
    if not count:
        return Interval(math.nan, math.nan, math.nan, 0)
    middle = float(np.median(known))
    if count < FEWEST:
        return Interval(middle, *_range(known), count)
    tails = np.cumsum([math.comb(count, below) / 2**count for below in range(count)])
    place = int(np.searchsorted(tails, (1 - LEVEL) / 2, side="right")) - 1
    return Interval(middle, float(known[place]), float(known[-1 - place]), count)


def left_out(sums: NDArray[np.float64]) -> NDArray[np.float64]:
    """Column totals without each cluster in turn, [columns, clusters]; `sums` is [clusters, columns]."""
    total = sums.sum(axis=0)
    rest = total - sums
    return np.where(np.abs(rest) <= _ROUNDING * np.abs(total), 0.0, rest).T  # nothing is left, but for rounding


def bounds(
    value: NDArray[np.float64],
    without: NDArray[np.float64],
    stretch: float,
    scale: Scale = "log",
    strata: NDArray[np.integer[Any]] | None = None,
) -> tuple[NDArray[np.float64], NDArray[np.float64], Any]:
    """Both ends around values [...], from what they are without each of n clusters, [..., n], and degrees of freedom.

    Ends are nan where a value is.

    Values with no place on the scale, such as a logarithm of 0, have theirs on the plain one, cut where the scale ends.
    """
    there, back, least, most = _SCALES[scale]
    inside = np.all((without > least) & (without < most), axis=-1) & (value > least) & (value < most)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        moved, middle = np.where(inside[..., None], there(without), without), np.where(inside, there(value), value)
        error, freedom = _error(moved, strata)
        reach = quantile((1 + LEVEL) / 2, freedom) * (1 + stretch / (freedom + 1)) * error
        reach = np.where(error == 0, 0.0, reach)
        ends = [np.where(inside, back(end), np.clip(end, least, most)) for end in (middle - reach, middle + reach)]
    low, high = (np.where(reach == 0, value, end) for end in ends)  # there and back is not exact
    return low, high, freedom


def _error(moved: NDArray[np.float64], strata: NDArray[np.integer[Any]] | None) -> tuple[NDArray[np.float64], Any]:
    """Jackknife's standard error and its degrees of freedom; nan where a stratum has a single cluster."""
    if strata is None or (strata == strata[0]).all():
        variance, freedom = _variance(moved)
        return np.sqrt(variance), freedom
    parts = [_variance(moved[..., strata == place]) for place in np.unique(strata)]
    variance = np.sum([part for part, _ in parts], axis=0)
    freedom = variance**2 / np.sum([part**2 / free for part, free in parts], axis=0)
    return np.sqrt(variance), freedom


def _variance(moved: NDArray[np.float64]) -> tuple[NDArray[np.float64], float]:
    """Of one stratum, and its degrees of freedom; nan of a single cluster."""
    count = moved.shape[-1]
    apart = moved - moved.mean(axis=-1, keepdims=True)
    apart = np.where(np.abs(apart) <= _ROUNDING * np.maximum(np.abs(moved), 1.0), 0.0, apart)
    variance = (count - 1) / count * (apart**2).sum(axis=-1)
    return (variance, count - 1) if count > 1 else (np.full_like(variance, np.nan), 1)


def quantile(share: float, freedom: Any) -> Any:
    """Below what this share of Student's t lies, by its degrees of freedom, a number or an array."""
    return special.stdtrit(freedom, share)


def needed(found: Interval, low: float, high: float) -> float:
    """Clusters after which an interval would lie wholly within or wholly outside [low, high]; inf: no number would.

    Its value is taken to stay, its reach to shrink with the root of their number. It needs no more than it has where it
    lies so already, and `FEWEST` where these have no interval yet.
    """
    if 0 < found.n < FEWEST:
        return FEWEST
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


def _range(values: NDArray[np.float64]) -> tuple[float, float]:
    """The least and the largest of the values of at least two clusters."""
    finite = values[np.isfinite(values)]
    return (float(finite.min()), float(finite.max())) if len(finite) > 1 else (math.nan, math.nan)


def _divide(numerator: NDArray[np.float64], denominator: NDArray[np.float64]) -> NDArray[np.float64]:
    numerator, denominator = np.asarray(numerator), np.asarray(denominator)
    return np.divide(numerator, denominator, out=np.full(numerator.shape, np.nan), where=denominator != 0)


def _same(values: NDArray[np.float64]) -> NDArray[np.float64]:
    return values


_SCALES: Mapping[Scale, tuple[Callable[..., Any], Callable[..., Any], float, float]] = {
    "log": (np.log, np.exp, 0.0, math.inf),
    "logit": (special.logit, special.expit, 0.0, 1.0),
    "plain": (_same, _same, -math.inf, math.inf),
}
"""There and back, and between what the values lie."""
