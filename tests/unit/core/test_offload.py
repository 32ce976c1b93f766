"""An offloaded target: the resident model's numbers, bit for bit, with room for two layers on the device."""

import copy

import pytest
import torch
from offloaded import CONFIGS, both, history, same, stock, storages
from torch import nn

from specdec_core import CausalLM, Sampling, generate
from specdec_core.drafters import Autoregressive, OptTree
from specdec_core.models.memory import offloaded_bytes, streamed_layers, weight_bytes
from specdec_core.models.offload import Offload
from specdec_core.timing import Clock
from specdec_core.verifiers import TargetSample

CPU = torch.device("cpu")
RESIDENT = (0, 1, -2, -1, "all")


@pytest.fixture(params=CONFIGS)
def name(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.mark.parametrize("choice", RESIDENT)
def test_logits_are_the_resident_models_bit_for_bit(choice, name):
    plain, offloaded, _ = both(name, choice)
    expected = history(plain)
    assert expected[-1].isfinite().all()
    assert same(history(offloaded), expected)
    assert same(history(offloaded), expected), "and again, from what the last pass fetched"


def test_the_comparison_sees_a_layer_with_other_weights():
    plain, offloaded, offload = both("llama")
    offload.host[3][0].zero_()
    assert not same(history(offloaded), history(plain))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_other_dtypes(dtype):
    model = stock("llama").to(dtype)
    other = copy.deepcopy(model)
    Offload(other, CPU, 1)
    tokens = torch.tensor([[5, 9, 11, 3]])
    with torch.inference_mode():
        assert torch.equal(other(tokens).logits, model(tokens).logits)


def test_layers_of_mixed_dtypes_and_sizes():
    model = stock("llama")
    model.model.layers[2].mlp = nn.Sequential(nn.Linear(32, 300), nn.Linear(300, 32))
    model.model.layers[3].register_buffer("scale", torch.ones(()))
    model.model.layers[3].register_buffer("table", torch.arange(3))
    model.model.layers[4].register_parameter("narrow", nn.Parameter(torch.ones(3, dtype=torch.float16)))
    other = copy.deepcopy(model)
    offload = Offload(other, CPU)
    assert same(history(CausalLM(other)), history(CausalLM(model)))
    layers = other.model.layers
    shared = storages(offload.buffers)
    assert shared.keys() >= storages([layers[3].scale, layers[4].narrow, layers[2].mlp[0].weight]).keys()
    assert layers[3].table.untyped_storage().data_ptr() not in shared
    assert len({buffer.nbytes for buffer in offload.buffers}) == 1


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(0.8)])
def test_generation_is_the_resident_models(sampling, name, toy_draft):
    plain, offloaded, _ = both(name, 1)
    for build in (Autoregressive, lambda: OptTree(draft=toy_draft, n=12, delta=0.1)):
        results = [
            generate(model, build(), TargetSample(), [3, 7, 9], max_new_tokens=12, sampling=sampling)
            for model in (plain, offloaded)
        ]
        assert results[0].tokens == results[1].tokens


@pytest.mark.parametrize("choice", RESIDENT)
def test_only_two_streamed_layers_have_room_on_the_device(choice, name):
    plain, offloaded, offload = both(name, choice)
    layers, first = plain.config.num_hidden_layers, offload.resident_layers
    assert (offload.num_layers, first) == (layers, layers if choice == "all" else choice % layers)
    history(offloaded, rounds=1)
    model = offloaded.model
    assert offloaded.device == CPU
    buffers = storages(offload.buffers)
    assert len(buffers) == min(2, layers - first) == len(offload.buffers)
    for s, layer in enumerate(streamed_layers(model, first)):
        assert storages(layer.parameters()) == storages([offload.buffers[s % 2]])
    in_use = storages(model.parameters())
    assert len(in_use.keys() & buffers.keys()) == len(buffers)
    on_device, on_host = offloaded_bytes(plain.config, torch.float32, first)
    assert sum(in_use.values()) == on_device
    assert sum(storages(piece for pieces in offload.host for piece in pieces).values()) == on_host
    assert (on_device == weight_bytes(plain.config, torch.float32)) == (choice == "all")


@pytest.mark.parametrize("choice", RESIDENT)
@pytest.mark.parametrize("name", ["llama", "opt", "gpt2"])
def test_bytes_per_forward_are_those_that_a_forward_copies(choice, name):
    _, offloaded, offload = both(name, choice)
    history(offloaded, rounds=1)
    before = offload.bytes_streamed
    offloaded.extend(torch.tensor([1]))
    assert offload.bytes_streamed - before == offload.bytes_per_forward
    streamed = offload.num_layers - offload.resident_layers
    if streamed > 3:
        assert offload.bytes_per_forward == sum(piece.nbytes for pieces in offload.host for piece in pieces)
    assert (offload.bytes_per_forward == 0) == (streamed <= 2)


def test_waiting_for_copies_is_tallied_on_request():
    _, offloaded, offload = both("llama", 1)
    history(offloaded)
    clock = Clock(CPU)
    offload.measure(clock)
    offloaded.extend(torch.tensor([1]))
    tally = clock.read()[-1]["copy"]
    assert tally.seconds > 0
    assert tally.calls == 4
    offload.measure(None)
    offloaded.extend(torch.tensor([1]))
    assert clock.read()[-1]["copy"].calls == 4
