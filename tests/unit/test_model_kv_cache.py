from __future__ import annotations

import numpy as np
import pytest

from pyruntime.errors import ContextOverflowError, OutOfMemoryError, ParameterError
from pyruntime.model import kv_cache
from pyruntime.model.kv_cache import KVCache

LAYERS, HEADS, SIZE = 3, 2, 4


def entries(first, n) -> tuple[np.ndarray, np.ndarray]:
    """Keys and values (n, heads, size) that say which position they belong to."""
    keys = np.arange(first, first + n, dtype=np.float32)[:, None, None] + np.zeros((n, HEADS, SIZE), np.float32)
    return keys, -keys


def append(cache, n) -> list[tuple[np.ndarray, np.ndarray]]:
    """Append `n` positions in every layer; what each layer's `write` returned."""
    cache.reserve(n)
    written = [cache.write(layer, *entries(cache.length + 1000 * layer, n)) for layer in range(LAYERS)]
    cache.commit(n)
    return written


def test_a_write_returns_everything_up_to_its_end_with_positions_along_the_last_axis():
    cache = KVCache(LAYERS, HEADS, SIZE, context=16)
    append(cache, 3)
    keys, values = append(cache, 2)[1]
    assert keys.shape == values.shape == (HEADS, SIZE, 5)
    np.testing.assert_array_equal(keys[1, 2], [1000, 1001, 1002, 1003, 1004])
    np.testing.assert_array_equal(values, -keys)


def test_growing_keeps_every_position_of_every_layer_and_ends_at_the_context():
    cache = KVCache(LAYERS, HEADS, SIZE, context=1000)
    small = cache.nbytes
    for n in (200, 100, 1, 400, 299):
        written = append(cache, n)
    assert cache.length == 1000
    assert cache.nbytes == LAYERS * 2 * HEADS * SIZE * 1000 * 4 > small
    for layer, (keys, values) in enumerate(written):
        np.testing.assert_array_equal(keys, np.broadcast_to(np.arange(1000) + 1000 * layer, keys.shape))
        np.testing.assert_array_equal(values, -keys)


def test_growing_is_geometric():
    cache = KVCache(1, HEADS, SIZE, context=1 << 16)
    sizes = set()
    for _ in range(4000):
        cache.reserve(1)
        cache.commit(1)
        sizes.add(cache.nbytes)
    assert len(sizes) == 5  # 256, 512 … 4096


def test_more_positions_than_the_context_are_refused_with_the_numbers():
    cache = KVCache(LAYERS, HEADS, SIZE, context=10)
    append(cache, 6)
    with pytest.raises(ContextOverflowError) as error:
        cache.reserve(5)
    assert (error.value.needed, error.value.have) == (11, 10)
    append(cache, 4)
    assert cache.length == 10


def test_truncating_forgets_the_end_and_keeps_the_rest():
    cache = KVCache(LAYERS, HEADS, SIZE, context=16)
    append(cache, 6)
    cache.truncate(2)
    assert cache.length == 2
    cache.reserve(1)
    keys, _ = cache.write(0, *entries(77, 1))
    np.testing.assert_array_equal(keys[0, 0], [0, 1, 77])


@pytest.mark.parametrize("length", [-1, 4])
def test_truncating_to_a_length_that_is_not_there_is_refused(length):
    cache = KVCache(LAYERS, HEADS, SIZE, context=16)
    append(cache, 3)
    with pytest.raises(ParameterError, match=rf"length: {length} is not allowed .*0 … 3"):
        cache.truncate(length)


def test_a_run_that_is_not_committed_leaves_no_trace():
    cache = KVCache(LAYERS, HEADS, SIZE, context=16)
    append(cache, 2)
    cache.reserve(3)
    cache.write(0, *entries(50, 3))
    assert cache.length == 2
    keys, _ = append(cache, 1)[0]
    np.testing.assert_array_equal(keys[0, 0], [0, 1, 2])


def test_a_cache_that_cannot_grow_says_so_and_stays_usable(monkeypatch):
    cache = KVCache(LAYERS, HEADS, SIZE, context=1000)
    append(cache, 256)
    widened = []

    def fail_in_the_second_layer(array, length, capacity):
        if len(widened) == 2:
            raise MemoryError
        widened.append(capacity)
        return original(array, length, capacity)

    original = kv_cache._widened
    monkeypatch.setattr(kv_cache, "_widened", fail_in_the_second_layer)
    with pytest.raises(OutOfMemoryError, match=r"KV cache: no memory for 512 positions"):
        cache.reserve(1)
    assert cache.length == 256
    monkeypatch.undo()
    for keys, values in append(cache, 1):
        np.testing.assert_array_equal(keys[0, 0] % 1000, np.arange(257))
        np.testing.assert_array_equal(values, -keys)


def test_a_thousand_appends_and_truncations_take_no_more_memory():
    cache = KVCache(LAYERS, HEADS, SIZE, context=400)
    append(cache, 400)
    full = cache.nbytes
    for turn in range(1000):
        cache.truncate(turn % 400)
        append(cache, 400 - cache.length)
    assert cache.nbytes == full
