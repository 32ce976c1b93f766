"""Notebooks hold no logic and no outputs; the tour alone has its own, which are small and touch no results."""

import ast
import re
from pathlib import Path
from typing import Any

import nbformat

from specdec_trees import published
from specdec_trees.notebooks import FOLDER, WITH_OUTPUTS, execute
from specdec_trees.papers.registry import ARTIFACTS
from specdec_trees.results.store import experiments

REFERENCE = FOLDER.parent / "results" / "reference"
ROWS = {store.experiment for store in experiments(REFERENCE)}
CASE_STUDIES = {path.parent.relative_to(REFERENCE).as_posix() for path in REFERENCE.glob("*/*/case_study.json")}
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
PAPERS = [path for path in NOTEBOOKS if path.stem != "tour"]
PLAIN = (ast.Import, ast.ImportFrom, ast.Assign, ast.Expr)
MOST_BYTES = 60_000
LOGIC = (ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.IfExp, ast.Await, ast.NamedExpr)


def cells(notebook: Any, kind: str) -> list[Any]:
    return [cell for cell in notebook.cells if cell.cell_type == kind]


def outputs(notebook: Any) -> list[Any]:
    return [output for cell in cells(notebook, "code") for output in cell.outputs]


def test_the_tour_runs_in_silence_and_needs_no_results(tmp_path: Path) -> None:
    executed = execute(FOLDER / "tour.ipynb", tmp_path)
    assert [output.text for output in outputs(executed) if output.get("name") == "stderr"] == []
    assert all(cell.execution_count for cell in cells(executed, "code"))
    assert {"text/html", "image/png"} <= {mime for output in outputs(executed) for mime in output.get("data", {})}


def test_a_notebook_per_paper_lists_its_artifacts_and_shows_what_is_in_the_results() -> None:
    assert {path.stem for path in PAPERS} == {*published.papers()}, "a paper has notebooks/<paper>.ipynb"
    for path in PAPERS:
        source = "\n".join(cell.source for cell in cells(nbformat.read(path, as_version=4), "code"))
        shown = set(re.findall(rf'show\("({path.stem}/\w+)"', source))
        assert f'available("{path.stem}")' in source
        assert shown
        measured = {name for name in ROWS | CASE_STUDIES if name.startswith(f"{path.stem}/")}
        assert shown <= (measured or {*ARTIFACTS}), "a paper without committed rows shows what it would have"


def test_notebooks_are_committed_as_the_command_writes_them() -> None:
    for path in NOTEBOOKS:
        notebook = nbformat.read(path, as_version=4)
        nbformat.validate(notebook)
        assert path.stat().st_size < MOST_BYTES
        assert notebook.metadata.kernelspec.name == "python3"
        code, runs = cells(notebook, "code"), path.stem in WITH_OUTPUTS
        assert [cell.execution_count for cell in code] == [place + 1 if runs else None for place in range(len(code))]
        assert bool(outputs(notebook)) == runs
        assert not [one for one in outputs(notebook) if one.output_type == "error" or one.get("name") == "stderr"]


def test_notebooks_hold_no_logic_and_state_no_measured_number() -> None:
    for path in NOTEBOOKS:
        notebook = nbformat.read(path, as_version=4)
        for cell in cells(notebook, "code"):
            tree = ast.parse(cell.source)
            assert all(isinstance(statement, PLAIN) for statement in tree.body), cell.source
            assert not [node for node in ast.walk(tree) if isinstance(node, LOGIC)], cell.source
        words = "\n".join(cell.source for cell in cells(notebook, "markdown"))
        assert words.startswith("# ")
        prose = re.sub(r"```.*?```|`[^`]*`", "", words, flags=re.DOTALL)
        assert re.findall(r".*\d\.\d.*", prose) == [], "what was measured or printed belongs into outputs"
