"""Loading pairs: what cannot be had is one sentence that names it."""

import os
import pickle
import shutil
import time
from pathlib import Path

import huggingface_hub.constants
import pytest
import torch
from checkpoints import WORDS, checkpoint
from transformers import AutoConfig, AutoModelForCausalLM, BloomConfig, BloomForCausalLM, MptConfig

from specdec_core import load_pair
from specdec_core.errors import LoadError, PairError
from specdec_core.models import CausalLM, ModelSpec


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return checkpoint(tmp_path_factory.mktemp("models") / "whole")


@pytest.fixture
def broken(whole: Path, tmp_path: Path) -> Path:
    """A copy to be damaged. Its name would be taken for a HTTP status, were the path searched for one."""
    return Path(shutil.copytree(whole, tmp_path / "gated-401"))


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "cache"))


def sentence(*models: object, **options: object) -> str:
    """What `load_pair` refuses with."""
    with pytest.raises(LoadError) as refusal:
        load_pair(*(str(model) if isinstance(model, Path) else model for model in models), **options)
    assert "\n" not in str(refusal.value)
    assert len(str(refusal.value)) < 450
    return str(refusal.value)


def test_a_pair_and_a_lone_target_load(whole):
    pair = load_pair(str(whole), str(whole), device="cpu")
    assert (pair.target.vocab_size, pair.draft.max_positions, pair.target.dtype) == (20, 64, torch.float32)
    assert pair.tokenizer("w3 w7")["input_ids"] == [3, 7]
    assert load_pair(str(whole), device="cpu").draft is None
    named = ModelSpec(id="any/name", folder=str(whole))
    assert load_pair(named, device="cpu", dtype="bfloat16").target.dtype == torch.bfloat16


def test_a_folder_that_is_not_there(tmp_path):
    started = time.perf_counter()
    said = sentence(tmp_path / "nowhere")
    assert f"{tmp_path}/nowhere is not on this machine" in said
    assert "give a folder" in said
    assert time.perf_counter() - started < 3


@pytest.mark.usefixtures("offline")
@pytest.mark.parametrize("model", ["org/no-model-401", ModelSpec(id="org/shut", gated=True, revision="v1")])
def test_a_hub_id_offline_is_named_at_once_with_what_to_do(model):
    started = time.perf_counter()
    said = sentence(model)
    assert time.perf_counter() - started < 3
    assert said.startswith(model if isinstance(model, str) else "org/shut (it is gated")
    assert "download it where there is a network" in said


@pytest.mark.usefixtures("offline")
def test_a_draft_that_is_missing_is_the_one_that_is_named(whole):
    assert sentence(whole, "org/draft").startswith("org/draft ")


@pytest.mark.parametrize(
    "text",
    [
        "You are trying to access a gated repo.\nMake sure to have access to it at https://huggingface.co/org/shut.",
        "403 Client Error. (Request ID: Root=1) Cannot access gated repo for url https://huggingface.co/org/shut",
        "org/shut is a gated repository. Make sure to request access at https://huggingface.co/org/shut",
    ],
)
def test_gated_models_say_where_to_accept_the_licence(text, monkeypatch):
    def refuse(*arguments: object, **options: object) -> None:
        raise OSError(text)

    monkeypatch.setattr(AutoConfig, "from_pretrained", refuse)
    said = sentence("org/shut")
    assert "org/shut is gated" in said
    assert "accept its licence" in said


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("model.safetensors", None),
        ("model.safetensors", 0),
        ("model.safetensors", 4),
        ("model.safetensors", 0.5),
        ("config.json", None),
        ("config.json", 0.5),
        ("tokenizer.json", None),
        ("tokenizer.json", 0.5),
    ],
)
def test_folders_with_missing_or_truncated_files(file, content, broken):
    """None: the file is missing. Otherwise this much of it is left, in bytes or as a share."""
    whole_file = (broken / file).read_bytes()
    (broken / file).unlink()
    if content is not None:
        size = content if isinstance(content, int) else int(content * len(whole_file))
        (broken / file).write_bytes(whole_file[:size])
    assert sentence(broken).startswith(f"the folder {broken} does not hold a loadable model: ")


def test_weights_that_do_not_fit_their_config_are_not_filled_with_random_numbers(broken):
    config = AutoConfig.from_pretrained(broken)
    config.num_hidden_layers = 2
    config.save_pretrained(broken)
    assert "lack 9 tensors" in sentence(broken)
    config.num_hidden_layers, config.intermediate_size = 1, 32
    config.save_pretrained(broken)
    assert "does not hold a loadable model" in sentence(broken)


def test_a_file_in_place_of_a_folder(whole):
    assert "give the folder that holds it" in sentence(whole / "config.json")


class Payload:
    """Creates a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return os.mkdir, (str(self.path),)


def test_pickled_weights_are_not_executed(broken, tmp_path):
    weights = AutoModelForCausalLM.from_pretrained(broken).state_dict()
    (broken / "model.safetensors").unlink()
    torch.save(weights, broken / "pytorch_model.bin")
    assert load_pair(str(broken), device="cpu").target.vocab_size == 20
    mark = tmp_path / "executed"
    torch.save(weights | {"extra": Payload(mark)}, broken / "pytorch_model.bin")
    assert "Weights only load failed" in sentence(broken)
    payload = pickle.dumps(Payload(mark), protocol=2)
    (broken / "pytorch_model.bin").write_bytes(payload)
    assert "does not hold a loadable model" in sentence(broken)
    assert not mark.exists()
    pickle.loads(payload)
    assert mark.exists(), "an execution would have been seen"


@pytest.mark.parametrize(
    ("words", "count"),
    [
        ([*WORDS[:4], WORDS[5], WORDS[4], *WORDS[6:]], 2),
        ([*WORDS[:19], "other"], 1),
        # all but the first, which is the tokenizer's own addition
        ([word.upper() for word in WORDS], 19),
    ],
)
def test_the_same_size_with_other_meanings_is_refused(words, count, whole, tmp_path):
    other = checkpoint(tmp_path / "other", words)
    with pytest.raises(PairError, match=rf"give {count} token ids different meanings .*target's tokenizer"):
        load_pair(str(whole), str(other), device="cpu")


def test_reserved_tokens_may_be_renamed(tmp_path):
    """As between releases of one family, which give names to tokens that were reserved before."""
    one, two = (checkpoint(tmp_path / name, WORDS, [f"<{name}>"]) for name in ("reserved", "pad"))
    assert load_pair(str(one), str(two), device="cpu").draft.vocab_size == 21


def test_drafts_of_a_kind_that_is_not_there(whole):
    said = sentence(whole, ModelSpec(id="org/heads", kind="hydra"))
    kinds = "causal_lm, reduced_lm, eagle, eagle3, speculators, medusa, dflash, mtp or layer_skip"
    assert said == f"org/heads: a draft is of kind {kinds}, not 'hydra'"
    assert "a target is of kind causal_lm, not 'eagle'" in sentence(ModelSpec(id="org/head", kind="eagle"))


def test_a_model_without_sdpa_runs_eagerly_and_says_so(whole, tmp_path):
    """BLOOM; others take what is asked for."""
    folder = tmp_path / "bloom"
    shutil.copytree(whole, folder, ignore=shutil.ignore_patterns("*.safetensors", "config.json"))
    BloomForCausalLM(BloomConfig(vocab_size=20, hidden_size=16, n_layer=1, n_head=2)).save_pretrained(folder)
    assert load_pair(str(folder), device="cpu").target.attention == "eager"
    assert load_pair(str(whole), device="cpu").target.attention == "sdpa"
    assert load_pair(str(whole), device="cpu", attention="eager").target.attention == "eager"


@pytest.mark.parametrize("error", [ImportError("flash_attn is not installed"), ValueError("no kernel for it")])
def test_what_is_not_the_hubs_failure_is_not_called_so(error, monkeypatch):
    def fail(*arguments: object, **options: object) -> None:
        raise error

    monkeypatch.setattr(AutoConfig, "from_pretrained", fail)
    assert sentence("org/model") == f"org/model cannot be loaded as asked: {error}"


def test_mpt_is_refused():
    config = MptConfig(d_model=32, n_heads=2, n_layers=1, vocab_size=64, max_seq_len=64)
    with pytest.raises(LoadError, match=r"mpt .* biases scores by slot, not by position"):
        CausalLM(AutoModelForCausalLM.from_config(config))
