"""The operations of `ops.py` in numpy, computed at once, float32 throughout.

A handle is an array. What a run brings — ids, position, the rows wanted — is set by `start_run`; the KV cache knows the
position. Nothing here depends on the model family.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from pyruntime.model.rope import Rope

if TYPE_CHECKING:
    from pyruntime.model.config import ModelConfig
    from pyruntime.model.kv_cache import KVCache
    from pyruntime.model.numpy_products import Products

Array = NDArray[np.float32]


class NumpyOps:
    """Operations over arrays, for one model and its cache.

    Args:
        config: the model's shape.
        cache: its keys and values; `attention` writes to it, the caller reserves room and commits.
        products: how matrix products are computed.
        max_run: most ids of one run.
    """

    def __init__(self, config: ModelConfig, cache: KVCache, products: Products, max_run: int) -> None:
        self._config, self._cache, self._products = config, cache, products
        self._rope = Rope.of(config)
        # Added to the scores of a run's own positions: a query does not see the keys behind it.
        self._mask = np.triu(np.full((max_run, max_run), -np.inf, np.float32), k=1)
        self.start_run(np.empty(0, np.int32), slice(0))

    def start_run(self, ids: NDArray[np.int32], rows: slice) -> None:
        """Begin a run over `ids` that wants the logits of `rows`."""
        self._ids, self._rows = ids, rows
        # Once per run and not per layer; (n, 1, head_size / 2), the middle for all heads.
        self._rotations = self._rope.rotations(self._cache.length, len(ids))[:, None]

    def embed(self, table: Array) -> Array:
        """A copy of the rows of `table`."""
        rows: Array = table[self._ids]
        return rows

    def rms_norm(self, x: Array, weight: Array) -> Array:
        """One pass over rows of `weight`'s width, be they whole rows of `x` or its heads."""
        runs = x.reshape(-1, len(weight))
        mean_square = np.einsum("ij,ij->i", runs, runs) / np.float32(len(weight))
        normalised: Array = runs * (1 / np.sqrt(mean_square + np.float32(self._config.norm_eps)))[:, None]
        normalised *= weight
        return normalised.reshape(x.shape)

    def linear(self, x: Array, weight: Array, bias: Array | None = None) -> Array:
        """The one product that matters: nine tenths of the time are spent here."""
        y = self._products.linear(x, weight)
        if bias is not None:
            y += bias
        return y

    def rope(self, x: Array) -> Array:
        """Neighbours (a, b) are read as a + bi, which one complex product rotates; halves by the formula."""
        heads = x.reshape(len(x), -1, self._config.head_size)
        if self._config.rope_layout == "interleaved":
            return (heads.view(np.complex64) * self._rotations).view(np.float32).reshape(x.shape)
        cos, sin = self._rotations.real, self._rotations.imag
        half = self._config.head_size // 2
        a, b = heads[..., :half], heads[..., half:]
        rotated = np.empty_like(heads)
        rotated[..., :half] = a * cos - b * sin
        rotated[..., half:] = b * cos + a * sin
        return rotated.reshape(x.shape)

    def attention(self, layer: int, q: Array, k: Array, v: Array) -> Array:
        """One product for the queries that share a key head, over the cache as it lies; keys are never repeated."""
        n, config = len(q), self._config
        kv_heads, size = config.n_kv_heads, config.head_size
        keys, values = self._cache.write(layer, k.reshape(n, kv_heads, size), v.reshape(n, kv_heads, size))

        # (n, kv_heads·group·size) → (kv_heads, group·n, size)
        queries = q.reshape(n, kv_heads, -1, size).transpose(1, 2, 0, 3) * np.float32(size**-0.5)
        scores = self._products.scores(queries.reshape(kv_heads, -1, size), keys)  # (kv_heads, group·n, positions)
        if n > 1:
            scores.reshape(kv_heads, -1, n, keys.shape[-1])[..., -n:] += self._mask[:n, :n]
        scores -= scores.max(axis=-1, keepdims=True)
        np.exp(scores, out=scores)
        mixed = self._products.mix(scores, values)  # (kv_heads, group·n, size)
        # Dividing here and not the scores: size divisions per row and not one per position.
        mixed /= scores.sum(axis=-1, keepdims=True)
        return mixed.reshape(kv_heads, -1, n, size).transpose(2, 0, 1, 3).reshape(q.shape)

    def silu_mul(self, gate: Array, up: Array) -> Array:
        """`gate / (1 + exp(-gate)) * up`; exp may overflow to inf, which gives the right 0 (the caller expects it)."""
        y = np.exp(-gate)
        y += 1
        np.divide(gate, y, out=y)
        y *= up
        return y

    def add(self, x: Array, y: Array) -> Array:
        """A new array: `x` may still be wanted."""
        return x + y

    def output_rows(self, x: Array) -> Array:
        """A view of `x`."""
        return x[self._rows]
