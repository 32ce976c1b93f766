"""The committed reference report is what the code makes of the committed rows."""

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.artifacts.tables import Table, to_markdown
from bench.papers.registry import ARTIFACTS, SUMMARIES, build
from bench.report.site import facts

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


def verdicts(path: Path) -> Iterator[str]:
    """The verdicts of a table in Markdown, without what is said of them."""
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if line.startswith("|")]
    headers, *rows = ([cell.strip() for cell in line.strip("|").split("|")] for line in lines)
    places = [place for place, header in enumerate(headers) if header.lower().startswith("verdict")]
    found = (row[place] for row in rows[1:] for place in places)
    yield from (facts.word(cell) for cell in found if cell not in ("", "–"))


def test_the_readme_counts_the_verdicts() -> None:
    papers = {name.partition("/")[0] for name in MEASURED if "/" in name} - {"bench"}
    tables = [path for paper in papers for path in (REFERENCE / "report" / paper).glob("*.md")]
    counts = Counter(verdict for path in tables for verdict in verdicts(path))
    said = re.findall(
        r"^\| ([a-z ]+) \| (\d+) \|$", (REFERENCE / "README.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert {word: int(count) for word, count in said} == counts
