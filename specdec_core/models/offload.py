"""A target whose layers stay in host memory and pass through two buffers on the device (Sequoia, on offloading)."""

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import torch
from jaxtyping import UInt8
from torch import Tensor, nn

from specdec_core.errors import SpecdecError
from specdec_core.models.memory import (
    buffer_bytes,
    packed_bytes,
    padded_bytes,
    streamed_layers,
    streamed_tensors,
)
from specdec_core.timing import Clock

_SMALLEST_PIECE_BITS = 20


class Offload:
    """Moves a model to a device, all but the layers behind the first `resident_layers`, and streams those.

    Streamed layer s runs from buffer s mod 2: its parameters are views into it, made once, which hold its weights in
    its turn only. Such a model cannot be saved, converted or trained. Copies have a stream of their own on a GPU and
    wait for events alone, so that layer s + 1 arrives while layer s computes, and the first two layers of the next
    forward while the host drafts. On a CPU the same copies happen at once. LoadError as for `streamed_layers`;
    SpecdecError in a forward that calls its layers in another order.
    """

    def __init__(self, model: Any, device: torch.device, resident_layers: int = 0) -> None:
        layers = streamed_layers(model, resident_layers)
        self.num_layers, self.resident_layers = resident_layers + len(layers), resident_layers
        self.bytes_streamed = 0
        """Copied so far, the copies for a next forward included."""
        self.buffers = [torch.empty(size, dtype=torch.uint8, device=device) for size in buffer_bytes(layers)]
        self.host = [self._moved(layer, self.buffers[s % 2]) for s, layer in enumerate(layers)]
        """Each streamed layer's bytes in host memory, in pieces (`_pieces` says why)."""
        model.requires_grad_(False).to(device)
        self._copies = (_StreamCopies if device.type == "cuda" else _Copies)(self.buffers)
        self._held: list[int | None] = [None] * len(self.buffers)
        self._next: int | None = None
        if layers:
            model.get_decoder().register_forward_pre_hook(self._begin)
            model.get_decoder().register_forward_hook(self._end)
        for s, layer in enumerate(layers):
            layer.register_forward_pre_hook(partial(self._before, s))
            layer.register_forward_hook(partial(self._after, s))

    @property
    def bytes_per_forward(self) -> int:
        """What one forward copies. A buffer that serves a single layer is filled once and never again."""
        per_buffer = [[sum(piece.nbytes for piece in pieces) for pieces in self.host[slot::2]] for slot in range(2)]
        return sum(sum(sizes) for sizes in per_buffer if len(sizes) > 1)

    def measure(self, clock: Clock | None) -> None:
        """Tally as "copy" in this clock what forwards wait for copies (None: no longer), in the clock's present step.

        On a GPU each tally also has the time between two events, a few microseconds.
        """
        self._copies.clock = clock

    @staticmethod
    def _moved(layer: nn.Module, buffer: UInt8[Tensor, " bytes"]) -> list[UInt8[Tensor, " _"]]:
        """Pack a layer in host memory and let its parameters be views into the buffer."""
        tensors, packed = streamed_tensors(layer), torch.empty(packed_bytes(layer), dtype=torch.uint8)
        for tensor, place, view in zip(tensors, _views(packed, tensors), _views(buffer, tensors), strict=True):
            place.copy_(tensor.detach())
            tensor.data = view
        return [piece.pin_memory() for piece in _pieces(packed)] if buffer.device.type == "cuda" else [packed]

    def _fetch(self, s: int) -> None:
        """Begin to copy streamed layer s into its buffer, unless it is there, or on its way."""
        slot = s % 2
        if self._held[slot] != s:
            self._held[slot] = None  # should the copy fail, neither layer is there
            self._copies.start(slot, self.host[s])
            self._held[slot] = s
            self.bytes_streamed += sum(piece.nbytes for piece in self.host[s])

    def _begin(self, module: nn.Module, args: Any) -> None:
        """Start the schedule anew; after an exception the buffers hold what that forward had reached."""
        for slot, held in enumerate(self._held):
            if held != slot:
                self._copies.release(slot)  # the layer that failed has not done so, and may still be running
                self._fetch(slot)
        self._next = 0

    def _before(self, s: int, module: nn.Module, args: Any) -> None:
        if self._next != s:
            expected = "outside a forward" if self._next is None else f"where layer {self._next} is due"
            counted = "" if self.resident_layers == 0 else f" (not counting {self.resident_layers} resident ones)"
            raise SpecdecError(
                f"layer {s} of an offloaded model was called {expected}{counted}; its layers run once per forward and "
                "in order, so call the whole model, or load it with offload=false"
            )
        self._copies.wait(s % 2)

    def _after(self, s: int, module: nn.Module, args: Any, output: Any) -> None:
        self._copies.release(s % 2)
        self._next = s + 1
        if s + 2 < len(self.host):
            self._fetch(s + 2)

    def _end(self, module: nn.Module, args: Any, output: Any) -> None:
        """Fetch the first layers of the next forward."""
        self._next = None
        for slot in range(len(self.buffers)):
            self._fetch(slot)


class _Copies:
    """Copies into the buffers, each finished when `start` returns: there is nothing to wait for."""

    def __init__(self, buffers: list[UInt8[Tensor, " bytes"]]) -> None:
        self.buffers = buffers
        self.clock: Clock | None = None

    def start(self, slot: int, pieces: list[UInt8[Tensor, " _"]]) -> None:
        with self._exposed():
            _fill(self.buffers[slot], pieces)

    def wait(self, slot: int) -> None:
        """Let what is computed from now on see the last copy into the buffer."""

    def release(self, slot: int) -> None:
        """Let the next copy into the buffer wait for what is computed up to now."""

    def _exposed(self) -> AbstractContextManager[None]:
        return self.clock.span("copy") if self.clock is not None else nullcontext()


class _StreamCopies(_Copies):
    """The same on a stream of their own; computing and copying wait for each other's events, the host for neither."""

    def __init__(self, buffers: list[UInt8[Tensor, " bytes"]]) -> None:
        super().__init__(buffers)
        self._device = buffers[0].device if buffers else torch.device("cuda")
        self._stream = torch.cuda.Stream(self._device)
        self._ready, self._free = ([torch.cuda.Event() for _ in buffers] for _ in range(2))
        for slot, buffer in enumerate(buffers):
            buffer.record_stream(self._stream)  # freed while a copy runs, its memory is given to nobody before the end
            self.release(slot)

    def start(self, slot: int, pieces: list[UInt8[Tensor, " _"]]) -> None:
        self._stream.wait_event(self._free[slot])
        with torch.cuda.stream(self._stream):
            _fill(self.buffers[slot], pieces)
            self._ready[slot].record(self._stream)

    def wait(self, slot: int) -> None:
        with self._exposed():
            torch.cuda.current_stream(self._device).wait_event(self._ready[slot])

    def release(self, slot: int) -> None:
        self._free[slot].record(torch.cuda.current_stream(self._device))


def _fill(buffer: UInt8[Tensor, " bytes"], pieces: list[UInt8[Tensor, " _"]]) -> None:
    """Write the pieces one behind the other; from pinned memory without waiting for the end."""
    start = 0
    for piece in pieces:
        buffer[start : start + piece.nbytes].copy_(piece, non_blocking=True)
        start += piece.nbytes


def _pieces(packed: UInt8[Tensor, " bytes"]) -> Sequence[UInt8[Tensor, " _"]]:
    """Cut into sizes that are powers of two, down to a MiB: pinned memory comes in those, and would be wasted."""
    bits = range(packed.nbytes.bit_length() - 1, _SMALLEST_PIECE_BITS - 1, -1)
    sizes = [1 << bit for bit in bits if packed.nbytes >> bit & 1]
    rest = packed.nbytes - sum(sizes)
    return packed.split([*sizes, rest] if rest else sizes)


def _views(packed: UInt8[Tensor, " bytes"], tensors: Iterable[Tensor]) -> list[Tensor]:
    """The place of each tensor in a buffer, with its dtype and shape."""
    views, start = [], 0
    for tensor in tensors:
        views.append(packed[start : start + tensor.nbytes].view(tensor.dtype).view(tensor.shape))
        start += padded_bytes(tensor)
    return views
