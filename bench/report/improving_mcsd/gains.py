"""How much faster one run is than another: on one dataset, and by the mean speedup over several."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bench import samples, stats
from bench.report.blocks import Block
from bench.stats import Interval


class Side(NamedTuple):
    """A run of a block."""

    block: Block
    run_id: str


def gain(pairs: Sequence[tuple[Side, Side]]) -> Interval | None:
    """Mean speedup of the first over that of the second, the mean over their datasets; None where nothing was run.

    Paired: of every dataset the conversations count that both decoded, and they are drawn anew together. Every run has
    its own autoregressive arm, so that what the machine did meanwhile cancels.
    """
    frames = [_sums(place, first, second) for place, (first, second) in enumerate(pairs)]
    if not frames:
        return None
    found = stats.of_totals(pd.concat(frames).fillna(0.0), lambda total: _ratio(total, len(frames)), by="prompt")
    return found if np.isfinite(found.value) else None


def ahead(ratio: Interval | None, faster: str, slower: str, level: str) -> str | None:
    """One of the three words for a gain: `level` where its interval holds 1; None without an interval."""
    if ratio is None or not np.isfinite(ratio.low + ratio.high):
        return None
    return faster if ratio.low > 1 else slower if ratio.high < 1 else level


def _sums(place: int, first: Side, second: Side) -> pd.DataFrame:
    """Seconds and tokens of both by conversation, those of another dataset in columns of their own."""
    own, other = (
        samples.speedup(side.block.prompts(side.run_id)).sums.add_suffix(f"/{who}/{place}")
        for who, side in enumerate((first, second))
    )
    both = own.join(other, how="inner").reset_index(names="prompt")
    return both.assign(prompt=f"{place}/" + both["prompt"].astype(str))


def _ratio(total: Mapping[str, NDArray[np.float64]], places: int) -> NDArray[np.float64]:
    first, second = (sum(_speedup(total, f"{who}/{place}") for place in range(places)) for who in (0, 1))
    return _divide(first, second)


def _speedup(total: Mapping[str, NDArray[np.float64]], of: str) -> NDArray[np.float64]:
    return _divide(
        total[f"seconds_base/{of}"] * total[f"tokens/{of}"], total[f"tokens_base/{of}"] * total[f"seconds/{of}"]
    )


def _divide(above: NDArray[np.float64] | int, below: NDArray[np.float64] | int) -> NDArray[np.float64]:
    above, below = np.asarray(above, dtype=np.float64), np.asarray(below, dtype=np.float64)
    return np.divide(above, below, out=np.full(above.shape, np.nan), where=below != 0)
