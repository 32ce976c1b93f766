"""Where a process is at this moment, for one that may kill it: told through memory that both share."""

import contextlib
import mmap
import time
from collections.abc import Callable, Iterator
from typing import Any

from specdec_core import engine
from specdec_trees.calibrate import acceptance, kept
from specdec_trees.measure import pairs, resumed, runner
from specdec_trees.measure.decoding import Decoding
from specdec_trees.results.partial import Partial

PLACES = (
    *("between cells", "calibration", "loading", "taking a lock", "prefill", "decoding", "saving a prompt"),
    *("between prompts", "between prompts, resumed", "writing rows", "report", "compare"),
)
BETWEEN_CELLS, CALIBRATION, LOADING, LOCK, PREFILL, DECODING, SAVING, BETWEEN, RESUMED, WRITING, REPORT, COMPARE = (
    PLACES
)
SWEPT = PLACES[:-2]
"""Where a sweep may be."""
AIMS = (*SWEPT, LOADING, *(SAVING, BETWEEN, RESUMED, WRITING, LOCK) * 2)
"""Where it is hit on purpose: most often where it is seldom."""
LINGER_S = 0.02


class Place:
    """The place of a process and of its fork, which lingers where it is to be hit."""

    def __init__(self, aim: str | None = None) -> None:
        self.aim, self._shared = aim, mmap.mmap(-1, 1)

    @property
    def now(self) -> str:
        """Where the other is, or was when it ended."""
        return PLACES[self._shared[0]]

    def enter(self, place: str) -> None:
        """Be there from now on."""
        self._shared[0] = PLACES.index(place)
        if place == self.aim:
            time.sleep(LINGER_S)

    @contextlib.contextmanager
    def inside(self, place: str) -> Iterator[None]:
        """Be there for a while."""
        before = self.now
        self.enter(place)
        try:
            yield
        finally:
            self.enter(before)

    def tell(self) -> None:
        """Have this process say where it is in a sweep, from now to its end."""
        functions = {
            (runner, "run_cell"): BETWEEN_CELLS,
            (kept, "acceptance_vector"): CALIBRATION,
            (pairs, "loaded"): LOADING,
            (runner, "claim"): LOCK,
            (engine._Run, "prefill"): PREFILL,
            (Decoding, "decode"): DECODING,
            (Partial, "add"): SAVING,
            (runner, "_write"): WRITING,
            (acceptance, "measure"): CALIBRATION,  # behind loading
        }
        for (owner, name), place in functions.items():
            setattr(owner, name, self._told(getattr(owner, name), place))
        begin = resumed.Journal.__init__

        def begun(journal: resumed.Journal, *arguments: Any) -> None:
            begin(journal, *arguments)
            self.enter(RESUMED if journal._rows.start > 1 else BETWEEN)

        resumed.Journal.__init__ = begun

    def _told(self, function: Callable[..., Any], place: str) -> Callable[..., Any]:
        def told(*arguments: Any, **options: Any) -> Any:
            with self.inside(place):
                return function(*arguments, **options)

        return told
