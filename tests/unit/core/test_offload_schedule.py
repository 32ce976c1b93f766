"""Layers run from the right weights: after failures, in order only, and on a GPU because events order the copies."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import pytest
import torch
from offloaded import both, history, same
from torch import Tensor, nn

from specdec_core.errors import SpecdecError
from specdec_core.models import offload as module
from specdec_core.models.memory import streamed_layers


@contextmanager
def failure(part: nn.Module) -> Iterator[None]:
    """This part of a model fails, and what is run here with it."""

    def fail(*arguments: object) -> None:
        raise torch.OutOfMemoryError("no room")

    handle = part.register_forward_hook(fail)
    with pytest.raises(torch.OutOfMemoryError, match="no room"):
        yield
    handle.remove()


@pytest.mark.parametrize("choice", [0, 1, 2, -1])
@pytest.mark.parametrize("failing", range(5))
@pytest.mark.parametrize("late", [False, True])
def test_a_forward_after_one_that_failed_is_right(late, failing, choice):
    plain, offloaded, _ = both("llama", choice)
    layer = offloaded.model.model.layers[failing]
    for warm in (False, True):
        if warm:
            history(offloaded)
        with failure(layer.post_attention_layernorm if late else layer.input_layernorm):
            history(offloaded)
        assert same(history(offloaded), history(plain))


def test_a_copy_that_fails_is_made_again(monkeypatch):
    plain, offloaded, offload = both("llama")
    start, calls = offload._copies.start, []

    def fail_once(slot: int, pieces: list[Tensor]) -> None:
        calls.append(slot)
        if len(calls) == 8:
            offload.buffers[slot].fill_(255)
            raise RuntimeError("the copy failed")
        start(slot, pieces)

    monkeypatch.setattr(offload._copies, "start", fail_once)
    with pytest.raises(RuntimeError, match="the copy failed"):
        history(offloaded)
    assert same(history(offloaded), history(plain))


def test_layers_out_of_turn_are_refused():
    _, offloaded, _ = both("llama", 1)
    layers = offloaded.model.model.layers
    with pytest.raises(SpecdecError, match=r"layer 1 of an offloaded model was called outside a forward.*whole model"):
        layers[2](torch.zeros(1, 1, 32))
    order = nn.ModuleList([layers[number] for number in (0, 1, 2, 2, 4)])
    offloaded.model.model.layers = order
    with pytest.raises(SpecdecError, match=r"layer 1 .* where layer 2 is due \(not counting 1 resident"):
        history(offloaded)
    offloaded.model.model.layers = nn.ModuleList([layers[number] for number in (0, 1, 3, 2, 4)])
    with pytest.raises(SpecdecError, match="layer 2 of an offloaded model was called where layer 1 is due"):
        history(offloaded)


class Work:
    """What has happened for certain: a stand-in for streams and events of CUDA, which promise no more than this."""

    def __init__(self, *arguments: Any) -> None:
        self.past: set[tuple[str, int]] = set()

    def wait_event(self, event: "Work") -> None:
        self.past |= event.past

    def record(self, stream: "Work") -> None:
        self.past = set(stream.past)


class Witness:
    """Sees every copy and every layer when they are issued, and what each of them may rely on."""

    def __init__(self, offload: module.Offload, model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self.compute, self.fill = Work(), module._fill
        self.copied: dict[int, tuple[str, int]] = {}
        self.readers: dict[int, set[tuple[str, int]]] = {slot: set() for slot in range(2)}
        self.count = 0
        self.too_early: list[str] = []
        monkeypatch.setattr(torch.cuda, "Stream", Work)
        monkeypatch.setattr(torch.cuda, "Event", Work)
        monkeypatch.setattr(torch.cuda, "current_stream", lambda device: self.compute)
        monkeypatch.setattr(torch.cuda, "stream", lambda stream: nullcontext())
        monkeypatch.setattr(torch.Tensor, "record_stream", lambda tensor, stream: None)
        monkeypatch.setattr(module, "_fill", self.copies)
        self.buffers = offload.buffers
        offload._copies = module._StreamCopies(offload.buffers)
        self.stream = offload._copies._stream
        for s, layer in enumerate(streamed_layers(model, offload.resident_layers)):
            layer.register_forward_pre_hook(lambda layer, args, slot=s % 2: self.computes(slot))

    def issued(self, kind: str, stream: Work) -> tuple[str, int]:
        self.count += 1
        stream.past.add((kind, self.count))
        return kind, self.count

    def copies(self, buffer: Tensor, pieces: list[Tensor]) -> None:
        slot = next(slot for slot, known in enumerate(self.buffers) if known is buffer)
        if not self.readers[slot] <= self.stream.past:
            self.too_early.append(f"a copy into buffer {slot}")
        self.copied[slot] = self.issued("copy", self.stream)
        self.fill(buffer, pieces)

    def computes(self, slot: int) -> None:
        if self.copied[slot] not in self.compute.past:
            self.too_early.append(f"a layer in buffer {slot}")
        self.readers[slot].add(self.issued("layer", self.compute))


@pytest.mark.parametrize("choice", [0, 1, 2, -2, -1])
@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_events_order_copies_and_layers(name, choice, monkeypatch):
    plain, offloaded, offload = both(name, choice)
    witness = Witness(offload, offloaded.model, monkeypatch)
    assert same(history(offloaded), history(plain))
    with failure(streamed_layers(offloaded.model, 0)[-2]):
        history(offloaded)
    assert same(history(offloaded), history(plain))
    assert witness.count > 10
    assert not witness.too_early


@pytest.mark.parametrize("missing", ["release", "wait"])
def test_a_missing_event_would_be_seen(missing, monkeypatch):
    _, offloaded, offload = both("llama")
    witness = Witness(offload, offloaded.model, monkeypatch)
    monkeypatch.setattr(offload._copies, missing, lambda slot: None)
    history(offloaded)
    assert any(("copy" if missing == "release" else "layer") in early for early in witness.too_early)
