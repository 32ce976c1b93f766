"""Every notebook runs top to bottom on the committed results, shows what it says, and holds no logic.

It is committed with the outputs of one such run, which are small.
"""

import ast
import re
from pathlib import Path
from typing import Any

import nbformat
import pytest

from bench import published
from bench.notebooks import DIGEST, FOLDER, digest, execute
from bench.papers.registry import ARTIFACTS

REFERENCE = FOLDER.parent / "results" / "reference"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
PAPERS = [path for path in NOTEBOOKS if path.stem != "tour"]
PLAIN = (ast.Import, ast.ImportFrom, ast.Assign, ast.Expr)
IN_PLACE = "python -m bench.notebooks --in-place"
MOST_BYTES = 1_500_000
LOGIC = (ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.IfExp, ast.Await, ast.NamedExpr)

of_each = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
of_tour_or_each = pytest.mark.parametrize(
    "path",
    [pytest.param(path, marks=() if path.stem == "tour" else pytest.mark.long) for path in NOTEBOOKS],
    ids=lambda path: path.stem,
)


def cells(notebook: Any, kind: str) -> list[Any]:
    return [cell for cell in notebook.cells if cell.cell_type == kind]


def kinds(notebook: Any) -> list[str]:
    """Mime types of everything that is displayed."""
    outputs = [output for cell in cells(notebook, "code") for output in cell.outputs]
    return [mime for output in outputs for mime in output.get("data", {})]


def test_there_is_a_notebook_per_paper_and_a_tour() -> None:
    assert {path.stem for path in NOTEBOOKS} == {*published.papers(), "tour"}, "a paper has notebooks/<paper>.ipynb"


@pytest.mark.long
@of_tour_or_each
def test_runs_top_to_bottom_in_silence(path: Path) -> None:
    executed = execute(path, REFERENCE)
    outputs = [output for cell in cells(executed, "code") for output in cell.outputs]
    assert [output.text for output in outputs if output.get("name") == "stderr"] == []
    assert all(cell.execution_count for cell in cells(executed, "code"))
    figures = path.stem == "tour" or any(name.startswith(f"{path.stem}/fig") for name in ARTIFACTS)
    assert {"text/html", *["image/png"] * figures} <= {*kinds(executed)}
    assert path.stem == "tour" or "text/markdown" not in kinds(executed), "a cell says that something was not run"


@pytest.mark.parametrize("path", PAPERS, ids=lambda path: path.stem)
def test_a_paper_lists_its_artifacts_and_shows_what_is_in_the_results(path: Path) -> None:
    source = "\n".join(cell.source for cell in cells(nbformat.read(path, as_version=4), "code"))
    folder = REFERENCE / path.stem
    assert folder.is_dir(), f"run `make reproduce TABLE={path.stem}/... RESULTS=results/reference` and commit it"
    shown = set(re.findall(rf'show\("{path.stem}/(\w+)"', source))
    assert f'available("{path.stem}")' in source
    assert shown
    assert shown <= {results.name for results in folder.iterdir()}


@of_each
def test_has_the_outputs_of_one_run_on_the_committed_results(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    assert (notebook.nbformat, notebook.nbformat_minor) == (4, 5)
    assert notebook.metadata.kernelspec.name == "python3"
    code = cells(notebook, "code")
    outputs = [output for cell in code for output in cell.outputs]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    assert [output for output in outputs if output.output_type == "error" or output.get("name") == "stderr"] == []
    assert all(cell.outputs for cell in code if cell.source.startswith(("show", "available", "published")))
    assert all(cell.metadata == {} for cell in code)
    assert len({cell.id for cell in notebook.cells}) == len(notebook.cells)
    assert notebook.metadata[DIGEST] == digest(notebook, REFERENCE), f"run {IN_PLACE} {path.stem}: its rows are others"


def test_committed_outputs_are_small() -> None:
    assert sum(path.stat().st_size for path in NOTEBOOKS) < MOST_BYTES, f"run {IN_PLACE}"


@of_each
def test_holds_no_logic(path: Path) -> None:
    for cell in cells(nbformat.read(path, as_version=4), "code"):
        tree = ast.parse(cell.source)
        assert all(isinstance(statement, PLAIN) for statement in tree.body), cell.source
        assert not [node for node in ast.walk(tree) if isinstance(node, LOGIC)], cell.source


@of_each
def test_begins_with_its_title_and_states_no_measured_number(path: Path) -> None:
    words = [cell.source for cell in cells(nbformat.read(path, as_version=4), "markdown")]
    assert words[0].startswith("# ")
    prose = re.sub(r"```.*?```|`[^`]*`", "", "\n".join(words), flags=re.DOTALL)
    assert re.findall(r".*\d\.\d.*", prose) == [], "what was measured or printed belongs into outputs"
