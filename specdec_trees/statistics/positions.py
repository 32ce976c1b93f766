"""Where drafted tokens are accepted: by their place on the path, and by depth and rank. Pure functions of one run.

A position is a depth from 1 on, the root's children first; a rank is a child's place among its siblings as they were
drafted, from 0. A drafting step is one whose tree has a node below its root.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray


def drafting(steps: pd.DataFrame) -> pd.DataFrame:
    """The drafting steps; without them engines leave a step out of their counts."""
    return steps[steps["num_drafted"] > 0]


def histogram(steps: pd.DataFrame) -> list[int]:
    """How many drafting steps accepted exactly j drafted tokens, j = 0, 1, ..., up to the depth of the deepest tree."""
    rows = drafting(steps)
    deepest = int(rows["depth"].max()) if len(rows) else 0
    return [int(count) for count in np.bincount(rows["num_accepted"].to_numpy(dtype=int), minlength=deepest + 1)]


def reached(counts: Sequence[int]) -> list[int]:
    """Of such a histogram, how many steps accepted at least i tokens, i = 1, 2, ..."""
    return [int(sum(counts[place:])) for place in range(1, len(counts))]


def joint(positions: Sequence[float], steps: float) -> list[float]:
    """P(at least i accepted), i = 1, 2, ..., of the counts of `reached` and the number of drafting steps."""
    return [count / steps for count in positions] if steps else []


def conditional(positions: Sequence[float], steps: float) -> list[float]:
    """P(at least i accepted | at least i - 1 accepted), i = 1, 2, ..., as far as there are steps to ask."""
    return [count / before for count, before in zip(positions, (steps, *positions), strict=False) if before]


def accepted_by_rank(steps: pd.DataFrame) -> NDArray[np.int64] | None:
    """How many drafting steps accepted the child of rank r at depth d: entry [d - 1, r].

    A row sums to the entry of `reached`. None where a step does not know the ranks (replays by lengths, older files).
    """
    ranks = drafting(steps)["accepted_ranks"]
    if ranks.isna().any():
        return None
    places = [(depth, int(rank)) for path in ranks for depth, rank in enumerate(path)]
    return _counted(places)


def tested_by_rank(nodes: pd.DataFrame) -> NDArray[np.int64] | None:
    """How many nodes of rank r at depth d had an accepted parent, the root is one: entry [d - 1, r].

    None without nodes, and where they do not know their ranks.
    """
    if nodes.empty or nodes["rank"].isna().any():
        return None
    asked = nodes[nodes["parent_accepted"].astype(bool)]
    return _counted([*zip(asked["depth"].astype(int) - 1, asked["rank"].astype(int), strict=True)])


def _counted(places: Sequence[tuple[int, int]]) -> NDArray[np.int64]:
    counts = np.zeros(tuple(np.max(places, axis=0) + 1) if places else (0, 0), dtype=np.int64)
    for place in places:
        counts[place] += 1
    return counts
