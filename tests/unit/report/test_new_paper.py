"""A paper that was just begun: its files are there, its table and its figure are drawn, its experiments compose."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import nbformat
import pandas as pd
import pytest
import yaml

from specdec_trees import new_paper, published
from specdec_trees.artifacts.style import Figure

TITLE = "Sixth Sense: A Paper That Nobody Has Written (arXiv:2401.01234)"


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout of two files."""
    monkeypatch.setattr(new_paper, "ROOT", tmp_path)
    for place, text in {
        "docs/fidelity.md": "# Page\n",
        "specdec_trees/published/artifacts.csv": "paper,artifact\n",
    }.items():
        (tmp_path / place).parent.mkdir(parents=True)
        (tmp_path / place).write_text(text)
    return tmp_path


def package(root: Path) -> ModuleType:
    path = root / "specdec_trees" / "papers" / "sixth_sense" / "__init__.py"
    assert len(path.read_text().splitlines()) <= 60
    spec = importlib.util.spec_from_file_location("sixth_sense", path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_its_table_and_its_figure_are_drawn_beside_its_numbers(root: Path, cells, monkeypatch) -> None:
    assert "sixth_sense" in new_paper.new_paper(TITLE)
    for size, mal in ((25, 2.0), (50, 3.0)):
        cells.add("opt_tree" if size == 25 else "opt_tree_n50", "opt_tree", params={"n": size}, mal=mal)
    cells.add("chain4", "chain", mal=1.5)
    fact = {"target": "llama2_7b", "draft": "jf68m", "dataset": "mt_bench", "temperature": 0.0, "hardware": ""}
    fact |= {"method": "opt_tree", "metric": "tokens_per_step", "value": 2.5, "params": ""}
    monkeypatch.setattr(published, "find", lambda paper, artifact: pd.DataFrame([fact]))
    module = package(root)
    assert set(module.ARTIFACTS) == {"table1", "fig1"}
    (table,) = module.table1("table1", cells.load())
    assert dict(zip(table.frame["label"], table.frame["mal_published"], strict=True)) == {
        "OPT-Tree": "2.50",
        "chain": "–",
    }
    figure, points = module.fig1("fig1", cells.load())
    assert isinstance(figure, Figure)
    assert points.frame["n"].tolist() == ["25", "50"]


def test_its_other_files_are_what_their_readers_take(root: Path) -> None:
    new_paper.new_paper(TITLE, name="sixth_sense")
    assert (root / "specdec_trees/published/sixth_sense.csv").read_text().strip().split(",") == [*published.COLUMNS]
    assert (
        pd.read_csv(root / "specdec_trees/published/artifacts.csv", header=None, skiprows=1)[0].tolist()
        == ["sixth_sense"] * 2
    )
    assert (root / "docs/fidelity.md").read_text().count('<a id="sixth_sense-') == 2
    nbformat.validate(nbformat.read(root / "notebooks/sixth_sense.ipynb", as_version=4))
    experiments = [yaml.safe_load(path.read_text()) for path in (root / "conf/experiment/sixth_sense").glob("*.yaml")]
    assert {one["name"] for one in experiments} == {"sixth_sense/table1", "sixth_sense/fig1"}


@pytest.mark.parametrize(("title", "name"), [(TITLE, "opt_tree"), (TITLE, "6th"), ("Short", "short"), (TITLE, "a-b")])
def test_a_name_that_is_taken_or_cannot_be_one_writes_nothing(title: str, name: str, root: Path) -> None:
    with pytest.raises(ValueError, match=name if len(title) > 9 else title):
        new_paper.new_paper(title, name=name)
    assert not (root / "notebooks").exists()
