"""The kernel executor on CPython: whether it can be had here, and building it."""

from __future__ import annotations

import sys
from functools import cache
from typing import TYPE_CHECKING

from pyruntime.errors import UnsupportedError
from pyruntime.formats.source import run_without_waiting
from pyruntime.model.kernel_executor import KernelExecutor, KernelSettings, build_kernel_executor, supports
from pyruntime.model.kernel_self_test import computes_rightly

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyruntime.model.config import ModelConfig
    from pyruntime.weights.stored import StoredWeights

MOST_THREADS = 8  # beyond, memory is the limit, not arithmetic


def is_available(config: ModelConfig) -> bool:
    """Whether the native kernels are built here, compute rightly, and run a model of this shape."""
    path = _library()
    return supports(config) and path is not None and _computes_rightly(path)


@cache
def _computes_rightly(path: Path) -> bool:
    from pyruntime.model.native_host import NativeHost, load_library  # noqa: PLC0415 - needs ctypes

    return run_without_waiting(computes_rightly(NativeHost(load_library(path), 2)))


async def build_native_executor(
    config: ModelConfig,
    weights: StoredWeights,
    *,
    context: int,
    threads: int | None = None,
    settings: KernelSettings | None = None,
    on_progress: Callable[[int, int], None] | None = None,
) -> KernelExecutor:
    """An executor with all weights read; as `build_kernel_executor`.

    Args:
        config: the model's shape.
        weights: where they are.
        context: positions of the KV cache.
        threads: how many compute; by default one for each core, at most 8.
        settings: quality and cache.
        on_progress: told (bytes of weights read, bytes of all weights).

    Raises:
        UnsupportedError: there is no library for this machine, or the kernels cannot run this shape.
        ParameterError, FormatError, OutOfMemoryError: as `build_kernel_executor`.
    """
    path = _library()
    if path is None:
        problem = "there are no native kernels here"
        raise UnsupportedError(
            weights.name, "executor", problem, advice="Build them with `python build.py`, or choose the executor numpy"
        )
    if not supports(config):
        problem = f"heads of {config.head_size} values are too large for the kernels"
        raise UnsupportedError(weights.name, "executor", problem, allowed="at most 256", advice="Choose numpy")
    from pyruntime.model.native_host import NativeHost, load_library, usable_cores  # noqa: PLC0415 - needs ctypes

    host = NativeHost(load_library(path), threads or min(usable_cores(), MOST_THREADS))
    return await build_kernel_executor(
        host, config, weights, context=context, settings=settings, on_progress=on_progress
    )


def _library() -> Path | None:
    if sys.platform == "emscripten":
        return None
    from pyruntime.model.native_host import best_library  # noqa: PLC0415 - needs ctypes, which Pyodide lacks

    return best_library()
