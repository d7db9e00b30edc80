"""The kernel executor on CPython: whether it can be had here, and building it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyruntime.errors import UnsupportedError
from pyruntime.model.kernel_executor import MOST_THREADS, KernelExecutor, build_kernel_executor
from pyruntime.model.kernel_plan import KernelSettings, too_large
from pyruntime.model.kernel_self_test import computes_rightly

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from pyruntime.model.config import ModelConfig
    from pyruntime.weights.stored import StoredWeights


async def obstacle(config: ModelConfig) -> str | None:
    """What stands in the way of native kernels here, for a model of this shape; None when nothing does."""
    path = _library()
    if path is None:
        return "there are no native kernels here. Build them with `python build.py`"
    return too_large(config) or await _wrong_results(path)


async def _wrong_results(path: Path) -> str | None:
    from pyruntime.model.native_host import NativeHost, load_library  # noqa: PLC0415 - needs ctypes

    if path not in _tested:
        _tested[path] = await computes_rightly(NativeHost(load_library(path), 2))
    return None if _tested[path] else f"{path.name} computed wrong products in its self-test"


_tested: dict[Path, bool] = {}


async def build(
    config: ModelConfig,
    weights: StoredWeights,
    *,
    context: int,
    threads: int | None = None,
    settings: KernelSettings | None = None,
    on_progress: Callable[[int, int], None] | None = None,
    admit: Callable[[int], Awaitable[None]] | None = None,
) -> KernelExecutor:
    """An executor with all weights read; as `build_kernel_executor`.

    Args:
        config: the model's shape.
        weights: where they are.
        context: positions of the KV cache.
        threads: how many compute; by default one for each core, at most 8.
        settings: quality and cache.
        on_progress: told (bytes of weights read, bytes of all weights).
        admit: as `build_kernel_executor`.

    Raises:
        UnsupportedError: there is an `obstacle`.
        ParameterError, FormatError, OutOfMemoryError: as `build_kernel_executor`.
    """
    path = _library()
    problem = await obstacle(config)
    if path is None or problem is not None:
        raise UnsupportedError(weights.name, "executor", f"native cannot be had: {problem}", advice="Choose numpy")
    from pyruntime.model.native_host import NativeHost, load_library, usable_cores  # noqa: PLC0415 - needs ctypes

    host = NativeHost(load_library(path), threads or min(usable_cores(), MOST_THREADS))
    return await build_kernel_executor(
        host, config, weights, context=context, settings=settings, on_progress=on_progress, admit=admit
    )


def _library() -> Path | None:
    from pyruntime.model.native_host import best_library  # noqa: PLC0415 - needs ctypes, which Pyodide lacks

    return best_library()
