"""Memory, dtypes and devices are looked at before any weight is read."""

import pytest
import torch
from checkpoints import SMALL, WORDS, checkpoint
from transformers import AutoConfig, AutoModelForCausalLM, GPT2Config, LlamaConfig, OPTConfig

from specdec_core import load_pair
from specdec_core.errors import LoadError, PairError
from specdec_core.models import ModelSpec, fitting, memory, placement
from specdec_core.models.memory import (
    eagle_bytes,
    free_bytes,
    kv_bytes,
    offloaded_bytes,
    tree_bytes,
    weight_bytes,
)
from specdec_core.models.placement import Placement


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
    config = AutoConfig.from_pretrained(whole)
    needed = 2 * (weight_bytes(config, torch.float32) + rest(config, torch.float32, 64))
    monkeypatch.setattr(fitting, "free_bytes", lambda device: needed - 1)
    said = sentence(whole, whole, device="cpu", dtype="float32")
    assert said.startswith(f"{whole} and {whole} need 0.0 GiB for weights and 0.0 GiB for keys and values of 2,048 ")
    assert "a tree of 64 nodes, but cpu has 0.0 GiB free; use a smaller pair" in said
    monkeypatch.setattr(fitting, "free_bytes", lambda device: needed)
    with pytest.raises(LoadError, match="weights were read"):
        load_pair(whole, whole, device="cpu", dtype="float32")


def rest(config: LlamaConfig, dtype: torch.dtype, positions: int) -> int:
    """Keys and values of so many tokens with the cache's room, and a tree of 64 nodes behind them."""
    return kv_bytes(config, dtype, positions + 1024) + tree_bytes(config, dtype, 64, positions)


TARGET, DRAFT = ModelSpec(id="org/target"), ModelSpec(id="org/draft")
LARGE = LlamaConfig(hidden_size=4096, num_hidden_layers=4, max_position_embeddings=4096)
LITTLE = LlamaConfig(hidden_size=512, intermediate_size=1024, num_hidden_layers=1, num_attention_heads=8)
CPU, *GPUS = (torch.device(name) for name in ("cpu", "cuda:0", "cuda:1"))


def parts(config: LlamaConfig, weights: int | None = None) -> tuple[int, int]:
    found = weight_bytes(config, torch.bfloat16) if weights is None else weights
    return found, rest(config, torch.bfloat16, 2048)


@pytest.mark.parametrize("beside", [False, True], ids=["draft elsewhere", "draft beside"])
def test_a_spread_target_needs_its_devices_together_and_the_draft_its_own(beside):
    where = Placement(device=GPUS[0], device_map={"a": 0, "b": 1}, draft=GPUS[1] if beside else torch.device("cuda:2"))
    large, little = parts(LARGE), parts(LITTLE)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(placement, "resolve_device", lambda device, option="device": device)
        found = fitting.needed([TARGET, DRAFT], [LARGE, LITTLE], where, torch.bfloat16)
    together = tuple(a + b for a, b in zip(large, little, strict=True)) if beside else large
    assert found == {tuple(GPUS): together, (where.draft,): little}


def test_one_device_needs_both_and_a_rank_its_share_beside_a_whole_draft():
    large, little = parts(LARGE), parts(LITTLE)
    one = fitting.needed([TARGET, DRAFT], [LARGE, LITTLE], Placement(device=GPUS[0]), torch.bfloat16)
    assert one == {(GPUS[0],): (large[0] + little[0], large[1] + little[1])}
    shared = fitting.needed([TARGET, DRAFT], [LARGE, LITTLE], Placement(device=GPUS[0], ranks=2), torch.bfloat16)
    halves = (large[0] // 2 + little[0], large[1] // 2 + little[1])
    assert shared == {(GPUS[0],): pytest.approx(halves, abs=1)}
    hosts = fitting.needed([TARGET, DRAFT], [LARGE, LITTLE], Placement(device=CPU, ranks=2), torch.bfloat16)
    assert hosts == {(CPU,): pytest.approx([2 * part for part in halves], abs=2)}


def test_an_eagle_head_and_an_offloaded_target_need_what_they_are():
    head = ModelSpec(id="org/head", kind="eagle")
    found = fitting.needed([TARGET, head], [LARGE, LITTLE], Placement(device=GPUS[0]), torch.bfloat16)
    large, little = parts(LARGE), parts(LITTLE, eagle_bytes(LITTLE, torch.bfloat16))
    assert found == {(GPUS[0],): (large[0] + little[0], large[1] + little[1])}
    streamed = ModelSpec(id="org/target", offload=True, resident_layers=1)
    on_device, on_host = offloaded_bytes(LARGE, torch.bfloat16, 1)
    found = fitting.needed([streamed], [LARGE], Placement(device=GPUS[0]), torch.bfloat16)
    assert found == {(GPUS[0],): (on_device, large[1]), (CPU,): (large[0], 0)}
    found = fitting.needed([streamed], [LARGE], Placement(device=CPU), torch.bfloat16)
    assert found == {(CPU,): (on_device + on_host, large[1])}


@pytest.mark.parametrize("bits", [4, 8])
def test_quantised_layers_take_their_bits_and_the_rest_the_dtype(bits):
    """Of Llama, all but embedding, output matrix and norms."""
    outside = 2 * LARGE.vocab_size * 4096 + (2 * 4 + 1) * 4096
    total = weight_bytes(LARGE, torch.bfloat16) // 2
    assert memory.quantised_bytes(LARGE, torch.bfloat16, bits) == 2 * outside + (total - outside) * bits // 8
    spec = ModelSpec(id="org/target", bits=bits)
    found = fitting.needed([spec], [LARGE], Placement(device=GPUS[0]), torch.bfloat16)
    assert found[GPUS[0],].weights == memory.quantised_bytes(LARGE, torch.bfloat16, bits)


def test_free_memory_of_several_devices_is_added_up_and_the_disk_is_not_asked(monkeypatch):
    monkeypatch.setattr(placement, "resolve_device", lambda device, option="device": device)
    where = Placement(device=GPUS[0], device_map={"a": 0, "b": 1})
    need = sum(parts(LARGE))
    monkeypatch.setattr(fitting, "free_bytes", lambda device: need - need // 2)
    fitting.check_memory([TARGET], [LARGE], where, torch.bfloat16)
    monkeypatch.setattr(fitting, "free_bytes", lambda device: need // 2 - 1)
    with pytest.raises(LoadError, match=r"org/target need .* but cuda:0 and cuda:1 has"):
        fitting.check_memory([TARGET], [LARGE], where, torch.bfloat16)
    onto_disk = Placement(device=CPU, device_map={"a": "cpu", "b": "disk"})
    fitting.check_memory([TARGET], [LARGE], onto_disk, torch.bfloat16)


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
    assert f"unknown dtype {dtype!r}; use auto, auto_fp16, float32, bfloat16 or float16" in sentence(whole, dtype=dtype)


def test_devices_that_are_none(whole, monkeypatch):
    assert "unknown runtime.device=gpu; use auto, cpu, cuda or cuda:1" in sentence(whole, device="gpu")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert "runtime.device=cuda:1, but this machine shows no CUDA device" in sentence(whole, device="cuda:1")
    assert placement.resolve_device("auto") == "cpu"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert placement.resolve_device("auto") == "cuda"
    assert "runtime.device=cuda:1, but this machine shows only 0 GPUs" in sentence(whole, device="cuda:1")
    kinds = [placement.resolve_dtype("auto", torch.device(name)) for name in ("cpu", "cuda")]
    assert kinds == [torch.float32, torch.bfloat16]


@pytest.mark.parametrize("options", [{"device_map": "auto"}, {"draft_device": "cuda"}, {"draft_device": "cuda:0"}, {}])
def test_the_first_gpu_is_the_same_by_every_name(options, monkeypatch):
    """The draft counts beside the target, whether the device is called cuda or cuda:0."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    where = placement.placed("auto", **options)
    found = fitting.needed([TARGET, DRAFT], [LARGE, LITTLE], where, torch.bfloat16)
    assert sum(found[where.pool]) == sum(parts(LARGE)) + sum(parts(LITTLE))
    assert all(device.index is not None for devices in found for device in devices)


def test_a_device_map_that_names_no_part_of_the_model_is_refused(whole):
    said = sentence(whole, device_map={"model": "cpu", "modle.norm": "cpu", "lm_head": "cpu"})
    assert said == (
        "device_map names 'modle.norm', which LlamaForCausalLM has not; its parts have names such as model.layers.0 "
        "and those above it"
    )


@pytest.mark.parametrize("apart", [{"lm_head": 1}, {"lm_head": "cuda:1"}, {"model.embed_tokens": 2}])
def test_a_device_map_that_shares_tied_embeddings_between_gpus_is_refused(apart):
    config = LlamaConfig(num_hidden_layers=2, hidden_size=8, num_attention_heads=2, tie_word_embeddings=True)
    whole = {"model": 0, "lm_head": "cuda"}
    for fitting_map in (whole, {"": 0}, {"model": "cpu"}, {"model": 0}, {"model": 0, "lm_head": "cpu"}):
        fitting.check_map(fitting_map, config)
    with pytest.raises(LoadError, match=r"model\.embed_tokens\.weight and lm_head\.weight"):
        fitting.check_map(whole | apart, config)
    config.tie_word_embeddings = False
    fitting.check_map(whole | apart, config)
