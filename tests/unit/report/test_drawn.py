"""All that is committed as rows can be drawn: every artifact with rows gives outputs, its tables numbers."""

import math
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from specdec_trees.artifacts.outputs import Output
from specdec_trees.artifacts.style import Figure
from specdec_trees.artifacts.tables import Table
from specdec_trees.papers.registry import ARTIFACTS, SUMMARIES, build
from specdec_trees.results.store import experiments

REFERENCE = Path(__file__).parents[3] / "results" / "reference"
ROWS = {store.experiment for store in experiments(REFERENCE)}
MEASURED = [*(name for name in ARTIFACTS if name in ROWS or (REFERENCE / name).is_dir()), *SUMMARIES]


CURVES = {
    *("opt_tree/fig6", "opt_tree/fig8", "opt_tree/fig9", "dyspec/fig2", "bench/budget", "bench/draft_temperature"),
    *(f"sequoia/{name}" for name in ("fig1", "fig2", "fig5a", "fig5b", "fig5c")),
    *(f"gsd/{name}" for name in ("fig3", "fig5b", "fig5c", "fig5d")),
    *("improving_mcsd/fig6", "improving_mcsd/fig8"),
}
"""Whose figures have points of their tables' values, and stars of the paper's."""


@pytest.mark.few(2)
@pytest.mark.parametrize("name", MEASURED)
def test_every_artifact_with_rows_is_drawn_with_numbers(name: str) -> None:
    """A table has numbers; what a curve plots are values of the tables beside it."""
    outputs = build(name, REFERENCE)
    assert outputs
    if name in CURVES:
        assert_plotted(outputs)
    for table in (output for output in outputs if isinstance(output, Table)):  # a drawn tree is a page and a figure
        cells = table.frame.astype(str).to_numpy().ravel()
        assert any(re.search(r"\d", cell) for cell in cells), table.name


def test_the_committed_rows_are_of_artifacts() -> None:
    assert ROWS - {"calibration"} <= ARTIFACTS.keys()


def assert_plotted(outputs: list[Output]) -> None:
    """All points of the curves are values of the long frames, or published."""
    long = pd.concat([one.long for one in outputs if isinstance(one, Table) and one.long is not None])
    known = [value for value in (*long["value"], *long.get("published", ())) if isinstance(value, int | float)]
    axes = [panel for one in outputs if isinstance(one, Figure) for panel in one.canvas.axes]
    lines = [line for panel in axes for line in panel.lines if line.get_marker() != "*"]
    curves = [line for line in lines if line.get_marker() != "None" or len(line.get_xdata()) > 2]
    plotted = [float(y) for line in curves for y in line.get_ydata() if math.isfinite(float(y))]
    assert plotted
    assert [y for y in plotted if not np.isclose(np.array(known, dtype=float), y, rtol=1e-9, atol=0).any()] == []
