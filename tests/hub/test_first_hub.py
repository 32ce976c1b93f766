"""What a user meets who names hub ids, on a hub of our own: refusals, a network that fails, and runs."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest
from published_datasets import dataset, parquet
from served import TOKEN, Hub, Repository, client, environment, served

from specdec_trees.prompts.embedded import TINY


@pytest.fixture
def hub() -> Iterator[Hub]:
    target, draft = Repository.of(TINY / "target"), Repository.of(TINY / "draft")
    with served(Hub({"models/acme/target": target, "models/acme/draft": draft})) as running:
        yield running


def test_what_cannot_be_read_is_said_in_one_sentence_and_a_network_that_fails_now_and_then_is_borne(hub, tmp_path):
    """Connections that break inside a file, a hub that is asked too often, one that is down for a moment."""
    files = hub.repositories["models/acme/target"].files
    hub.repositories["models/acme/shut"] = Repository(files, gated=True)
    hub.repositories["models/acme/hidden"] = Repository(files, private=True)
    failing = {"broken": [0, 0], "busy": [429], "down": [503, 500], "gone": [503] * 99}
    for name, statuses in failing.items():
        hub.repositories[f"models/acme/{name}"] = Repository(files, faults={"model.safetensors": statuses})
    names = ("nothing", "shut", "hidden", "target", *failing)
    said = client(hub, tmp_path, "load", *(f"acme/{name}" for name in names))
    assert all(sentence is None or "\n" not in sentence for sentence in said.values())
    assert {name for name in names if said[f"acme/{name}"] is None} == {"target", "broken", "busy", "down"}
    assert "503" in said["acme/gone"]
    assert "gated" in said["acme/shut"]
    for name in ("acme/nothing", "acme/hidden"):
        assert hub.url in said[name]
        assert "network" not in said[name], "it was there"
    told = client(hub, tmp_path, "load", "acme/shut", "acme/hidden", HF_TOKEN=TOKEN)
    assert told == {"acme/shut": None, "acme/hidden": None}


def run(hub: Hub, folder: Path, *words: str, **more: str) -> tuple[int, str]:
    """`python -m specdec_trees.run` of a small cell: exit status and all that the terminal shows."""
    ids = ["pair=tiny", "pair.target.id=acme/target", "pair.draft.id=acme/draft", "dataset=gsm8k"]
    small = ["decoding.max_new_tokens=8", "limit=2", "runtime.device=cpu", "results_dir=results"]
    command = [sys.executable, "-m", "specdec_trees.run", *words, *ids, *small]
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    done = subprocess.run(command, cwd=folder, env=environment(hub, folder / "hf", **more), timeout=300, **streams)
    return done.returncode, done.stdout


def runs(folder: Path) -> pd.DataFrame:
    """By drafter."""
    rows = pd.concat(map(pd.read_parquet, (folder / "results/default/runs").glob("*.parquet")))
    return rows.set_index("drafter").sort_index()


def test_a_first_run_from_hub_ids_then_one_without_the_hub_then_one_where_main_has_moved(hub, tmp_path):
    target, questions = hub.repositories["models/acme/target"], dataset("openai/gsm8k")
    hub.repositories["datasets/openai/gsm8k"] = questions
    status, shown = run(hub, tmp_path, "drafter=opt_tree")
    assert status == 0, shown
    assert "HTTP Request" not in shown
    assert "Traceback" not in shown
    (first,) = runs(tmp_path).itertuples()
    assert first.target_revision == target.commit
    assert first.identical == 1

    status, shown = run(hub, tmp_path, "-m", "drafter=chain4,opt_tree", HF_HUB_OFFLINE="1")
    assert status == 0, shown
    chain, again = runs(tmp_path).itertuples()
    assert again.created_utc == first.created_utc, "it was there already"
    assert (chain.target_revision, chain.prompts_sha256) == (first.target_revision, first.prompts_sha256)
    assert chain.identical == 1

    target.move({"README.md": b"main has moved"})
    questions.move({"main/test-00000-of-00001.parquet": parquet([{"question": "Moved?", "answer": "#### 1"}])})
    status, shown = run(hub, tmp_path, "drafter=opt_tree")
    assert status == 0, shown
    before, moved = runs(tmp_path).itertuples()
    assert before.created_utc == chain.created_utc, "nobody asked for it"
    assert moved.target_revision == target.commit != first.target_revision
    assert moved.prompts_sha256 != first.prompts_sha256
    assert first.target_revision in shown
    assert moved.target_revision in shown
