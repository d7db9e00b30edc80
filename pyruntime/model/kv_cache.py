"""The keys and values of the positions a model has already seen.

- One pair of arrays per layer, grown by doubling up to the context, never shrunk; growing keeps what is there.
- `length` is the one count of positions. A run writes behind it, layer by layer, and only `commit` moves it, so a run
  that fails halfway leaves the cache as it was.
- It does not know about heads that share keys, masks or rotation.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pyruntime.errors import OutOfMemoryError
from pyruntime.model.checks import check_room, check_truncation

Array = NDArray[np.float32]

_FIRST_CAPACITY = 256  # positions


class KVCache:
    """Keys and values of up to `context` positions.

    Args:
        n_layers: layers of the model.
        n_kv_heads: key and value heads of each.
        head_size: values per head.
        context: most positions it will hold.
    """

    def __init__(self, n_layers: int, n_kv_heads: int, head_size: int, context: int) -> None:
        self.context = context
        self.length = 0
        self._capacity = min(_FIRST_CAPACITY, context)
        # Positions run along the last axis, the one both products of attention are fastest over (`numpy_products.py`).
        shape = (n_kv_heads, head_size, self._capacity)
        self._keys = [np.empty(shape, np.float32) for _ in range(n_layers)]
        self._values = [np.empty(shape, np.float32) for _ in range(n_layers)]

    @property
    def nbytes(self) -> int:
        """Bytes now taken."""
        return sum(array.nbytes for array in (*self._keys, *self._values))

    def reserve(self, n: int) -> None:
        """Make room for `n` positions after `length`.

        Raises:
            ContextOverflowError: they would not fit into the context.
            OutOfMemoryError: the memory cannot be had.
        """
        check_room(n, self.length, self.context)
        needed = self.length + n
        if needed <= self._capacity:
            return
        capacity = min(max(needed, 2 * self._capacity), self.context)
        try:
            for layer, (keys, values) in enumerate(zip(self._keys, self._values, strict=True)):
                # One array at a time: the old and the new of a single layer are alive together, not those of all.
                self._keys[layer] = _widened(keys, self.length, capacity)
                self._values[layer] = _widened(values, self.length, capacity)
        except MemoryError as error:
            raise OutOfMemoryError(
                f"KV cache: no memory for {capacity} positions. Open the model with less context"
            ) from error
        self._capacity = capacity

    def write(self, layer: int, keys: Array, values: Array) -> tuple[Array, Array]:
        """Put `keys` and `values` (n, heads, head_size) of a layer behind `length`, in room that was reserved.

        Returns:
            Views of all the layer's keys and of its values, each (heads, head_size, length + n).
        """
        start, stop = self.length, self.length + len(keys)
        layer_keys, layer_values = self._keys[layer], self._values[layer]
        layer_keys[:, :, start:stop] = keys.transpose(1, 2, 0)
        layer_values[:, :, start:stop] = values.transpose(1, 2, 0)
        return layer_keys[:, :, :stop], layer_values[:, :, :stop]

    def commit(self, n: int) -> None:
        """Count the `n` positions just written in every layer."""
        self.length += n

    def truncate(self, length: int) -> None:
        """Forget all positions from `length` on.

        Raises:
            ParameterError: `length` is negative or more than there is.
        """
        check_truncation(length, self.length)
        self.length = length


def _widened(array: Array, length: int, capacity: int) -> Array:
    """A copy of `array` with room for `capacity` positions, of which the first `length` are kept."""
    wider = np.empty((*array.shape[:-1], capacity), np.float32)
    wider[..., :length] = array[..., :length]
    return wider
