"""What is decoded by whom, counted, and rows without what a clock says: for tests of cells that were stopped."""

from collections import Counter
from pathlib import Path

import pandas as pd
import pytest

from specdec_core.engine import Generation
from specdec_trees.measure import stalls
from specdec_trees.measure.decoding import Decoding, Turn
from specdec_trees.results.store import load

TABLES = ("prompts", "steps", "nodes", "answers", "quality")


class Killed(BaseException):
    """The end of the process, as far as the cell can tell."""


class Counted:
    """Counts the turns that are decoded in full, by (conversation, turn, arm), and kills in the middle of one."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.decoded: Counter[tuple[str, int, str]] = Counter()
        self.left: int | None = None
        decode = Decoding.decode

        def counted(own: Decoding, turn: Turn, arm: str, new: int | None = None, watch=None, **more) -> Generation:
            first = new is None and watch is None and not more
            if first and self.left is not None:
                self.left -= 1
                if self.left < 0:
                    raise Killed
            done = decode(own, turn, arm, new, watch, **more)
            self.decoded[turn.conversation.id, turn.number, arm] += first
            return done

        patch.setattr(Decoding, "decode", counted)
        patch.setattr(stalls, "REPEATS", 0)  # a busy machine would have turns decoded again


def timeless(root: Path, experiment: str = "default") -> dict[str, pd.DataFrame]:
    """The rows of an experiment's tables by their keys, without times and without who decoded them."""
    found = load(root, experiment)
    tables = {}
    for table in TABLES:
        rows = getattr(found, table).sort_values("run_id", kind="stable", ignore_index=True)
        of_machine = {"start", "repeats", "contaminated", "other_load"}
        kept = [name for name in rows if not name.endswith("_s") and name not in of_machine]
        lists = [name for name in kept if rows[name].map(lambda value: hasattr(value, "tolist")).any()]
        tables[table] = rows[kept].assign(**{name: rows[name].map(str) for name in lists})  # nan in a list equals none
    aggregates = (
        "status",
        "num_conversations",
        "mal",
        "mal_prompt_mean",
        "acceptance_rate_node",
        "identical",
        "excerpt",
    )
    tables["runs"] = found.runs[["run_id", *aggregates]].sort_values("run_id", ignore_index=True)
    return tables


def assert_same(first: dict[str, pd.DataFrame], other: dict[str, pd.DataFrame]) -> None:
    """The same rows in the same order."""
    for table, rows in first.items():
        pd.testing.assert_frame_equal(rows, other[table], check_exact=True)
