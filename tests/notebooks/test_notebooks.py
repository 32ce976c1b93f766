"""Notebooks hold no logic and no outputs; the tour alone has its own, which are small and touch no results."""

import ast
import re
from pathlib import Path
from typing import Any

import nbformat
import pytest

from bench import published
from bench.notebooks import FOLDER, WITH_OUTPUTS, execute
from bench.results.store import experiments

REFERENCE = FOLDER.parent / "results" / "reference"
ROWS = {store.experiment for store in experiments(REFERENCE)}
CASE_STUDIES = {path.parent.name for path in REFERENCE.glob("*/*/case_study.json")}
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
PAPERS = [path for path in NOTEBOOKS if path.stem != "tour"]
PLAIN = (ast.Import, ast.ImportFrom, ast.Assign, ast.Expr)
MOST_BYTES = 60_000
LOGIC = (ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.IfExp, ast.Await, ast.NamedExpr)

of_each = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def cells(notebook: Any, kind: str) -> list[Any]:
    return [cell for cell in notebook.cells if cell.cell_type == kind]


def kinds(notebook: Any) -> list[str]:
    """Mime types of everything that is displayed."""
    outputs = [output for cell in cells(notebook, "code") for output in cell.outputs]
    return [mime for output in outputs for mime in output.get("data", {})]


def test_there_is_a_notebook_per_paper_and_a_tour() -> None:
    assert {path.stem for path in NOTEBOOKS} == {*published.papers(), "tour"}, "a paper has notebooks/<paper>.ipynb"


def test_the_tour_runs_in_silence_and_needs_no_results(tmp_path: Path) -> None:
    executed = execute(FOLDER / "tour.ipynb", tmp_path)
    outputs = [output for cell in cells(executed, "code") for output in cell.outputs]
    assert [output.text for output in outputs if output.get("name") == "stderr"] == []
    assert all(cell.execution_count for cell in cells(executed, "code"))
    assert {"text/html", "image/png"} <= {*kinds(executed)}


@pytest.mark.parametrize("path", PAPERS, ids=lambda path: path.stem)
def test_a_paper_lists_its_artifacts_and_shows_what_is_in_the_results(path: Path) -> None:
    source = "\n".join(cell.source for cell in cells(nbformat.read(path, as_version=4), "code"))
    shown = set(re.findall(rf'show\("{path.stem}/(\w+)"', source))
    assert f'available("{path.stem}")' in source
    assert shown
    assert shown <= {name.rpartition("/")[2] for name in ROWS if name.startswith(f"{path.stem}/")} | CASE_STUDIES


@of_each
def test_is_committed_as_the_command_writes_it(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    assert path.stat().st_size < MOST_BYTES
    assert (notebook.nbformat, notebook.nbformat_minor) == (4, 5)
    assert notebook.metadata.kernelspec.name == "python3"
    code = cells(notebook, "code")
    assert all(cell.metadata == {} for cell in code)
    counts = [cell.execution_count for cell in code]
    assert counts == (list(range(1, len(code) + 1)) if path.stem in WITH_OUTPUTS else [None] * len(code))
    outputs = [output for cell in code for output in cell.outputs]
    assert bool(outputs) == (path.stem in WITH_OUTPUTS)
    assert [output for output in outputs if output.output_type == "error" or output.get("name") == "stderr"] == []


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
