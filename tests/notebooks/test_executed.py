"""`python -m specdec_trees.notebooks`, and what the tour draws."""

import base64
from io import BytesIO
from pathlib import Path

import nbformat
import pytest
import torch
from PIL import Image

from specdec_core import TokenTree, Verdict
from specdec_trees import notebooks
from specdec_trees.measure import tour


class Letters:
    """Token 0 is a, 1 is b, ..."""

    def decode(self, token_ids: int | list[int], /) -> str:
        assert isinstance(token_ids, list)
        return "".join(chr(ord("a") + token) for token in token_ids)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(notebooks, "FOLDER", tmp_path)
    return tmp_path


SHOWN = """
import base64, io
from IPython.display import display
from PIL import Image

def show(name):
    html = '<td class="a" style="color: red">1</td><iframe style="b"></iframe>'
    display({"text/html": html, "text/plain": "1"}, raw=True)
    image, file = Image.new("RGBA", (1800, 900), "#0072B2"), io.BytesIO()
    image.paste((213, 94, 0), (900, 0, 1800, 900))
    image.save(file, "PNG", compress_level=0)
    data = {"image/png": base64.b64encode(file.getvalue()).decode()}
    display(data, metadata={"image/png": {"width": 1152}}, raw=True)
"""


def put(path: Path, *sources: str) -> None:
    cells = [nbformat.v4.new_code_cell(source) for source in sources]
    kernel = {"name": "python3", "display_name": "Python 3"}
    nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata={"kernelspec": kernel}), path)


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
    assert f"{folder}" in (folder / "out" / "good.html").read_text(encoding="utf-8")


def test_in_place_outputs_are_small_or_none(folder: Path) -> None:
    put(folder / "tour.ipynb", "from shown import show", 'show("paper/table1")')
    put(folder / "paper.ipynb", "1 / 0")
    (folder / "shown.py").write_text(SHOWN)
    assert notebooks.main(["--in-place", "--results", str(folder)]) == 0
    written = nbformat.read(folder / "tour.ipynb", as_version=4)
    table, image = written.cells[1].outputs
    assert table.data == {"text/html": '<td class="a">1</td><iframe style="b"></iframe>'}
    with Image.open(BytesIO(base64.b64decode(image.data["image/png"]))) as found:
        assert (found.width, found.height, found.mode) == (notebooks.MOST_PX, 450, "P")
        colours = found.convert("RGB")
        assert [colours.getpixel((column, 9)) for column in (9, 890)] == [(0, 114, 178), (213, 94, 0)]
    assert image.metadata["image/png"]["width"] == notebooks.MOST_PX
    assert [cell.execution_count for cell in written.cells] == [1, 2]
    assert [cell.metadata for cell in written.cells] == [{}, {}]
    (bare,) = nbformat.read(folder / "paper.ipynb", as_version=4).cells
    assert (bare.source, bare.outputs, bare.execution_count) == ("1 / 0", [], None)


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
