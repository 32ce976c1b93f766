"""docs/fidelity.md: every artifact of the papers says what the paper did, what is done here, and what differs."""

import re
from pathlib import Path

import pytest

from specdec_trees.papers.registry import PAPERS

PAGE = (Path(__file__).parents[3] / "docs" / "fidelity.md").read_text(encoding="utf-8")
ROWS = [line for line in PAGE.splitlines() if line.startswith('| <a id="')]
ANCHOR = re.compile(r'<a id="([a-z0-9_-]+)"></a>')
NAMES = [f"{paper}-{name}" for paper, artifacts in PAPERS.items() for name in artifacts]


def test_every_artifact_has_one_row_and_no_other_is_there() -> None:
    assert sorted(ANCHOR.findall(PAGE)) == sorted(NAMES)
    assert len(ROWS) == len(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_a_row_has_its_title_and_three_more_cells(name: str) -> None:
    (row,) = (row for row in ROWS if f'"{name}"' in row)
    cells = [ANCHOR.sub("", cell).strip() for cell in row.strip("|").split("|")]
    assert len(cells) == 4
    assert all(cells)
    if numbered := re.fullmatch(r".*-(table|fig)(\w+)", name):
        assert cells[0] == f"{'Table' if numbered[1] == 'table' else 'Figure'} {numbered[2]}"
    else:
        assert cells[0].lower() == name.partition("-")[2]


def test_no_row_calls_a_setting_unknown() -> None:
    assert not [row for row in ROWS if "unknown" in row.lower()]
