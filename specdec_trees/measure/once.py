"""What is measured once for many cells: kept in the experiment `calibration` of a results folder."""

import contextlib
from collections.abc import Callable
from pathlib import Path

from specdec_core.models.ranks import agreed
from specdec_trees.results.store import Store

_forced: set[tuple[Path, str]] = set()
"""What this process has measured anew: `force` does so once, not for every cell of a sweep."""


def once(store: Store, key: str, there: Callable[[], bool], measure: Callable[[], None], *, force: bool) -> None:
    """Measure unless it is there, under `force` once per process; of several processes one does, and others wait.

    All ranks of one run measure together.
    """
    with contextlib.ExitStack() as held:

        def wanted() -> bool:
            held.enter_context(store.lock(key, wait=True))
            return not there() or (force and (store.folder, key) not in _forced)

        if agreed(wanted):
            measure()
            _forced.add((store.folder, key))
