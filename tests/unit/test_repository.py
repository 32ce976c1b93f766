"""What stands around the code: the site's links and contents, the citation, the workflow."""

import re
import runpy
import tomllib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

import specdec_trees

ROOT = Path(__file__).parents[2]
CI = (ROOT / ".ci" / "run").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def hooks() -> dict[str, Any]:
    return runpy.run_path(str(ROOT / "docs" / "hooks.py"))


@pytest.mark.parametrize(
    ("page", "text", "expected"),
    [
        ("README.md", "[a](docs/decisions.md)", "[a](docs/decisions.md)"),
        ("README.md", "[a](results/reference/)", "[a](results/reference/README.md)"),
        ("README.md", "[a](LICENSE), [b](conf/variants.yaml)", "a, b"),
        ("docs/decisions.md", "[a](../LICENSE) [b](fidelity.md#gsd)", "a [b](fidelity.md#gsd)"),
        ("docs/decisions.md", "[a](gone.md) [b](#here)", "[a](gone.md) [b](#here)"),
        ("README.md", "[a](../../deployments)", "[a](results/reference/report/index.html)"),
        ("docs/decisions.md", "[a](../../../deployments)", "[a](../results/reference/report/index.html)"),
        ("docs/decisions.md", "`gsd/none`, `claims`, ``a`b/c`d``, `a=b/c`", None),
        ("README.md", "![a](LICENSE) <https://example.org> [a](https://example.org)", None),
    ],
)
def test_links_lead_to_pages_and_broken_ones_stay(hooks: dict, page: str, text: str, expected: str | None) -> None:
    assert hooks["linked"](text, page) == (expected or text)


def test_an_artifacts_name_leads_to_its_page_where_it_was_drawn(hooks: dict, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = ["results/reference/report/gsd/table1.md", "results/reference/report/notebooks/tour.html"]
    monkeypatch.setitem(hooks["linked"].__globals__, "pages", lambda: drawn)
    text = "`gsd/table1`, [`gsd/table1`](x.md), `notebooks/tour`, `gsd/table2`"
    links = "[`gsd/table1`](report/gsd/table1.md), [`gsd/table1`](x.md), [`notebooks/tour`](report/notebooks/tour.html)"
    assert hooks["linked"](text, "results/reference/README.md") == f"{links}, `gsd/table2`"


def test_the_site_has_every_text_and_every_module_in_its_contents(hooks: dict) -> None:
    nav = hooks["on_config"](SimpleNamespace(nav=None)).nav
    listed = [path for entry in nav for path in ([entry] if isinstance(entry, str) else entry.values())]
    texts = {path.relative_to(ROOT).as_posix() for folder in (ROOT, ROOT / "docs") for path in folder.glob("*.md")}
    assert texts <= {path for path in listed if isinstance(path, str)} <= set(hooks["pages"]())
    (api,) = (entry["API"] for entry in nav if "API" in entry)
    assert {"engine", "drafters", "verifiers", "tree"} <= {name for entry in api for name in entry}


@pytest.mark.parametrize("page", ["README.md", "docs/python.md", "docs/conformance.md"])
def test_the_code_of_a_page_runs_from_top_to_bottom(page: str, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.chdir(ROOT)
    blocks = re.findall(r"^```python\n(.*?)^```", (ROOT / page).read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    known: dict[str, Any] = {}
    for block in blocks:
        exec(block, known)
    assert blocks
    assert capsys.readouterr().out


def test_the_citation_names_the_version_and_the_licence() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert (citation["version"], citation["license"]) == (specdec_trees.__version__, project["license"])
    assert {"cff-version", "message", "title", "authors"} <= citation.keys()


def test_the_workflow_runs_what_ci_runs() -> None:
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8"))
    steps = [step.get("run") for job in workflow["jobs"].values() for step in job["steps"]]
    assert ".ci/run" in steps
    made = re.findall(r"^make (.+?)(?: *#.*)?$", CI, flags=re.MULTILINE)
    targets = [word for words in made for word in words.split() if word[0] not in "-."]
    assert {"lint", "docs", "test", "test-cluster"} <= set(targets)
    assert targets.index("docs") < targets.index("test"), "broken links are told before the long tests"
    assert any("make test-all" in (step or "") for step in steps)
    uploads = [step["with"]["path"] for job in workflow["jobs"].values() for step in job["steps"] if "with" in step]
    assert uploads == ["site"], "what make docs has drawn is published"
    assert "schedule" in workflow[True]  # YAML reads the key `on` as true
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert [target for target in targets if not re.search(rf"^{target}:", makefile, flags=re.MULTILINE)] == []
    assert "mkdocs build --strict\n" in makefile, "with --quiet it would not count broken links"
