"""How much faster one run is than another: on one dataset, and by the mean speedup over several."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from bench.artifacts.blocks import Block
from bench.statistics import samples
from bench.statistics.intervals import Interval
from bench.statistics.samples import Sample


class Side(NamedTuple):
    """A run of a block."""

    block: Block
    run_id: str


def gain(pairs: Sequence[tuple[Side, Side]]) -> Interval | None:
    """Mean speedup of the first over that of the second, the mean over their datasets; None where nothing was run.

    Paired: of every dataset the conversations count that both decoded, and they are drawn anew together. Every run has
    its own autoregressive arm, so that what the machine did meanwhile cancels.
    """
    if not pairs:
        return None
    first, second = (samples.mean_over(*map(_speedup, sides)) for sides in zip(*pairs, strict=True))
    found = samples.paired_ratio(first, second)
    return found if math.isfinite(found.value) else None


def ahead(ratio: Interval | None, faster: str, slower: str, level: str) -> str | None:
    """One of the three words for a gain: `level` where its interval holds 1; None without an interval."""
    if ratio is None or not math.isfinite(ratio.low + ratio.high):
        return None
    return faster if ratio.low > 1 else slower if ratio.high < 1 else level


def _speedup(side: Side) -> Sample:
    return samples.speedup(side.block.prompts(side.run_id))
