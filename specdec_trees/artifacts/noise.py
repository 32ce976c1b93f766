"""A/A controls of rows of `frame.load`: how far apart times of the same work lie, so that less is not taken for more.

`itself` sets autoregressive decoding, where it was run as a method, against its own baseline in the same run. `arms`
sets the baselines of different runs, which decode the same prompts, against each other: two runs' tokens per second
have such a stretch of time between them, two speedups have not. `unranked` says whose times rank nothing.
"""

from __future__ import annotations

import itertools
import statistics
from typing import cast

import pandas as pd

from specdec_trees.artifacts import frame
from specdec_trees.artifacts.frame import done
from specdec_trees.results.rows import AUTOREGRESSIVE
from specdec_trees.statistics import samples
from specdec_trees.statistics.intervals import Interval


def itself(runs: pd.DataFrame) -> Interval | None:
    """The speedup of autoregressive decoding over itself, of several runs the widest; None where none is known."""
    gains = done(runs[runs["method"] == AUTOREGRESSIVE])["gain"]
    ratios = [ratio for ratio in map(samples.interval, gains) if ratio.known]
    return max(ratios, key=samples.resolution, default=None)


def baselines(runs: pd.DataFrame) -> pd.DataFrame:
    """The runs that decoded a baseline themselves, with its speed as `baseline`, a sample, and words for `decoding`."""
    own = done(runs[runs["baseline_of"].isna()])
    speeds = [gain.controls[0] for gain in own["gain"]]
    words = map(_decoding, own["temperature"], own["top_p"])
    own = frame.put(own, baseline=speeds, decoding=words)
    return own[pd.Series([len(speed.sums) > 0 for speed in speeds], own.index, dtype=bool)]


def arms(runs: pd.DataFrame) -> pd.DataFrame:
    """A row per `block` and `decoding` of which two baselines can be compared, over the conversations of both.

    `runs` counts the baselines; `widest` is the ratio of two, 1 or more, whose interval reaches furthest, `typical` the
    median of how far from 1 the intervals reach.
    """
    rows = []
    for keys, alike in baselines(runs).groupby(["block", "decoding"], sort=False):
        works = [list(work) for _, work in alike.groupby([*frame.CELL], dropna=False)["baseline"]]
        ratios = [
            samples.upright(samples.paired_ratio(*pair)) for work in works for pair in itertools.combinations(work, 2)
        ]
        if known := [ratio for ratio in ratios if ratio.known]:
            count = sum(len(work) for work in works if len(work) > 1)
            typical = statistics.median(map(samples.resolution, known))
            rows.append((*cast(tuple[int, str], keys), count, max(known, key=samples.resolution), typical))
    return pd.DataFrame(rows, columns=["block", "decoding", "runs", "widest", "typical"])


def unranked(runs: pd.DataFrame) -> pd.Series:
    """Of each row whether its times rank nothing: in a block of its pair and machine equal work lies too far apart.

    It is one decision for a pair on a machine, that all of a table and a figure ask: what was too noisy in one setting
    was measured in the same hours as the others.
    """
    blocks = done(runs).groupby("block", sort=False)
    places = {block: tuple(rows.iloc[0][["pair", "device_name"]]) for block, rows in blocks}
    noisy = {places[block] for block, rows in blocks if too_noisy(rows)}
    return runs["block"].map(lambda block: places.get(block) in noisy).astype(bool)


def too_noisy(block: pd.DataFrame) -> bool:
    """Whether two baselines of a block's runs, which do the same work, mostly lie too far apart to rank anything."""
    speedups = [sample for sample in done(block)["gain"] if len(sample.sums)]
    return samples.too_busy(speedups) or bool((arms(block)["typical"] > samples.TOO_BUSY).any())


def _decoding(temperature: float, top_p: float) -> str:
    if temperature == 0:
        return "greedy"
    return f"temperature {temperature:g}" + (f", top-p {top_p:g}" if top_p != 1 else "")
