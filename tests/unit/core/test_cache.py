import weakref

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from specdec_core import cache as module
from specdec_core.cache import KVCache


def filled(lengths: list[int], capacity: int = 8) -> tuple[KVCache, torch.Tensor]:
    """A cache of two layers after forwards of the given lengths, and what the first layer's keys should be."""
    cache, told = KVCache(2, capacity), []
    for length in lengths:
        keys = torch.randn(1, 3, length, 4)
        cache.reserve(cache.length + length)
        told.append(keys)
        for layer in range(2):
            seen, values = cache.update(keys + layer, -keys, layer)
            assert torch.equal(seen, torch.cat(told, -2) + layer)
            assert torch.equal(values, -torch.cat(told, -2))
        cache.advance(length)
    return cache, torch.cat(told, -2)


@given(st.lists(st.integers(1, 400), min_size=1, max_size=6))
def test_appending_returns_all_that_was_appended_whatever_the_growth(lengths):
    cache, _ = filled(lengths)
    assert cache.length == cache.get_seq_length() == sum(lengths)
    assert cache.capacity >= cache.length


@given(st.integers(0, 9), st.sets(st.integers(0, 11), max_size=12))
def test_commit_equals_indexing(prefix, kept):
    cache, told = filled([prefix + 12] if prefix else [12])
    offsets = sorted(kept)
    cache.commit(prefix, torch.tensor(offsets, dtype=torch.long))
    expected = torch.cat((told[:, :, :prefix], told[:, :, [prefix + offset for offset in offsets]]), -2)
    assert cache.length == prefix + len(offsets)
    new = torch.zeros(1, 3, 1, 4)
    assert torch.equal(cache.update(new, new, 1)[0][:, :, :-1], expected + 1)


def test_truncate_and_reuse_without_allocating():
    cache, _ = filled([20])
    buffer = cache.buffers[0].data_ptr()
    cache.truncate(0)
    cache.reserve(100)
    assert (cache.length, cache.buffers[0].data_ptr()) == (0, buffer)


def test_an_empty_cache_grows_to_what_is_asked_for_and_gives_its_memory_back_first(monkeypatch):
    cache, _ = filled([20], capacity=256)
    cache.truncate(0)
    old, seen, allocate = weakref.ref(cache.buffers[0].untyped_storage()), [], module._empty
    monkeypatch.setattr(module, "_empty", lambda *like: seen.append(old()) or allocate(*like))
    cache.reserve(300)
    assert (cache.capacity, seen) == (512, [None])


def test_layers_that_take_no_part_get_no_buffer():
    cache = KVCache(3, 8)
    for layer in (0, 2):
        cache.update(torch.ones(1, 3, 2, 4), torch.ones(1, 3, 2, 4), layer)
    cache.advance(2)
    assert [buffer.shape[0] for buffer in cache.buffers] == [2]


def test_layers_of_other_shapes_get_their_own_buffer():
    cache = KVCache(2, 8)
    cache.update(torch.ones(1, 3, 2, 4), torch.ones(1, 3, 2, 4), 0)
    keys, _ = cache.update(torch.ones(1, 2, 2, 6), torch.ones(1, 2, 2, 6), 1)
    assert keys.shape == (1, 2, 2, 6)
    with pytest.raises(ValueError, match="different heads"):
        KVCache(1, 8).update(torch.ones(1, 3, 2, 4), torch.ones(1, 2, 2, 4), 0)


@pytest.mark.parametrize(("wide", "narrow"), [(6, 4), (4, 6)])
def test_keys_and_values_may_differ_in_width(wide, narrow, rng):
    cache, parts = KVCache(1, 8), []
    for tokens in (3, 2, 300):  # the last ones make it grow
        new = torch.rand(1, 2, tokens, wide, generator=rng), torch.rand(1, 2, tokens, narrow, generator=rng)
        parts.append(new)
        cache.reserve(cache.length + tokens)
        found = cache.update(*new, 0)
        cache.advance(tokens)
        for ours, stored in zip(found, zip(*parts, strict=True), strict=True):
            assert torch.equal(ours, torch.cat(stored, 2))
    cache.commit(3, torch.tensor([1]))
    keys, values = cache.update(*(part[:, :, :1] for part in parts[0]), 0)
    assert torch.equal(keys, torch.cat((parts[0][0], parts[1][0][:, :, 1:], parts[0][0][:, :, :1]), 2))
    assert torch.equal(values, torch.cat((parts[0][1], parts[1][1][:, :, 1:], parts[0][1][:, :, :1]), 2))
