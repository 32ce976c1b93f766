"""What a user meets who names hub ids, on a hub of our own: pairs, datasets, refusals, and a network that fails."""

import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from served import TOKEN, Hub, Repository, served

from bench.prompts.embedded import TINY

ROOT = Path(__file__).parents[2]
FILE = "main/test-00000-of-00001.parquet"
CARD = b"---\nconfigs:\n- config_name: main\n  data_files:\n  - split: test\n    path: main/test-*\n---\n"


def parquet(rows: list[dict[str, str]]) -> bytes:
    file = io.BytesIO()
    pd.DataFrame(rows).to_parquet(file)
    return file.getvalue()


def gsm8k() -> Repository:
    """As its publisher lays it out: a card that names the files, and parquet."""
    rows = [{"question": f"What is {number} plus {number}?", "answer": f"#### {2 * number}"} for number in range(12)]
    return Repository({"README.md": CARD, FILE: parquet(rows)})


@pytest.fixture
def hub() -> Iterator[Hub]:
    target, draft = Repository.of(TINY / "target"), Repository.of(TINY / "draft")
    with served(Hub({"models/acme/target": target, "models/acme/draft": draft})) as running:
        yield running


def environment(hub: Hub, home: Path, **more: str) -> dict[str, str]:
    """Of a machine that has nothing yet."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "TRANSFORMERS_"))}
    told = {"HF_ENDPOINT": hub.url, "HF_HOME": str(home), "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    told |= {"NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}
    return plain | told | more


LOADING = """
import json, sys
from specdec_core.errors import LoadError
from specdec_core.models import load_pair
said = {}
for target in sys.argv[1:]:
    try:
        load_pair(target, device="cpu")
        said[target] = None
    except LoadError as error:
        said[target] = str(error)
print(json.dumps(said))
"""


def loaded(hub: Hub, home: Path, *targets: str, **more: str) -> dict[str, str | None]:
    """What loading each of these says; None where it loads."""
    command = [sys.executable, "-c", LOADING, *targets]
    done = subprocess.run(command, env=environment(hub, home, **more), capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_what_cannot_be_read_is_said_in_one_sentence(hub, tmp_path):
    files = hub.repositories["models/acme/target"].files
    hub.repositories["models/acme/shut"] = Repository(files, gated=True)
    hub.repositories["models/acme/hidden"] = Repository(files, private=True)
    said = loaded(hub, tmp_path, "acme/nothing", "acme/shut", "acme/hidden", "acme/target")
    assert all(sentence is None or "\n" not in sentence for sentence in said.values())
    assert said.pop("acme/target") is None
    assert "gated" in said["acme/shut"]
    for name in ("acme/nothing", "acme/hidden"):
        assert hub.url in said[name]
        assert "network" not in said[name], "it was there"
    told = loaded(hub, tmp_path, "acme/shut", "acme/hidden", HF_TOKEN=TOKEN)
    assert told == {"acme/shut": None, "acme/hidden": None}


def test_a_network_that_fails_now_and_then_is_borne(hub, tmp_path):
    """Connections that break inside a file, a hub that is asked too often, one that is down for a moment."""
    files = hub.repositories["models/acme/target"].files
    failing = {"broken": [0, 0], "busy": [429], "down": [503, 500], "gone": [503] * 99}
    for name, statuses in failing.items():
        hub.repositories[f"models/acme/{name}"] = Repository(files, faults={"model.safetensors": statuses})
    said = loaded(hub, tmp_path, *(f"acme/{name}" for name in failing))
    assert "503" in said.pop("acme/gone")
    assert set(said.values()) == {None}


READING = """
import json, sys
from cells import config
from bench.configs.cells import cell_of
from bench.prompts.datasets import DatasetError, load
try:
    print(json.dumps(len(load(cell_of(config("dataset=gsm8k")).dataset, limit=2))))
except DatasetError as error:
    print(json.dumps(str(error)))
"""


def read(hub: Hub, home: Path) -> int | str:
    """How many conversations of GSM8K there are, or why there are none."""
    folders = {"PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}"}
    options = {"env": environment(hub, home, **folders), "capture_output": True, "text": True, "timeout": 200}
    done = subprocess.run([sys.executable, "-c", READING], **options)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({}, 2),
        ({"faults": {FILE: [429, 503]}}, 2),
        ({"gated": True}, "gated"),
        (None, "not on"),
    ],
)
def test_a_dataset_is_read_or_its_lack_explained(hub, change, said, tmp_path):
    if change is not None:
        hub.repositories["datasets/openai/gsm8k"] = replace(gsm8k(), **change)
    found = read(hub, tmp_path)
    assert found == said if isinstance(said, int) else said in str(found)


def run(hub: Hub, folder: Path, **more: str) -> tuple[int, str]:
    """`python -m bench.run` of a small cell: exit status and all that the terminal shows."""
    ids = ["pair=tiny", "pair.target.id=acme/target", "pair.draft.id=acme/draft", "dataset=gsm8k", "drafter=opt_tree"]
    small = ["decoding.max_new_tokens=8", "limit=2", "runtime.device=cpu", "results_dir=results"]
    command = [sys.executable, "-m", "bench.run", *ids, *small]
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    done = subprocess.run(command, cwd=folder, env=environment(hub, folder / "hf", **more), timeout=300, **streams)
    return done.returncode, done.stdout


def runs(folder: Path) -> pd.DataFrame:
    return pd.concat(map(pd.read_parquet, sorted((folder / "results/default/runs").glob("*.parquet"))))


def test_a_first_run_from_hub_ids_then_one_without_the_hub_then_one_of_other_weights(hub, tmp_path):
    hub.repositories["datasets/openai/gsm8k"] = gsm8k()
    status, shown = run(hub, tmp_path)
    assert status == 0, shown
    assert "HTTP Request" not in shown
    assert "Traceback" not in shown
    (first,) = runs(tmp_path).itertuples()
    assert first.target_revision == hub.repositories["models/acme/target"].commit
    assert first.identical == 1

    status, shown = run(hub, tmp_path, HF_HUB_OFFLINE="1")
    assert status == 0, shown
    assert runs(tmp_path)["run_id"].tolist() == [first.run_id], "it is there already"

    hub.repositories["models/acme/target"].files["README.md"] = b"main has moved"
    status, shown = run(hub, tmp_path)
    assert status == 0, shown
    moved = hub.repositories["models/acme/target"].commit
    assert runs(tmp_path)["target_revision"].tolist() == [moved]
    assert first.target_revision in shown
    assert moved in shown
