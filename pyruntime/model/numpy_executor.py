"""The numpy executor: float32, readable, the reference that faster ones are held to; and how it is built from a file.

- One float32 copy of the weights; a tied output head is the embedding's own array.
- Prompts run in chunks of `MAX_RUN` ids; logits are computed only for the rows asked for.
- It does not know text, sampling or where bytes come from.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from pyruntime.errors import FormatError, OutOfMemoryError, compose
from pyruntime.model import families
from pyruntime.model.checks import check_context, checked_ids
from pyruntime.model.decoder import Weights
from pyruntime.model.kv_cache import KVCache
from pyruntime.model.memory import check_fits, memory_limit
from pyruntime.model.numpy_ops import NumpyOps
from pyruntime.model.numpy_products import Products, products_for
from pyruntime.weights.loading import read_float32

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from pyruntime.model.config import ModelConfig
    from pyruntime.weights.stored import StoredWeights

Array = NDArray[np.float32]

# Ids of one run. Natively 128 are a few per cent faster than 64, in the browser 8 are as fast as 64; the memory for
# attention scores grows with it.
MAX_RUN = 64
_PREFILL_CHUNK = 32


async def build_numpy_executor(
    config: ModelConfig,
    weights: StoredWeights,
    *,
    context: int,
    on_progress: Callable[[int, int], None] | None = None,
    admit: Callable[[int], Awaitable[None]] | None = None,
    limit: int | None = None,
) -> NumpyExecutor:
    """An executor with all weights read, in float32.

    Args:
        config: the model's shape.
        weights: where they are.
        context: positions the KV cache may grow to, 1 … config.context_length.
        on_progress: told (bytes of weights read, bytes of all weights), at the start and after each range read.
        admit: awaited with the bytes of weights, cache and room to work in before any are taken.
        limit: most bytes to take; what the platform can give when not said.

    Raises:
        ParameterError: `context` is out of its interval.
        FormatError, UnsupportedError: a tensor is missing, superfluous, of the wrong shape, or not finite.
        OutOfMemoryError: it would not fit; raised before anything is allocated, with the numbers.
    """
    check_context(context, config)
    stored = weights.match(families.weight_shapes(config))
    needed = check_fits(config, context, MAX_RUN, memory_limit() if limit is None else limit, file=weights.name)
    if admit is not None:
        await admit(needed)

    on_read = weights.read_counter(on_progress)
    await weights.check_tied_head(on_read)
    arrays: dict[str, Array] = {}
    for name, tensor in sorted(stored.items(), key=lambda item: item[1].place):  # each file from beginning to end
        try:
            arrays[name] = np.empty(tensor.shape, np.float32)
        except (MemoryError, ValueError) as error:  # ValueError: larger than an array can be on a 32-bit machine
            problem = f"no memory for {tensor.name} of shape {tensor.shape}"
            raise OutOfMemoryError(compose(weights.name, problem, advice="Choose a smaller model")) from error
        await read_float32(weights.sources[tensor.file], tensor, arrays[name], on_read)
    return NumpyExecutor(config, Weights.from_names(arrays, config.n_layers), context=context, file=weights.name)


class NumpyExecutor:
    """A model in memory, run by numpy. Implements `Executor`, where the methods are described.

    Args:
        config: the model's shape.
        weights: float32 arrays.
        context: positions the KV cache may grow to.
        file: the model's file name, for errors.
        products: how matrix products are computed; the fastest form of the platform when not given.
    """

    name = "numpy"
    in_8_bits: tuple[str, ...] = ()

    def __init__(
        self, config: ModelConfig, weights: Weights[Array], *, context: int, file: str, products: Products | None = None
    ) -> None:
        self._config, self._weights, self._file = config, weights, file
        self.vocab_size, self.context = config.vocab_size, context
        self._cache = KVCache(config.n_layers, config.n_kv_heads, config.head_size, context)
        self._ops = NumpyOps(config, self._cache, products or products_for(), MAX_RUN)

    @property
    def length(self) -> int:
        """Positions in the KV cache."""
        return self._cache.length

    @property
    def prefill_chunk(self) -> int:
        """Always the same, as sums of floats depend on where a prompt is cut."""
        return _PREFILL_CHUNK

    def prefill(self, ids: Sequence[int]) -> None:
        """Append `ids`; no logits."""
        checked = checked_ids(ids, self.vocab_size)
        self._run_chunks(checked, [slice(0)] * -(-len(checked) // MAX_RUN))

    def forward(self, ids: Sequence[int]) -> Array:
        """Append `ids`; logits (vocab_size,) of the last."""
        checked = checked_ids(ids, self.vocab_size)
        last = (len(checked) - 1) // MAX_RUN
        wanted = [slice(0)] * last + [slice(-1, None)]  # no logits for the chunks before the last
        return self._run_chunks(checked, wanted)[-1].reshape(self.vocab_size)

    def forward_all(self, ids: Sequence[int]) -> Array:
        """Append `ids`; logits (len(ids), vocab_size) of all."""
        checked = checked_ids(ids, self.vocab_size)
        wanted = [slice(None)] * -(-len(checked) // MAX_RUN)
        return np.concatenate(self._run_chunks(checked, wanted))

    def truncate(self, length: int) -> None:
        """Forget the positions from `length` on."""
        self._cache.truncate(length)

    def reset(self) -> None:
        """Forget all positions."""
        self._cache.truncate(0)

    def _run_chunks(self, ids: NDArray[np.int32], wanted: Sequence[slice]) -> list[Array]:
        """The logits of each chunk, of the rows `wanted` of it; all chunks are in the cache, or on an error none."""
        start = self.length
        self._cache.reserve(len(ids))
        try:
            return [self._run(ids[n * MAX_RUN : (n + 1) * MAX_RUN], rows) for n, rows in enumerate(wanted)]
        except BaseException:
            self._cache.truncate(start)
            raise

    def _run(self, ids: NDArray[np.int32], rows: slice) -> Array:
        self._ops.start_run(ids, rows)
        # Overflow is meant in silu; what else is not a number shows in the logits, where it is looked for.
        with np.errstate(over="ignore", invalid="ignore"):
            logits = families.forward(self._config, self._ops, self._weights)
        if not np.isfinite(logits).all():
            raise FormatError(self._file, "weights", "they lead to logits that are not finite", allowed="finite logits")
        self._cache.commit(len(ids))
        return logits
