"""Rows of which samples are made, and the numbers of an interval."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd
from scipy import stats

from specdec_trees.statistics.intervals import Interval


def steps_of(lengths: dict[str, list[int]], depth=99, own=1) -> pd.DataFrame:
    """Steps of so many tokens each, of which `own` is the target's."""
    rows = [(prompt, length, length - own) for prompt, several in lengths.items() for length in several]
    return pd.DataFrame(rows, columns=["prompt_id", "acceptance_length", "num_accepted"]).assign(depth=depth)


def prompts_of(seconds: dict[str, tuple[float, float]], tokens: int = 10) -> pd.DataFrame:
    """A turn of so many tokens in both arms: seconds of the method, of the baseline."""
    rows = [
        {"run_id": "r", "prompt_id": prompt, "turn": 0, "arm": arm, "status": "ok", "decode_s": second}
        | {"num_decoded_tokens": tokens}
        for prompt, both in seconds.items()
        for arm, second in zip(("method", "autoregressive"), both, strict=True)
    ]
    return pd.DataFrame(rows)


def jackknife(value: float, without: Sequence[float], c: float = 5.0) -> tuple[float, float, float, int]:
    """The numbers of an interval by its rule, from the values without each conversation."""
    moved, n = np.log(without), len(without)
    reach = stats.t.ppf(0.975, n - 1) * (1 + c / n) * math.sqrt((n - 1) / n * np.sum((moved - moved.mean()) ** 2))
    return value, value * math.exp(-reach), value * math.exp(reach), n


def numbers(found: Interval) -> tuple[float, ...]:
    return found.value, found.low, found.high, found.n
