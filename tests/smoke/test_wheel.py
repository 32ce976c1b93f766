"""The wheel without the checkout: what it holds, and what `specdec` does with it in an empty folder."""

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from functools import partial
from pathlib import Path

import pandas as pd
import pytest

import specdec_trees
from specdec_trees.locations import CONF
from specdec_trees.results.store import load

pytest.importorskip("setuptools", minversion="77")
ROOT = Path(__file__).parents[2]
SHORT = ("decoding.max_new_tokens=4", "limit=1", "runtime.progress=false")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    """Built of a copy of what Docker builds from, since building leaves files behind."""
    source, built = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("built")
    for part in re.findall(r"^!(.+)", (ROOT / ".dockerignore").read_text(), flags=re.MULTILINE):
        copy = partial(shutil.copytree, symlinks=True) if (ROOT / part).is_dir() else shutil.copy
        copy(ROOT / part, source / part)
    pip("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(built), str(source))
    (found,) = built.iterdir()
    return found


@pytest.fixture(scope="module")
def specdec(wheel, tmp_path_factory) -> Path:
    """The command in an environment of its own, which has the libraries of this one and not its checkout."""
    environment = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(environment)], check=True)
    python = environment / "bin" / "python"
    pip("--python", str(python), "install", "--no-deps", str(wheel))
    (packages,) = environment.glob("lib/python*/site-packages")
    (packages / "libraries.pth").write_text(sysconfig.get_path("purelib"))  # of which no .pth is read: no editable one
    where = "import specdec_trees, specdec_core; print(specdec_trees.__file__, specdec_core.__file__)"
    assert all(Path(found).is_relative_to(packages) for found in told(python, ["-c", where], environment).split())
    return environment / "bin" / "specdec"


@pytest.fixture
def folder(tmp_path) -> Path:
    """The user's work: a pair of her own, and nothing else."""
    tiny = CONF / "pair" / "tiny.yaml"
    (tmp_path / "conf" / "pair").mkdir(parents=True)
    (tmp_path / "conf" / "pair" / "mine.yaml").write_text(tiny.read_text().replace("name: tiny", "name: mine"))
    return tmp_path


def pip(*arguments: str) -> None:
    subprocess.run([sys.executable, "-m", "pip", "--disable-pip-version-check", "-q", *arguments], check=True)


def told(program: Path, arguments: list[str], folder: Path, **variables: str) -> str:
    """What a program says in a folder, without the variables that lead to the checkout."""
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    environment = {**kept, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", **variables}
    command = [str(program), *arguments]
    return subprocess.run(command, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True, check=True).stdout


def test_the_wheel_holds_every_config_and_both_packages_types(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.removeprefix("specdec_trees/conf/") for name in names if name.startswith("specdec_trees/conf/")} == {
        path.relative_to(CONF).as_posix() for path in CONF.rglob("*.yaml")
    }
    packages = {name.partition("/")[0] for name in names}
    assert packages - {f"specdec_trees-{specdec_trees.__version__}.dist-info"} == {
        "specdec_trees",
        "specdec_core",
        "hydra_plugins",
    }
    assert {"specdec_trees/py.typed", "specdec_core/py.typed", "specdec_trees/report/site/how_to_read.md"} <= set(names)
    assert wheel.stat().st_size < 20e6, "the embedded pair and its heads are 15 MB"


def test_an_own_pair_is_found_beside_those_of_the_wheel(specdec, folder):
    assert told(specdec, ["--version"], folder).split() == ["specdec", specdec_trees.__version__]
    line = "specdec run pair="
    environment = {"COMP_LINE": line, "COMP_POINT": str(len(line))}
    pairs = told(specdec, ["completion", "specdec", "", "run"], folder, **environment).split()
    assert {"mine", *(path.stem for path in (CONF / "pair").glob("*.yaml"))} <= set(pairs)


@pytest.mark.long
def test_smoke_a_cell_and_a_report_need_no_checkout(specdec, folder):
    told(specdec, ["smoke", *SHORT], folder)
    told(specdec, ["run", "pair=mine", "drafter=eagle25", *SHORT], folder)
    told(specdec, ["report"], folder)
    smoke, cells = load(folder / "results", "smoke").runs, load(folder / "results", "default").runs
    assert len(smoke) == 15
    assert set(smoke["status"]) == set(cells["status"]) == {"ok"}
    assert set(smoke["package_version"]) == {specdec_trees.__version__}
    assert set(smoke["identical"]) == {1.0}
    (cell,) = cells.to_dict("records")
    pair = json.loads(cell["config"])["pair"]
    assert (pair["name"], pair["published"]["stand_in"]) == ("mine", True)
    plain = smoke[smoke["drafter"] == "autoregressive"].iloc[0]
    assert plain["mal"] == 1.0
    assert cell["mal"] > 1.0
    report = folder / "results" / "report"
    assert len(pd.read_csv(report / "smoke.csv")) == len(smoke)
    assert {"index.html", "how_to_read.html", "yours.html", "smoke_mal.png"} <= {path.name for path in report.iterdir()}
