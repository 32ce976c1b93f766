"""Keys and values in preallocated buffers, behind transformers' Cache interface: append, commit a path, truncate."""

from typing import Any, NamedTuple

import torch
from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin

from specdec_core.sending import sent

ROOM_FOR_TREES = 1024
"""Slots beyond prompt and output, so that buffers do not grow while the clock runs."""
_BLOCK = 256
"""Capacities are multiples of this many tokens."""


class Window(NamedTuple):
    """Where a forward inside a graph writes and how far it reads, in place of the cache's length."""

    slots: Tensor
    """Of its tokens."""
    width: int
    """Slots from the first on that its mask has a column for."""


class KVCache(Cache):
    """All layers' keys and values; layers of one device and shape share one buffer, so that a commit is one gather.

    A forward appends its tokens behind `length`; `advance` makes them part of the cache. Buffers
    `[layers, 2, batch, heads, capacity, head_dim]` are allocated behind the first forward, when it is known which
    layers took part in it and where they are, and double if they must grow.
    """

    def __init__(self, num_layers: int, capacity: int) -> None:
        super().__init__(layers=[_Layer(self) for _ in range(num_layers)])
        self.length = 0
        self.capacity = _rounded(capacity)
        self.window: Window | None = None
        self.buffers: list[Tensor] = []
        """Of layers of one device and shape each, `[layers, 2, batch, heads, capacity, head_dim]`."""

    @property
    def settled(self) -> bool:
        """Whether its buffers are there: it has held tokens."""
        return bool(self.buffers)

    def reserve(self, capacity: int) -> None:
        """Make room for at least `capacity` tokens; what is stored stays, an empty cache does not double."""
        if capacity <= self.capacity:
            return
        self.capacity = _rounded(max(capacity, 2 * self.capacity) if self.buffers and self.length else capacity)
        for layer in self.layers:
            layer.unbind()  # views would keep the old buffers in memory
        for number in range(len(self.buffers)):
            self._grow(number)
        for layer in self.layers:
            layer.bind()

    def restart(self, capacity: int) -> None:
        """Forget all tokens, and make room for `capacity`."""
        self.truncate(0)
        self.reserve(capacity)

    def advance(self, tokens: int) -> None:
        """Count the tokens of the last forward as stored."""
        self._settle([layer for layer in self.layers if layer.first is not None])
        self.length += tokens

    def truncate(self, length: int) -> None:
        """Forget all tokens from `length` on."""
        self.length = min(self.length, length)

    def wipe(self) -> None:
        """Zeros everywhere: graphs read slots that they mask, and what is not finite there spoils the rest."""
        for buffer in self.buffers:
            buffer.zero_()

    def commit(self, start: int, kept: Tensor) -> None:
        """Of the tokens from slot `start` on keep those at offsets `kept` (ascending).

        On the host it costs nothing where they stand in place already; offsets on a device are not looked at.
        """
        count = kept.shape[0]
        in_place = kept.device.type == "cpu" and (not count or int(kept[-1]) == count - 1)
        if not in_place:
            slots = kept + start
            for buffer in self.buffers:
                slots = sent(slots, buffer.device)
                buffer[..., start : start + count, :] = buffer.index_select(-2, slots)
        self.length = start + count

    def slices(self, buffer: int, place: int) -> tuple[Tensor, Tensor]:
        """One layer's keys and values, `[batch, heads, capacity, head_dim]` each, as wide as the wider of them."""
        keys, values = self.buffers[buffer][place]
        return keys, values

    def _settle(self, layers: "list[_Layer]") -> None:
        """Give layers that have just seen their first tokens a place in a buffer, and move the tokens there."""
        alike: dict[tuple[Any, ...], list[_Layer]] = {}
        for layer in layers:
            keys, values = layer.first
            dim = max(keys.shape[-1], values.shape[-1])  # latent attention's keys and values differ
            alike.setdefault((keys.device, keys.dtype, *keys.shape[:2], dim), []).append(layer)
        for (*_, batch, heads, dim), members in alike.items():
            keys, _ = members[0].first
            self.buffers.append(_empty((len(members), 2, batch, heads, self.capacity, dim), keys))
            for place, layer in enumerate(members):
                layer.settle(len(self.buffers) - 1, place)

    def _grow(self, number: int) -> None:
        """One buffer; where nothing is stored its memory is given back before more is taken."""
        old = self.buffers[number]
        shape, like = (*old.shape[:-2], self.capacity, old.shape[-1]), old.new_empty(0)
        kept = old[..., : self.length, :] if self.length else None
        self.buffers[number] = like
        del old
        self.buffers[number] = _empty(shape, like)
        if kept is not None:
            self.buffers[number][..., : self.length, :] = kept


class _Layer(CacheLayerMixin):
    """One layer's view of the shared buffers, as transformers' models expect it."""

    is_sliding = False

    def __init__(self, cache: KVCache) -> None:
        super().__init__()
        self.cache = cache
        self.keys: Any = None
        self.values: Any = None
        self.place: tuple[int, int] | None = None
        self.dims = 0, 0  # of a key and of a value
        self.first: Any = None  # keys and values of the very first forward, until they have a place

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        if value_states.shape[:-1] != key_states.shape[:-1]:
            raise ValueError("keys and values of different heads or lengths are not supported")
        self.first = key_states, value_states

    def settle(self, buffer: int, place: int) -> None:
        (keys, values), self.first = self.first, None
        self.place, self.is_initialized = (buffer, place), True
        self.dims = keys.shape[-1], values.shape[-1]
        self.bind()
        self.keys[:, :, : keys.shape[-2]] = keys
        self.values[:, :, : values.shape[-2]] = values

    def unbind(self) -> None:
        self.keys = self.values = None

    def bind(self) -> None:
        if self.place is not None:
            keys, values = self.cache.slices(*self.place)
            self.keys, self.values = keys[..., : self.dims[0]], values[..., : self.dims[1]]

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
            return key_states, value_states
        if window := self.cache.window:
            for buffer, states in ((self.keys, key_states), (self.values, value_states)):
                buffer.index_copy_(2, window.slots, states)
            return self.keys[:, :, : window.width], self.values[:, :, : window.width]
        start, end = self.cache.length, self.cache.length + key_states.shape[-2]
        keys, values = self.keys[:, :, :end], self.values[:, :, :end]
        keys[:, :, start:] = key_states
        values[:, :, start:] = value_states
        return keys, values

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.cache.length + query_length, 0

    def get_seq_length(self) -> int:
        return self.cache.length if self.cache.window is None else 0  # no constant of a graph; positions are given

    def get_max_length(self) -> int:
        return -1

    def get_max_cache_shape(self) -> int:
        return -1


def _empty(shape: tuple[int, ...], like: Tensor) -> Tensor:
    """A buffer that may be written to inside and outside of inference mode; finite where nothing was written yet."""
    with torch.inference_mode(False):
        return torch.zeros(shape, dtype=like.dtype, device=like.device)


def _rounded(capacity: int) -> int:
    return -(-capacity // _BLOCK) * _BLOCK
