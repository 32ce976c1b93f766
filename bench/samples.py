"""Samples: a metric of one run as sums over its conversations, so that two runs can be compared in pairs.

A metric is a product of sums over conversations, divided by a product of others: MAL is tokens / steps, the speedup
(seconds of the baseline x tokens) / (tokens of the baseline x seconds). What two runs differ by is resampled
over the conversations that both decoded, so that what one prompt gives to both does not widen the interval.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bench import stats
from bench.records import AUTOREGRESSIVE, METHOD
from bench.stats import Interval

_TURN = ["prompt_id", "turn"]
_Columns = tuple[list[int], list[int]]
"""Of the sums above the line and below it."""
NOTHING = Interval(math.nan, math.nan, math.nan, 0)


@dataclass(frozen=True, slots=True)
class Sample:
    """`sums` has a row per conversation; the metric is the product of `over`'s totals / the product of `under`'s.

    `control` is a metric of the same run that another run should have too, were it not for the machine: the speed of
    its autoregressive arm. Conversations drawn anew know nothing of what changed between two runs; it does.
    """

    sums: pd.DataFrame
    over: tuple[str, ...]
    under: tuple[str, ...] = ()
    control: Sample | None = None

    def of(self, conversations: pd.Index) -> Sample:
        """The same of some conversations."""
        control = self.control.of(conversations) if self.control else None
        return replace(self, sums=self.sums[self.sums.index.isin(conversations)], control=control)


def mal(steps: pd.DataFrame) -> Sample:
    """New tokens / decoding steps."""
    lengths = steps.groupby("prompt_id")["acceptance_length"]
    return Sample(pd.DataFrame({"tokens": lengths.sum(), "steps": lengths.size()}), ("tokens",), ("steps",))


def speedup(prompts: pd.DataFrame) -> Sample:
    """Decoding seconds per token, autoregressive / method, of the turns that ended well in both arms."""
    method, base = (_turns(prompts, arm) for arm in (METHOD, AUTOREGRESSIVE))
    both = method.join(base.add_suffix("_base"), how="inner").groupby("prompt_id").sum()
    control = tokens_per_s(prompts, AUTOREGRESSIVE)
    return Sample(both, ("seconds_base", "tokens"), ("tokens_base", "seconds"), control)


def tokens_per_s(prompts: pd.DataFrame, arm: str = METHOD) -> Sample:
    """Decoded tokens / seconds of decoding of an arm, without the prefill and the token drawn from it."""
    control = tokens_per_s(prompts, AUTOREGRESSIVE) if arm == METHOD else None
    return Sample(_turns(prompts, arm).groupby("prompt_id").sum(), ("tokens",), ("seconds",), control)


def mean(values: pd.Series) -> Sample:
    """The mean over conversations of one value for each; `values` is indexed by prompt_id, missing ones left out."""
    kept = values.dropna().astype(float)
    return Sample(pd.DataFrame({"value": kept, "conversations": 1.0}), ("value",), ("conversations",))


def interval(sample: Sample) -> Interval:
    """The metric with its 95% interval over conversations."""
    return _interval(sample.sums.sort_index().to_numpy(dtype=float), lambda total: _value(total, *_columns(sample)))


def paired_ratio(first: Sample, other: Sample) -> Interval:
    """The first metric / the other over the conversations that both decoded, with its interval; nan without any."""
    both, ((over, under), (over_other, under_other)) = _joined(first, other)
    return _interval(both, lambda total: _value(total, over + under_other, under + over_other))


def ahead(first: Sample, other: Sample) -> int | None:
    """1 where the first metric is the larger one, -1 where it is the smaller one, 0 for a tie; None if it is unknown.

    A tie: the 95% interval of the difference holds 0 (drawn over the conversations that both decoded), or the two are
    no further apart than their controls may be. With the metrics in the other order the answer is the negative.
    """
    both, sides = _joined(first, other)
    difference = _interval(both, lambda total: _value(total, *sides[0]) - _value(total, *sides[1]))
    if not math.isfinite(difference.low + difference.high):
        return None
    if first.control and other.control:
        apart = paired_ratio(first, other).value
        if apart > 0 and max(apart, 1 / apart) - 1 <= resolution(paired_ratio(first.control, other.control)):
            return 0
    return int(difference.low > 0) - int(difference.high < 0)


def resolution(ratio: Interval) -> float:
    """How far from 1 the interval of a run against its like reaches, either way round: less is not resolved."""
    return max(ratio.high, 1 / ratio.low if ratio.low > 0 else math.inf) - 1


def _turns(prompts: pd.DataFrame, arm: str) -> pd.DataFrame:
    """Seconds and decoded tokens of the turns of an arm that ended well."""
    rows = prompts[(prompts["status"] == "ok") & (prompts["arm"] == arm)]
    return rows.set_index(_TURN)[["decode_s", "num_decoded_tokens"]].set_axis(["seconds", "tokens"], axis=1)


def _joined(first: Sample, other: Sample) -> tuple[NDArray[np.float64], tuple[_Columns, _Columns]]:
    """Sums of both over the conversations of both, [conversations, columns]; in which columns each metric stands."""
    shared = first.sums.index.intersection(other.sums.index).sort_values()
    sums = np.hstack([sample.sums.loc[shared].to_numpy(dtype=float) for sample in (first, other)])
    return sums, (_columns(first), _columns(other, len(first.sums.columns)))


def _columns(sample: Sample, start: int = 0) -> _Columns:
    names = list(sample.sums.columns)
    return [start + names.index(name) for name in sample.over], [start + names.index(name) for name in sample.under]


def _value(total: NDArray[np.float64], over: list[int], under: list[int]) -> NDArray[np.float64]:
    above, below = total[over].prod(axis=0), total[under].prod(axis=0)
    return np.divide(above, below, out=np.full(np.shape(below), np.nan), where=np.asarray(below) != 0)


def _interval(sums: NDArray[np.float64], value: Callable[[NDArray[np.float64]], NDArray[np.float64]]) -> Interval:
    return stats.of_sums(sums, value) if len(sums) else NOTHING
