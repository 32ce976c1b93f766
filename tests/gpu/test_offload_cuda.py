"""Offloading on a GPU: the resident model's numbers, pinned memory, no waiting host, and copies behind the compute."""

import gc
import math
import statistics
from collections.abc import Callable
from functools import partial

import pytest
import torch
from offloaded import CONFIGS, both, history, same
from transformers import LlamaConfig, LlamaForCausalLM

from specdec_core import CausalLM, generate, load_pair
from specdec_core.drafters import OptTree
from specdec_core.layout import causal_layout
from specdec_core.models import ModelSpec
from specdec_core.models.memory import offloaded_bytes
from specdec_core.models.offload import Offload, _fill
from specdec_core.timing import Clock
from specdec_core.verifiers import Greedy
from specdec_trees.prompts.embedded import TINY

DEVICE = torch.device("cuda")
RESIDENT = (0, 1, -2, -1, "all")
pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]


@pytest.mark.parametrize("choice", RESIDENT)
@pytest.mark.parametrize("name", CONFIGS)
def test_logits_are_the_resident_models_bit_for_bit(name, choice):
    plain, offloaded, _ = both(name, choice, "cuda")
    assert offloaded.device.type == "cuda"
    expected = history(plain)
    for _ in range(5):
        assert same(history(offloaded), expected)


def big(layers: int) -> LlamaForCausalLM:
    """Layers of 100 million parameters in 16 bits, whose copies take milliseconds: races would be lost."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=256,
        hidden_size=3072,
        intermediate_size=8192,
        num_hidden_layers=layers,
        num_attention_heads=24,
        max_position_embeddings=32768,
    )
    with DEVICE:
        return LlamaForCausalLM(config).to(torch.bfloat16)


def forward(model: CausalLM, tokens: int) -> torch.Tensor:
    """Logits of the last of so many new tokens behind an empty cache."""
    model.reset(tokens)
    ids = torch.arange(tokens, device=DEVICE) % 256
    return model.prefill(ids).logits


@pytest.mark.real_gpu
def test_large_layers_are_not_read_before_they_have_arrived_nor_overwritten_while_they_are_read():
    model = big(5)
    plain = [forward(CausalLM(model), tokens) for tokens in (1, 64, 4096)]
    offload = Offload(model.cpu(), DEVICE, 1)
    offloaded = CausalLM(model)
    for _ in range(3):
        for expected, tokens in zip(plain, (1, 64, 4096), strict=True):
            assert torch.equal(forward(offloaded, tokens), expected)
    assert offload.bytes_streamed > 0


def test_host_memory_is_pinned_and_the_device_holds_what_was_estimated():
    model = big(5).cpu()
    gc.collect()
    before = torch.cuda.memory_allocated()
    offload = Offload(model, DEVICE, 1)
    assert all(piece.is_pinned() for pieces in offload.host for piece in pieces)
    assert len(offload.host) == 4
    on_device, on_host = offloaded_bytes(model.config, torch.bfloat16, 1)
    assert sum(piece.nbytes for pieces in offload.host for piece in pieces) == on_host
    allocated = torch.cuda.memory_allocated() - before
    assert on_device <= allocated < on_device + 2**20  # tables of the rotary embedding, rounding of allocations


def test_the_host_waits_for_nothing():
    _, offloaded, _ = both("llama", 1, "cuda")
    history(offloaded)
    tokens = torch.tensor([1, 2, 3], device=DEVICE)
    layout = causal_layout(3, prefix=offloaded.cache.length, device=DEVICE)
    torch.cuda.set_sync_debug_mode("error")
    try:
        logits = offloaded(tokens, layout).logits  # a wait would raise here
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert bool(logits.isfinite().all())


def test_a_forward_after_one_that_failed_is_right():
    plain, offloaded, _ = both("llama", 0, "cuda")
    expected = history(plain)
    for layer in offloaded.model.model.layers:
        handle = layer.mlp.register_forward_hook(lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            history(offloaded)
        handle.remove()
        assert same(history(offloaded), expected)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_embedded_pair_decodes_the_same(dtype):
    ids = {role: str(TINY / role) for role in ("target", "draft")}
    results = []
    for target in (ids["target"], ModelSpec(id=ids["target"], offload=True)):
        pair = load_pair(target, ids["draft"], device="cuda", dtype=dtype)
        prompt = pair.tokenizer("def read_config(filename):\n")["input_ids"]
        drafter = OptTree(draft=pair.draft, n=25, delta=0.1)
        results.append(generate(pair.target, drafter, Greedy(), prompt, max_new_tokens=64).tokens)
    assert results[0] == results[1]


def seconds(work: Callable[[], object], repeats: int = 5) -> float:
    """Of one execution among several in a row, by events, after two that do not count; the median of three."""
    for _ in range(2):
        work()
    clock = Clock(DEVICE)
    for _ in range(3):
        clock.next_step()
        with clock.span("work"):
            for _ in range(repeats):
                work()
    return statistics.median(tallies["work"].seconds for tallies in clock.read().values()) / repeats


@pytest.mark.real_gpu
def test_copies_run_behind_the_compute():
    """In sequence a forward would take the sum of copying and computing; behind each other, the longer of the two."""
    model = big(8)
    sizes = (512, 1024, 2048, 4096, 8192, 16384)
    computing = {tokens: seconds(partial(forward, CausalLM(model), tokens)) for tokens in sizes}
    offload = Offload(model.cpu(), DEVICE)

    def copy_all() -> None:
        for s, pieces in enumerate(offload.host):
            _fill(offload.buffers[s % 2], pieces)

    copying = seconds(copy_all)
    tokens = min(sizes, key=lambda size: abs(math.log(computing[size] / copying)))
    if not 0.5 < computing[tokens] / copying < 2:
        pytest.skip(f"no number of tokens takes as long to compute as to copy: {computing}, {copying}")
    offloaded, clock = CausalLM(model), Clock(DEVICE)
    together = seconds(partial(forward, offloaded, tokens))
    assert together < 0.8 * (copying + computing[tokens])
    assert together > 0.9 * max(copying, computing[tokens])
    offload.measure(clock)
    forward(offloaded, tokens)
    exposed = clock.read()[-1]["copy"]
    assert exposed.calls == 8
    assert 0 < exposed.seconds < copying
