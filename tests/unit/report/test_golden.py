"""The committed reference report is what the code makes of the committed rows."""

from pathlib import Path

import pytest

from bench.artifacts.tables import Table, to_markdown
from bench.papers.registry import ARTIFACTS, SUMMARIES, build

REFERENCE = Path(__file__).parents[3] / "results" / "reference"
MEASURED = [*(name for name in ARTIFACTS if (REFERENCE / name).is_dir()), *SUMMARIES]


def committed(name: str) -> dict[str, str]:
    """The Markdown of an artifact's tables by their names: its own, or its own and more behind `_`."""
    place = REFERENCE / "report" / name
    files = {path.stem: path for path in place.parent.glob("*.md")}
    own = {stem: path for stem, path in files.items() if stem == place.name or stem.startswith(f"{place.name}_")}
    return {stem: path.read_text(encoding="utf-8") for stem, path in own.items()}


@pytest.mark.few(2)
@pytest.mark.parametrize("name", MEASURED)
def test_tables_are_those_of_the_committed_report(name: str) -> None:
    tables = [output for output in build(name, REFERENCE) if isinstance(output, Table)]
    assert {table.name: to_markdown(table) for table in tables} == committed(name), (
        f"python -m bench.report {name} --results results/reference --out results/reference/report draws it anew; "
        "git diff shows what has changed, and each line of it needs a reason"
    )


def test_every_committed_table_is_of_an_artifact_with_rows() -> None:
    every = sorted(path.stem for path in (REFERENCE / "report").rglob("*.md"))
    assert every == sorted(stem for name in MEASURED for stem in committed(name))
