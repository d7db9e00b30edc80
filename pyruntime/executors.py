"""Which executor computes, and building it.

`auto` takes the compiled kernels (native on CPython, WebAssembly in a browser) where they are there, run the model's
shape and pass their self-test; elsewhere numpy, and says why when that is a loss the user should know of.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from pyruntime.errors import ParameterError, UnsupportedError
from pyruntime.model.kernel_executor import MOST_THREADS
from pyruntime.model.kernel_plan import KernelSettings
from pyruntime.model.numpy_executor import build_numpy_executor

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from types import ModuleType

    from pyruntime.model.executor import Executor
    from pyruntime.opening import OpenedModel

ExecutorName = Literal["auto", "native", "wasm", "numpy"]
EXECUTORS: tuple[ExecutorName, ...] = ("auto", "native", "wasm", "numpy")
KVCacheName = Literal["int16", "int8"]
KV_CACHES: tuple[KVCacheName, ...] = ("int16", "int8")

_IN_BROWSER = sys.platform == "emscripten"


@dataclass(frozen=True)
class Wanted:
    """What the user asked for.

    Attributes:
        executor: its name.
        threads: how many compute; None for as many as are useful.
        precise: whether the kernels take 16-bit activations everywhere.
        kv_cache: how the kernels cache keys and values.
    """

    executor: ExecutorName
    threads: int | None
    precise: bool
    kv_cache: KVCacheName

    @classmethod
    def checked(cls, executor: ExecutorName, threads: int | None, precise: bool, kv_cache: KVCacheName) -> Wanted:
        """The same; ParameterError when there is no such executor, number of threads or cache."""
        if executor not in EXECUTORS:
            raise ParameterError("executor", executor, ", ".join(EXECUTORS))
        if threads is not None and (type(threads) is not int or not 1 <= threads <= MOST_THREADS):
            raise ParameterError("threads", threads, f"an integer in [1, {MOST_THREADS}]")
        if kv_cache not in KV_CACHES:
            raise ParameterError("kv_cache", kv_cache, ", ".join(KV_CACHES))
        return cls(executor, threads, precise, kv_cache)


async def build_executor(
    wanted: Wanted,
    model: OpenedModel,
    *,
    context: int,
    on_progress: Callable[[int, int], None] | None = None,
    on_notice: Callable[[str], None] | None = None,
    admit: Callable[[int], Awaitable[None]] | None = None,
) -> Executor:
    """The executor with the model's weights in it; arguments and errors as in `Engine.load`."""
    executor = wanted.executor
    if executor == "auto":
        executor, reason = await _fastest(model)
        if reason and on_notice:
            on_notice(f"Computing with numpy, which is many times slower: {reason}")
    parts: tuple[Any, ...] = model.config, model.weights
    if executor == "numpy":
        return await build_numpy_executor(*parts, context=context, on_progress=on_progress, admit=admit)
    kernels = _kernels(executor)
    settings = KernelSettings(precise=wanted.precise, kv="INT8" if wanted.kv_cache == "int8" else "INT16")
    built: Executor = await kernels.build(
        *parts, context=context, threads=wanted.threads, settings=settings, on_progress=on_progress, admit=admit
    )
    return built


async def _fastest(model: OpenedModel) -> tuple[ExecutorName, str | None]:
    """What "auto" stands for here, and what stood in the way of something faster."""
    name: ExecutorName = "wasm" if _IN_BROWSER else "native"
    obstacle = await _kernels(name).obstacle(model.config)
    return (name, None) if obstacle is None else ("numpy", obstacle)


def _kernels(executor: ExecutorName) -> ModuleType:
    """The module that builds this executor: `obstacle(config)` says what stands in its way, `build(…)` makes one."""
    if (executor == "wasm") != _IN_BROWSER:
        place = "a browser" if executor == "wasm" else "CPython"
        advice = 'Choose "auto", which takes the fastest that runs here'
        raise UnsupportedError("executor", executor, f"it runs in {place} only", advice=advice)
    if _IN_BROWSER:
        from pyruntime.model import wasm_executor_browser  # noqa: PLC0415 - imports js

        return wasm_executor_browser
    from pyruntime.model import native_executor  # noqa: PLC0415 - needs ctypes, which Pyodide lacks

    return native_executor
