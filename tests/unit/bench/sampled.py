"""Rows of which samples are made, and the numbers of an interval."""

from __future__ import annotations

import numpy as np
import pandas as pd

from bench.statistics.intervals import Interval


def steps_of(lengths: dict[str, list[int]]) -> pd.DataFrame:
    rows = [(prompt, length) for prompt, every in lengths.items() for length in every]
    return pd.DataFrame(rows, columns=["prompt_id", "acceptance_length"])


def prompts_of(seconds: dict[str, tuple[float, float]], tokens: int = 10) -> pd.DataFrame:
    """A turn of so many tokens in both arms: seconds of the method, of the baseline."""
    rows = [
        {"run_id": "r", "prompt_id": prompt, "turn": 0, "arm": arm, "status": "ok", "decode_s": second}
        | {"num_decoded_tokens": tokens}
        for prompt, both in seconds.items()
        for arm, second in zip(("method", "autoregressive"), both, strict=True)
    ]
    return pd.DataFrame(rows)


def counts_of(conversations: int) -> np.ndarray:
    share = np.full(conversations, 1 / conversations)
    return np.random.default_rng(0).multinomial(conversations, share, size=1000)


def numbers(found: Interval) -> tuple[float, ...]:
    return found.value, found.low, found.high, found.n
