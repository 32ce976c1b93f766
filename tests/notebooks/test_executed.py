"""`python -m bench.notebooks`, and what the tour draws."""

from pathlib import Path

import nbformat
import pytest
import torch

from bench import notebooks
from bench.measure import tour
from specdec_core import TokenTree, Verdict


class Letters:
    """Token 0 is a, 1 is b, ..."""

    def decode(self, token_ids: int | list[int], /) -> str:
        assert isinstance(token_ids, list)
        return "".join(chr(ord("a") + token) for token in token_ids)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(notebooks, "FOLDER", tmp_path)
    return tmp_path


def put(path: Path, *sources: str) -> None:
    cells = [nbformat.v4.new_code_cell(source) for source in sources]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), path)


def test_a_failing_cell_is_told_and_the_others_are_written(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    put(folder / "good.ipynb", "import os", f"print(os.environ[{notebooks.VARIABLE!r}])")
    put(folder / "bad.ipynb", "1 / 0")
    assert notebooks.main(["--results", str(folder), "--out", str(folder / "out")]) == 1
    printed = capsys.readouterr()
    assert "bad.ipynb failed" in printed.err
    assert "ZeroDivisionError" in printed.err
    written = nbformat.read(folder / "out" / "good.ipynb", as_version=4)
    assert written.cells[1].outputs[0].text == f"{folder}\n"
    assert not (folder / "out" / "bad.ipynb").exists()


def test_unknown_notebooks_and_folders_are_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert notebooks.main(["nothing", "--results", str(folder)]) == 2
    assert "no notebook 'nothing'" in capsys.readouterr().err
    assert notebooks.main(["--results", str(folder / "gone")]) == 2
    assert "gone" in capsys.readouterr().err


def test_a_tree_is_drawn_below_its_root() -> None:
    parents = torch.tensor([-1, 0, 0, 1, 1, 3])
    edges = torch.tensor([1.0, 0.5, 0.25, 0.5, 0.1, 1.0])
    tree = TokenTree(torch.arange(6), parents, edges)
    verdict = Verdict(torch.tensor([0, 1, 3]), (1, 3), 25)
    assert tour.draw(tree, Letters(), verdict).splitlines() == [
        "* 'a'  q 1.00  path 1.00",
        "* ├─ 'b'  q 0.50  path 0.50",
        "* │  ├─ 'd'  q 0.50  path 0.25",
        "  │  │  └─ 'f'  q 1.00  path 0.25",
        "  │  └─ 'e'  q 0.10  path 0.05",
        "  └─ 'c'  q 0.25  path 0.25",
        "then the target's own 'z'",
    ]
    assert "*" not in tour.draw(tree, Letters())
