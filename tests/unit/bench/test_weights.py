"""Weights are known by all their bytes or by the hub's commit, read once; what is of others is measured again."""

import hashlib
import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
from cells import cell, config, execute
from checkpoints import checkpoint
from safetensors.torch import load_file, save_file

from specdec_core.models import ModelSpec
from specdec_trees import reproduce
from specdec_trees.configs.cells import scientific_config
from specdec_trees.measure import file_digests, weights
from specdec_trees.measure.file_digests import file_digest
from specdec_trees.measure.fingerprints import EMBEDDED, fingerprint_folder
from specdec_trees.names import without_paths
from specdec_trees.prompts.embedded import TINY
from specdec_trees.report import __main__ as report
from specdec_trees.results.rows import TABLES
from specdec_trees.results.store import Store

SHORT = ("dataset=mini", "drafter=chain4", "limit=1", "decoding.max_new_tokens=3", "runtime.warmup_conversations=0")
MIB = 1 << 20


def flip(path: Path, place: int) -> None:
    """Change one byte in place; size and name stay."""
    with path.open("r+b") as file:
        file.seek(place)
        old = file.read(1)
        file.seek(-1, 1)
        file.write(bytes([old[0] ^ 1]))


@pytest.mark.parametrize("place", [0, MIB - 1, MIB, 2 * MIB + 17, 3 * MIB - 1])
def test_every_byte_counts(tmp_path: Path, place: int) -> None:
    (tmp_path / "model.safetensors").write_bytes(bytes(3 * MIB))
    before = fingerprint_folder(tmp_path)
    flip(tmp_path / "model.safetensors", place)
    assert fingerprint_folder(tmp_path) != before
    flip(tmp_path / "model.safetensors", place)
    assert fingerprint_folder(tmp_path) == before


def test_a_head_trained_on_in_place_is_another(tmp_path: Path) -> None:
    head = tmp_path / "eagle"
    shutil.copytree(TINY / "eagle", head)
    assert fingerprint_folder(head) == fingerprint_folder(TINY / "eagle")
    tensors = load_file(head / "model.safetensors")
    tensors["layers.0.self_attn.q_proj.weight"] *= 0.5
    save_file(tensors, head / "model.safetensors", metadata={"format": "pt"})
    assert fingerprint_folder(head) != fingerprint_folder(TINY / "eagle")


def test_shards_count_wherever_their_index_says_that_they_lie(tmp_path: Path) -> None:
    (tmp_path / "model" / "parts").mkdir(parents=True)
    for name in ("parts/one.safetensors", "../two.safetensors"):
        (tmp_path / "model" / name).write_bytes(bytes(8))
    index = {"weight_map": {"a": "parts/one.safetensors", "b": "../two.safetensors"}}
    (tmp_path / "model" / "model.safetensors.index.json").write_text(json.dumps(index))
    found = [fingerprint_folder(tmp_path / "model")]
    for name in ("parts/one.safetensors", "../two.safetensors"):
        flip(tmp_path / "model" / name, 3)
        found.append(fingerprint_folder(tmp_path / "model"))
    assert len(set(found)) == 3
    (tmp_path / "model" / "model.safetensors.index.json").write_text("[]")
    assert fingerprint_folder(tmp_path / "model") not in found


def test_names_and_borders_of_files_count(tmp_path: Path) -> None:
    found = set()
    for number, files in enumerate([{"a": b"xy", "b": b""}, {"a": b"x", "b": b"y"}, {"a": b"xy"}, {"c": b"xy"}]):
        (tmp_path / str(number)).mkdir()
        for name, content in files.items():
            (tmp_path / str(number) / name).write_bytes(content)
        found.add(fingerprint_folder(tmp_path / str(number)))
    assert len(found) == 4


@pytest.fixture
def reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files that are read to be known, in a cache folder of one's own where small files are kept too."""
    found: list[str] = []
    whole = hashlib.file_digest
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(file_digests, "_known", {})
    monkeypatch.setattr(file_digests, "KEPT_BYTES", 1)
    monkeypatch.setattr(file_digests, "SETTLED_NS", -1)
    monkeypatch.setattr(hashlib, "file_digest", lambda file, kind: found.append(file.name) or whole(file, kind))
    return found


def another_process() -> None:
    file_digests._known.clear()


def test_a_file_is_read_once_for_all_processes(tmp_path: Path, reads: list[str]) -> None:
    path = tmp_path / "weights"
    path.write_bytes(b"one")
    for _ in range(2):
        assert file_digest(path) == hashlib.sha256(b"one").hexdigest()
        another_process()
    assert len(reads) == 1
    path.write_bytes(b"two")
    assert file_digest(path) == hashlib.sha256(b"two").hexdigest()
    assert len(reads) == 2
    assert not [other for other in tmp_path.iterdir() if other.name not in ("weights", "cache")]


@pytest.mark.parametrize("broken", ["", "{", "[]", "null", '{"path": 3}', '{"path": 1, "state": 2, "sha256": "zz"}'])
def test_a_broken_cache_file_is_ignored_and_mended(tmp_path: Path, reads: list[str], broken: str) -> None:
    path = tmp_path / "weights"
    path.write_bytes(b"one")
    expected = file_digest(path)
    (kept,) = (tmp_path / "cache").rglob("*.json")
    kept.write_text(broken)
    for _ in range(2):
        another_process()
        assert file_digest(path) == expected
    assert len(reads) == 2


def test_a_cache_that_cannot_be_written_costs_reading_alone(tmp_path: Path, reads: list[str]) -> None:
    (tmp_path / "cache").write_text("no folder")
    (tmp_path / "weights").write_bytes(b"one")
    assert {file_digest(tmp_path / "weights") for _ in range(3)} == {hashlib.sha256(b"one").hexdigest()}
    assert len(reads) == 1


def test_a_file_that_has_just_changed_is_not_yet_kept(tmp_path: Path, reads: list[str], monkeypatch) -> None:
    monkeypatch.setattr(file_digests, "SETTLED_NS", 10**12)
    (tmp_path / "weights").write_bytes(b"one")
    for _ in range(2):
        file_digest(tmp_path / "weights")
    assert len(reads) == 2, "it may change again within one tick of the clock"


def test_committed_rows_are_of_the_embedded_weights() -> None:
    model = scientific_config(config("pair=tiny_eagle"))["pair"]
    assert {model["target"]["files_sha256"], model["draft"]["files_sha256"]} <= set(EMBEDDED.values())
    assert weights.revision(ModelSpec(id="tiny/target", folder=str(TINY / "target"))) == (
        f"files:{model['target']['files_sha256']}"
    )


def test_a_cell_whose_folder_changed_is_measured_again_and_says_so(tmp_path: Path, caplog) -> None:
    draft = tmp_path / "draft"
    shutil.copytree(TINY / "draft", draft)
    own = (*SHORT, "pair=tiny", f"pair.draft.id={draft}")
    assert [execute(tmp_path / "results", *own) for _ in range(2)] == ["ok", "skipped"]
    caplog.clear()
    flip(draft / "model.safetensors", 500_000)
    assert execute(tmp_path / "results", *own) == "ok"
    assert len([one for one in caplog.records if "other weights" in one.getMessage()]) == 1
    runs = Store(tmp_path / "results", "default").read("runs")
    assert runs["run_id"].nunique() == runs["draft_revision"].nunique() == 2
    assert runs["target_revision"].nunique() == 1


def test_a_cell_whose_prompts_changed_is_measured_again_and_says_so(tmp_path: Path, caplog) -> None:
    questions = tmp_path / "own.jsonl"
    questions.write_text('{"id": "1", "turns": ["What is a list?"]}\n{"id": "2", "turns": ["What is a tuple?"]}\n')
    own = (*SHORT, "pair=tiny", f"+dataset.file={questions}", "~dataset.files")
    assert [execute(tmp_path / "results", *own) for _ in range(2)] == ["ok", "skipped"]
    caplog.clear()
    questions.write_text(questions.read_text().replace("tuple", "dict"))
    assert execute(tmp_path / "results", *own) == "ok"
    (message,) = (one.getMessage() for one in caplog.records if one.levelname == "WARNING")
    (before, _) = Store(tmp_path / "results", "default").read("runs").sort_values("created_utc")["run_id"]
    assert before in message
    assert "prompts" in message
    assert "weights" not in message


def test_a_hub_id_that_stands_for_another_commit_is_measured_again_and_says_so(
    tmp_path: Path, caplog, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = ["a" * 40]
    monkeypatch.setattr(weights, "revision", lambda spec: commit[0] if spec.id == "tiny/draft" else None)
    own = (*SHORT, "pair=tiny")
    assert [execute(tmp_path, *own) for _ in range(2)] == ["ok", "skipped"]
    commit[0] = "b" * 40
    caplog.clear()
    assert execute(tmp_path, *own) == "ok"
    assert len([one for one in caplog.records if "other weights" in one.getMessage()]) == 1
    assert execute(tmp_path, *own) == "skipped"
    runs = Store(tmp_path, "default").read("runs")
    assert runs["draft_revision"].tolist() == ["b" * 40]
    commit[0] = ""  # not known: no reason to measure again
    assert execute(tmp_path, *own) == "skipped"


def test_a_vector_is_of_its_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = (*SHORT, "pair=tiny", "drafter=sequoia", "calibration.acceptance.prompts=1")
    for commit in ("a" * 40, "b" * 40, "b" * 40):
        monkeypatch.setattr(weights, "revision", lambda spec, commit=commit: commit)
        cell(*own, f"results_dir={tmp_path}", "calibration.acceptance.new_tokens=4", "calibration.acceptance.repeats=1")
    found = Store(tmp_path, "calibration").read("acceptance")
    assert found["run_id"].nunique() == 2
    assert set(found["target_revision"]) == set(found["draft_revision"]) == {"a" * 40, "b" * 40}


def test_the_commit_of_a_hub_id_is_that_of_its_file(monkeypatch: pytest.MonkeyPatch) -> None:
    commit = "0123456789abcdef0123456789abcdef01234567"
    path = f"/cache/models--some--model/snapshots/{commit}/config.json"
    monkeypatch.setattr(weights, "cached_file", lambda *_, **__: path)
    weights._commit.cache_clear()
    assert weights.revision(ModelSpec(id="some/model-of-none")) == commit
    assert weights.revision(ModelSpec(id="some/model-of-none", revision="f" * 40)) == "f" * 40
    assert weights.commits(SimpleNamespace(target=ModelSpec(id="some/model-of-none"), draft=None, planted=None)) == {
        "commits": {"target_revision": commit}
    }
    weights._commit.cache_clear()


def test_a_local_model_is_its_files_wherever_they_lie(tmp_path) -> None:
    """Equal files in two homes are one cell; no row, plan, error or page has their place, or whose it is."""
    words = [f"w{number}" for number in range(64)]
    made = checkpoint(tmp_path / "made", words, max_position_embeddings=1024)
    homes = [tmp_path / "home" / user / "model" for user in ("alice", "bob")]
    for home in homes:
        shutil.copytree(made, home)
    name, names = "bench/mt_bench", []
    for number, home in enumerate(homes):
        root = tmp_path / "results" / str(number)
        options = (f"pair.target.id={home}", f"pair.draft.id={home}", "pair.template=plain")
        assert execute(root, *SHORT, *options, f"name={name}") == "ok"
        reproduce.write(reproduce.planned(name, ("pair=tiny", *options, "limit=1")), root / name)
        names += list(Store(root, name).read("runs")["run_id"])
    assert names[0] == names[1]
    assert report.main(["--results", str(root), "--out", str(root / "pages")]) == 0
    runs = Store(tmp_path / "results" / "0", name).read("runs")
    assert (runs["target_id"][0], runs["draft_id"][0]) == ("model", "model")
    texts = [path.read_text() for path in (tmp_path / "results").rglob("*") if path.suffix in (".json", ".html", ".md")]
    assert len(texts) > 2
    for store in (Store(tmp_path / "results" / str(number), name) for number in (0, 1)):
        frames = [store.read(table) for table in TABLES]
        texts += [str(value) for frame in frames for column in frame for value in frame[column]]
    for private in (str(tmp_path), str(Path.home()), "alice", "bob"):
        assert not any(private in text for text in texts), private


def test_an_error_names_no_place(tmp_path) -> None:
    said = f'File "{tmp_path}/a/b.py", line 3\nLoadError: {Path.home()}/models/x; see https://huggingface.co/a/b or n/a'
    assert without_paths(said) == 'File "b.py", line 3\nLoadError: ~/models/x; see https://huggingface.co/a/b or n/a'
