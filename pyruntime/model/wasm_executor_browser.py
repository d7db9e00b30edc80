"""The kernel executor in a browser: which build of the kernels runs here and computes rightly, and building it."""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import js
from pyodide.ffi import JsException

from pyruntime.errors import UnsupportedError
from pyruntime.model.kernel_executor import MOST_THREADS, build_kernel_executor
from pyruntime.model.kernel_plan import KernelSettings, too_large
from pyruntime.model.kernel_self_test import computes_rightly
from pyruntime.model.wasm_host_browser import WasmHost, can_share, compiled_modules, start_helpers, usable_cores

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from pyruntime.model.config import ModelConfig
    from pyruntime.model.kernel_executor import KernelExecutor
    from pyruntime.weights.stored import StoredWeights


async def obstacle(config: ModelConfig) -> str | None:
    """What stands in the way of the kernels in this browser, for a model of this shape; None when nothing does."""
    problem = too_large(config)
    if problem is None and await _module(shared=can_share()) is None:
        problem = "none of the kernels' WebAssembly modules runs in this browser and computes rightly"
    return problem


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
        weights: where they are; bytes of sources that are `ReadsIntoMemory` do not pass through Python.
        context: positions of the KV cache.
        threads: how many compute, where memory can be shared; by default one for each core, at most 8.
        settings: quality and cache.
        on_progress: told (bytes of weights read, bytes of all weights).
        admit: as `build_kernel_executor`.

    Raises:
        UnsupportedError: there is an `obstacle`.
        ParameterError, FormatError, OutOfMemoryError: as `build_kernel_executor`.
    """
    shared = can_share()
    problem, module = await obstacle(config), await _module(shared=shared)
    if problem is not None:
        raise UnsupportedError(weights.name, "executor", f"wasm cannot be had: {problem}", advice="Choose numpy")
    helpers = await start_helpers((threads or min(usable_cores(), MOST_THREADS)) - 1) if shared else []
    host = WasmHost(module, shared=shared, helpers=helpers)
    return await build_kernel_executor(
        host, config, weights, context=context, settings=settings, on_progress=on_progress, admit=admit
    )


async def _module(*, shared: bool) -> Any:
    """The fastest build that runs here and computes rightly, or None."""
    if shared not in _found:
        _found[shared] = None
        async with aclosing(compiled_modules(shared=shared)) as modules:
            async for module in modules:
                if await _computes_rightly(module, shared=shared):
                    _found[shared] = module
                    break
    return _found[shared]


async def _computes_rightly(module: Any, *, shared: bool) -> bool:
    """Whether a build does; one that cannot even be started or breaks off does not."""
    try:
        return await computes_rightly(WasmHost(module, shared=shared))
    except (JsException, AttributeError, MemoryError) as error:
        js.console.warn(f"kernels: {error}")
        return False


_found: dict[bool, Any] = {}
