"""Memory, dtypes and devices are looked at before any weight is read."""

import pytest
import torch
from checkpoints import SMALL, WORDS, checkpoint
from transformers import AutoConfig, AutoModelForCausalLM, GPT2Config, LlamaConfig, OPTConfig

from specdec_core import load_pair
from specdec_core.errors import LoadError, PairError
from specdec_core.models import loading
from specdec_core.models.memory import free_bytes, weight_bytes


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(checkpoint(tmp_path_factory.mktemp("models") / "whole"))


def sentence(*models: str, **options: str) -> str:
    with pytest.raises(LoadError) as refusal:
        load_pair(*models, **options)
    return str(refusal.value)


@pytest.fixture
def no_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    def touched(*arguments: object, **options: object) -> None:
        raise AssertionError("weights were read")

    monkeypatch.setattr(AutoModelForCausalLM, "from_pretrained", touched)


def test_vocabularies_are_compared_before_weights_are_read(whole, tmp_path, no_weights):
    other = checkpoint(tmp_path / "other", WORDS[::-1])
    with pytest.raises(PairError):
        load_pair(whole, str(other), device="cpu")


def test_models_larger_than_free_memory_are_refused_before_weights_are_read(whole, monkeypatch, no_weights):
    needed = 2 * weight_bytes(AutoConfig.from_pretrained(whole), torch.float32)
    monkeypatch.setattr(loading, "free_bytes", lambda device: needed - 1)
    said = sentence(whole, whole, device="cpu", dtype="float32")
    assert f"{whole} and {whole} need 0.0 GiB for weights, but cpu has 0.0 GiB free" in said
    assert "smaller pair" in said
    monkeypatch.setattr(loading, "free_bytes", lambda device: needed)
    with pytest.raises(LoadError, match="weights were read"):
        load_pair(whole, whole, device="cpu", dtype="float32")


def test_a_70b_model_is_measured_without_being_made(monkeypatch):
    config = LlamaConfig(hidden_size=8192, intermediate_size=28672, num_hidden_layers=80, num_attention_heads=64)
    config.num_key_value_heads, config.vocab_size = 8, 32000
    assert weight_bytes(config, torch.bfloat16) == 137_953_296_384


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize(
    "config",
    [
        LlamaConfig(vocab_size=61, **SMALL),
        LlamaConfig(vocab_size=61, tie_word_embeddings=True, **SMALL),
        GPT2Config(vocab_size=61, n_embd=16, n_layer=2, n_head=2, n_positions=32),
        OPTConfig(vocab_size=61, hidden_size=16, ffn_dim=24, num_hidden_layers=1, num_attention_heads=2),
    ],
    ids=["llama", "llama_tied", "gpt2", "opt"],
)
def test_weight_bytes_are_those_of_the_real_model(config, dtype):
    model = AutoModelForCausalLM.from_config(config, dtype=dtype)
    real = {tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes() for tensor in model.parameters()}
    assert weight_bytes(config, dtype) == sum(real.values())


def test_free_memory_of_this_machine():
    free = free_bytes(torch.device("cpu"))
    assert free is None or 2**20 < free < 2**50


@pytest.mark.parametrize("dtype", ["float33", "int8", "nn"])
def test_dtypes_that_are_none(dtype, whole):
    assert f"unknown dtype {dtype!r}; use auto, float32, bfloat16 or float16" in sentence(whole, dtype=dtype)


def test_devices_that_are_none(whole, monkeypatch):
    assert "unknown runtime.device=gpu; use auto, cpu, cuda or cuda:1" in sentence(whole, device="gpu")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert "runtime.device=cuda:1, but this machine shows no CUDA device" in sentence(whole, device="cuda:1")
    assert loading.resolve_device("auto") == "cpu"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert loading.resolve_device("auto") == "cuda"
    kinds = [loading.resolve_dtype("auto", torch.device(name)) for name in ("cpu", "cuda")]
    assert kinds == [torch.float32, torch.bfloat16]
