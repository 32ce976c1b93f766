"""Samples: a metric of one run as sums over its conversations, so that two runs can be compared in pairs.

A metric is a product of sums over conversations, divided by a product of others: MAL is tokens / steps, the speedup
(seconds of the baseline x tokens) / (tokens of the baseline x seconds). The ratio of two runs' metrics is resampled
over the conversations that both decoded, so that what one prompt gives to both does not widen the interval.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bench import stats
from bench.records import AUTOREGRESSIVE, METHOD
from bench.stats import Interval

_TURN = ["prompt_id", "turn"]
_ROUNDING = 1e-9
"""Of a run against its equal: sums are multiplied in another order above the line than below it."""
NOTHING = Interval(math.nan, math.nan, math.nan, 0)


@dataclass(frozen=True, slots=True)
class Sample:
    """`sums` has a row per conversation; the metric is the product of `over`'s totals / the product of `under`'s."""

    sums: pd.DataFrame
    over: tuple[str, ...]
    under: tuple[str, ...] = ()


def mal(steps: pd.DataFrame) -> Sample:
    """New tokens / decoding steps."""
    lengths = steps.groupby("prompt_id")["acceptance_length"]
    return Sample(pd.DataFrame({"tokens": lengths.sum(), "steps": lengths.size()}), ("tokens",), ("steps",))


def speedup(prompts: pd.DataFrame) -> Sample:
    """Decoding seconds per token, autoregressive / method, of the turns that ended well in both arms."""
    method, base = (_turns(prompts, arm) for arm in (METHOD, AUTOREGRESSIVE))
    both = method.join(base.add_suffix("_base"), how="inner").groupby("prompt_id").sum()
    return Sample(both, ("seconds_base", "tokens"), ("tokens_base", "seconds"))


def tokens_per_s(prompts: pd.DataFrame, arm: str = METHOD) -> Sample:
    """Decoded tokens / seconds of decoding of an arm, without the prefill and the token drawn from it."""
    return Sample(_turns(prompts, arm).groupby("prompt_id").sum(), ("tokens",), ("seconds",))


def mean(values: pd.Series) -> Sample:
    """The mean over conversations of one value for each; `values` is indexed by prompt_id, missing ones left out."""
    kept = values.dropna().astype(float)
    return Sample(pd.DataFrame({"value": kept, "conversations": 1.0}), ("value",), ("conversations",))


def interval(sample: Sample) -> Interval:
    """The metric with its 95% interval over conversations."""
    return _interval(sample.sums, sample.over, sample.under)


def paired_ratio(first: Sample, other: Sample) -> Interval:
    """The first metric / the other over the conversations that both decoded, with its interval; nan without any."""
    both = first.sums.add_suffix("/first").join(other.sums.add_suffix("/other"), how="inner")
    over = [f"{name}/first" for name in first.over] + [f"{name}/other" for name in other.under]
    under = [f"{name}/first" for name in first.under] + [f"{name}/other" for name in other.over]
    return _interval(both, over, under)


def tied(ratio: Interval) -> bool:
    """Whether 1 lies within the interval of a ratio: neither run is ahead. False where there is no interval."""
    return ratio.low - _ROUNDING <= 1 <= ratio.high + _ROUNDING


def resolution(ratio: Interval) -> float:
    """How far from 1 the interval of a run against its like reaches: smaller differences are not resolved."""
    return max(abs(ratio.high - 1), abs(1 - ratio.low))


def _turns(prompts: pd.DataFrame, arm: str) -> pd.DataFrame:
    """Seconds and decoded tokens of the turns of an arm that ended well."""
    rows = prompts[(prompts["status"] == "ok") & (prompts["arm"] == arm)]
    return rows.set_index(_TURN)[["decode_s", "num_decoded_tokens"]].set_axis(["seconds", "tokens"], axis=1)


def _interval(sums: pd.DataFrame, over: tuple[str, ...] | list[str], under: tuple[str, ...] | list[str]) -> Interval:
    if sums.empty:
        return NOTHING

    def value(total: Mapping[str, NDArray[np.float64]]) -> NDArray[np.float64]:
        above, below = (math.prod((total[name] for name in names), start=np.float64(1)) for names in (over, under))
        return np.divide(above, below, out=np.full(np.shape(below), np.nan), where=np.asarray(below) != 0)

    return stats.of_totals(sums.rename_axis("prompt_id").reset_index(), value)
