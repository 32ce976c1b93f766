"""Small synthetic results, written and read through the store, so that frames are what reports meet."""

from __future__ import annotations

import hashlib
import itertools
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from report_rows import (
    DEFAULTS,
    VECTOR,
    acceptance_rows,
    growth_rows,
    latency_rows,
    node_rows,
    prompt_rows,
    run_row,
    step_rows,
)

from specdec_trees.results import store


@dataclass
class Cells:
    """Cells of one experiment. `add` writes one and returns its run id; `load` reads all back."""

    root: Path
    experiment: str = "opt_tree/table1"
    clock: itertools.count = field(default_factory=itertools.count)

    @property
    def store(self) -> store.Store:
        return store.Store(self.root, self.experiment)

    def add(self, drafter: str = "opt_tree", method: str | None = None, **given: Any) -> str:
        """`mal` and `speedup` are what the rows come to on average; `status` other than ok writes the run alone."""
        options = DEFAULTS | {"drafter": drafter, "method": method or drafter, "created": next(self.clock)} | given
        run_id = hashlib.sha256(repr(sorted(options.items(), key=str)).encode()).hexdigest()[:12]
        if options["status"] == "ok":
            self._write_rows(run_id, options)
        self.store.write("runs", run_id, [run_row(run_id, self.experiment, options)])
        return run_id

    def add_latency(self, pair: str = "tiny", sizes: tuple[int, ...] = (1, 8, 64, 256, 512)) -> str:
        run_id = "1a7e4c900000"
        self.store.write("latency", run_id, latency_rows(pair, sizes, run_id))
        return run_id

    def add_vector(
        self,
        p: list[float],
        *,
        measured: bool = True,
        exponent: float | None = None,
        growth: dict[str, dict[int, float]] | None = None,
        **given: Any,
    ) -> str:
        """An acceptance vector, and with `growth` the expected tokens of structures at sizes n; returns its id."""
        run_id = hashlib.sha256(repr((p, measured, sorted(given.items()))).encode()).hexdigest()[:12]
        self.store.write("acceptance", run_id, acceptance_rows(run_id, p, measured, exponent, **given))
        setting = {name: value for name, value in given.items() if name in VECTOR}
        if growth:
            self.store.write("growth", run_id, growth_rows(run_id, growth, **setting))
        return run_id

    def load(self, pair: str | None = None) -> store.Results:
        return store.load(self.root, self.experiment, pair=pair)

    def _write_rows(self, run_id: str, options: dict[str, Any]) -> None:
        rng = np.random.default_rng(int(run_id, 16) % 2**32)
        turns = [
            (f"p{place}", turn) for place in range(options["conversations"]) for turn in range(options.get("turns", 2))
        ]
        steps = [row for turn in turns for row in step_rows(run_id, turn, options, rng)]
        self.store.write("steps", run_id, steps)
        self.store.write(
            "prompts", run_id, [row for turn in turns for row in prompt_rows(run_id, turn, steps, options, rng)]
        )
        if options["nodes"]:
            self.store.write("nodes", run_id, [row for step in steps for row in node_rows(step, rng)])


@pytest.fixture
def cells(tmp_path: Path) -> Cells:
    """An empty results folder of `opt_tree/table1`."""
    return Cells(tmp_path / "results")


@pytest.fixture
def after(tmp_path: Path) -> Cells:
    """The same of another folder."""
    return Cells(tmp_path / "after")


@pytest.fixture
def table1_cells(cells: Cells) -> Cells:
    """The block of Table 1 on the embedded pair, in the paper's order of methods."""
    cells.add("autoregressive", mal=1.0, speedup=1.0)
    cells.add("binary", mal=2.2, speedup=1.3, size=30)
    cells.add("eagle25", "eagle_tree", mal=2.7, speedup=1.45)
    for size, speedup in ((25, 1.6), (50, 1.8), (60, 1.7)):
        cells.add(
            "opt_tree" if size == 25 else f"opt_tree_n{size}", "opt_tree", params={"n": size}, mal=3.4, speedup=speedup
        )
    return cells
