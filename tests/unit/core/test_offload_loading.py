"""Offloaded targets from a checkpoint and in a cell; where their memory is; what is refused, each in a sentence."""

import math
from pathlib import Path

import pytest
import torch
from cells import execute
from checkpoints import checkpoint
from offloaded import stock
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM

from specdec_core import generate, load_pair
from specdec_core.drafters import OptTree
from specdec_core.errors import LoadError
from specdec_core.models import ModelSpec, fitting, placement
from specdec_core.models.memory import kv_bytes, offloaded_bytes, tree_bytes, weight_bytes
from specdec_core.models.offload import Offload, _fill, _pieces
from specdec_core.verifiers import TargetSample
from specdec_trees.results.store import load

CPU = torch.device("cpu")


@pytest.mark.parametrize("count", [-1, 6])
def test_numbers_of_resident_layers_that_there_are_not(count):
    with pytest.raises(LoadError, match=f"resident_layers is from 0 to the target's 5 layers, not {count}"):
        Offload(stock("llama"), CPU, count)


def test_models_that_cannot_be_streamed_are_refused():
    model = stock("llama")
    model.model.layers[2].mlp.up_proj.weight = model.model.layers[4].mlp.up_proj.weight
    with pytest.raises(LoadError, match="shares weights"):
        Offload(model, CPU)
    Offload(model, CPU, 5)
    model = stock("llama")
    model.model.more = nn.ModuleList(nn.Linear(1, 1) for _ in range(5))
    with pytest.raises(LoadError, match="no single list of 5 layers"):
        Offload(model, CPU)


@pytest.mark.parametrize("size", [1, 256, 2**20 - 1, 2**20, 2**20 + 256, 3 * 2**20, 11 * 2**20 + 512])
def test_pieces_are_powers_of_two_but_for_the_last(size):
    packed = torch.randint(256, (size,), dtype=torch.uint8)
    pieces = list(_pieces(packed))
    assert all(math.log2(piece.nbytes).is_integer() for piece in pieces[:-1])
    assert sum(2 ** math.ceil(math.log2(piece.nbytes)) for piece in pieces) < size + 2**20
    copied = torch.zeros_like(packed)
    _fill(copied, pieces)
    assert torch.equal(copied, packed)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> str:
    torch.manual_seed(0)
    options = {"num_hidden_layers": 5, "initializer_range": 0.4}
    return str(checkpoint(tmp_path_factory.mktemp("models") / "deep", **options))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("resident", [0, 1, 5])
def test_a_checkpoint_loads_offloaded(resident, dtype, saved):
    plain = load_pair(saved, saved, device="cpu", dtype=dtype)
    pair = load_pair(ModelSpec(id=saved, offload=True, resident_layers=resident), saved, device="cpu", dtype=dtype)
    assert plain.offload is None
    assert (pair.offload.num_layers, pair.offload.resident_layers) == (5, resident)
    assert (pair.target.device, pair.target.dtype) == (CPU, plain.target.dtype)
    results = [
        generate(both.target, OptTree(draft=both.draft, n=9, delta=0.1), TargetSample(), [3, 7], max_new_tokens=20)
        for both in (plain, pair)
    ]
    assert results[0].tokens == results[1].tokens


def test_what_load_pair_refuses(saved):
    with pytest.raises(LoadError, match=f"^{saved}: a draft stays on the device; offload the target alone$"):
        load_pair(saved, ModelSpec(id=saved, offload=True), device="cpu")
    for count in (-1, 6):
        with pytest.raises(LoadError, match=f"from 0 to the target's 5 layers, not {count}"):
            load_pair(ModelSpec(id=saved, offload=True, resident_layers=count), device="cpu")


def test_each_place_has_to_have_room_for_its_part(saved, monkeypatch):
    """Before any weight is read; the device needs less than the model, and the host all of it until layers move."""
    monkeypatch.setattr(AutoModelForCausalLM, "from_pretrained", lambda *_, **__: pytest.fail("weights were read"))
    monkeypatch.setattr(placement, "resolve_device", lambda device: "cuda")
    config, target = AutoConfig.from_pretrained(saved), ModelSpec(id=saved, offload=True, resident_layers=1)
    on_device, on_host = offloaded_bytes(config, torch.float32, 1)
    whole = weight_bytes(config, torch.float32)
    assert on_device < whole
    rest = kv_bytes(config, torch.float32, 64 + 1024) + tree_bytes(config, torch.float32, 64, 64)
    on_device, draft = on_device + rest, whole + rest

    def said(cuda: int, cpu: int) -> str:
        monkeypatch.setattr(fitting, "free_bytes", lambda device: cuda if device.type == "cuda" else cpu)
        with pytest.raises((LoadError, pytest.fail.Exception)) as refusal:
            load_pair(target, saved, device="cuda", dtype="float32")
        return str(refusal.value)

    assert "weights were read" in said(on_device + draft, whole)
    assert "but cuda:0 has" in said(on_device + draft - 1, whole)
    assert "but cpu has" in said(on_device + draft, whole - 1)
    monkeypatch.setattr(placement, "resolve_device", lambda device: "cpu")
    assert "weights were read" in said(0, on_device + on_host + draft)
    assert "but cpu has" in said(0, on_device + on_host + draft - 1)


def test_a_cell_with_an_offloaded_target_has_the_same_results(tmp_path: Path):
    chosen = ("dataset=mini", "limit=1", "decoding.max_new_tokens=6", "runtime.warmup_conversations=0")
    options = {"plain": (), "streamed": ("pair.target.offload=true", "pair.target.resident_layers=1")}
    for name, more in options.items():
        assert execute(tmp_path / name, *chosen, *more) == "ok"
    plain, streamed = (load(tmp_path / name, "default") for name in options)
    assert list(plain.prompts["output_sha256"]) == list(streamed.prompts["output_sha256"])
    assert list(plain.steps["kept"]) == list(streamed.steps["kept"])
    assert streamed.runs["run_id"][0] != plain.runs["run_id"][0]
    assert set(streamed.prompts["arm"]) == set(plain.prompts["arm"])
    assert len(set(streamed.prompts["arm"])) == 2


def test_a_cell_says_why_its_target_cannot_be_offloaded_so(tmp_path: Path):
    assert execute(tmp_path, "limit=1", "pair.target.offload=true", "pair.target.resident_layers=99") == "failed"
    assert "resident_layers is from 0 to" in load(tmp_path, "default").runs["error"][0]
