"""All that is committed as rows can be drawn: every artifact with rows gives outputs, its tables numbers."""

import re
from pathlib import Path

import pytest

from bench.artifacts.tables import Table
from bench.papers.registry import ARTIFACTS, SUMMARIES, build
from bench.results.store import experiments

REFERENCE = Path(__file__).parents[3] / "results" / "reference"
ROWS = {store.experiment for store in experiments(REFERENCE)}
MEASURED = [*(name for name in ARTIFACTS if name in ROWS or (REFERENCE / name).is_dir()), *SUMMARIES]


@pytest.mark.few(2)
@pytest.mark.parametrize("name", MEASURED)
def test_every_artifact_with_rows_is_drawn_with_numbers(name: str) -> None:
    outputs = build(name, REFERENCE)
    assert outputs
    for table in (output for output in outputs if isinstance(output, Table)):  # a drawn tree is a page and a figure
        cells = table.frame.astype(str).to_numpy().ravel()
        assert any(re.search(r"\d", cell) for cell in cells), table.name


def test_the_committed_rows_are_of_artifacts() -> None:
    assert ROWS - {"calibration"} <= ARTIFACTS.keys()
