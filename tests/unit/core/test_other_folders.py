"""Folders that hold something else than a stock model: read as what they are, or one sentence with the way out."""

import json
import shutil
from pathlib import Path

import huggingface_hub.constants
import pytest
from checkpoints import checkpoint

from specdec_core import load_pair
from specdec_core.errors import LoadError
from specdec_core.models import ModelSpec
from specdec_core.models.fetch import fetch_config
from specdec_trees.calibrate.prices import shape_of

CLASSES = {"AutoConfig": "own.OwnConfig", "AutoModelForCausalLM": "own.OwnModel"}
TOKENIZER = {"AutoTokenizer": ["own.OwnTokenizer", None]}


@pytest.fixture(autouse=True)
def nobody_is_asked(monkeypatch):
    def ask(*words: object) -> str:
        raise AssertionError(f"a question on the terminal: {words}")

    monkeypatch.setattr("builtins.input", ask)


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    return checkpoint(tmp_path / "whole")


def changed(folder: Path, file: str, **said: object) -> None:
    """A json file of the folder that says something else besides."""
    (folder / file).write_text(json.dumps(json.loads((folder / file).read_text()) | said))


def refused(target: object, draft: object = None) -> str:
    """What `load_pair` refuses with."""
    with pytest.raises(LoadError) as refusal:
        load_pair(str(target), None if draft is None else str(draft), device="cpu")
    assert "\n" not in str(refusal.value)
    return str(refusal.value)


def adapter(folder: Path, base: Path) -> Path:
    """What peft saves: its own config, and matrices that are no model."""
    folder.mkdir()
    (folder / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "base_model_name_or_path": str(base)}))
    (folder / "adapter_model.safetensors").write_bytes(b"")
    return folder


@pytest.mark.parametrize("with_model", [False, True])
def test_adapters_are_to_be_merged(whole, tmp_path, with_model):
    """A model beside it would be taken for the sum of both."""
    folder = adapter(tmp_path / "adapter", whole)
    if with_model:
        shutil.copytree(whole, folder, dirs_exist_ok=True)
    for pair in ((folder,), (whole, folder)):
        assert "merge_and_unload" in refused(*pair)
    with pytest.raises(LoadError, match="merge_and_unload"):
        shape_of(ModelSpec(id=str(folder)))


def test_adapters_in_the_hubs_cache_are_to_be_merged(whole, tmp_path, monkeypatch):
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    store = tmp_path / "cache" / "models--org--tuned"
    (store / "refs").mkdir(parents=True)
    (store / "refs" / "main").write_text("c0ffee")
    (store / "snapshots").mkdir()
    adapter(store / "snapshots" / "c0ffee", whole)
    assert "merge_and_unload" in refused("org/tuned")


@pytest.mark.parametrize("kept", [(), ("config.json",), ("config.json", "tokenizer.json", "tokenizer_config.json")])
def test_gguf_is_to_be_converted(whole, tmp_path, kept):
    folder = tmp_path / "quantised"
    folder.mkdir()
    for name in kept:
        shutil.copy(whole / name, folder)
    (folder / "model-q4_k_m.gguf").write_bytes(b"GGUF")
    for path in (folder, folder / "model-q4_k_m.gguf"):
        assert "GGUF" in refused(path)
        assert "GGUF" in refused(whole, path)


def test_gguf_beside_weights_is_no_matter(whole):
    (whole / "model-q4_k_m.gguf").write_bytes(b"GGUF")
    assert load_pair(str(whole), device="cpu").target.vocab_size == 20
    (whole / "model.safetensors").write_bytes(b"cut")
    assert "GGUF" not in refused(whole)


@pytest.mark.parametrize("mark", ["", "raise SystemExit('own code was run')"])
def test_code_in_a_folder_is_neither_run_nor_asked_for(whole, mark):
    (whole / "own.py").write_text(mark)
    changed(whole, "config.json", model_type="own", auto_map=CLASSES)
    assert "auto_map" in refused(whole)
    with pytest.raises(LoadError, match="auto_map"):
        fetch_config(ModelSpec(id=str(whole)))


def test_a_tokenizers_own_code_is_neither_run_nor_asked_for(whole):
    (whole / "own.py").write_text("raise SystemExit('own code was run')")
    changed(whole, "tokenizer_config.json", auto_map=TOKENIZER, tokenizer_class="OwnTokenizer")
    (whole / "tokenizer.json").unlink()
    assert "own" in refused(whole).lower()


def test_a_stock_class_stands_for_a_folders_own_code(whole):
    """As of Phi-3's files, whose types came into transformers after their code."""
    (whole / "own.py").write_text("raise SystemExit('own code was run')")
    changed(whole, "config.json", auto_map=CLASSES)
    assert type(load_pair(str(whole), str(whole), device="cpu").target.model).__name__ == "LlamaForCausalLM"


def test_a_plan_names_what_is_wrong_with_a_folder(whole):
    changed(whole, "config.json", model_type="own", auto_map=CLASSES)
    with pytest.raises(LoadError, match="auto_map"):
        shape_of(ModelSpec(id=str(whole)))
