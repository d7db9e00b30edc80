"""The kernels as a WebAssembly module beside Pyodide's own, in a memory of its own.

- Pages that are cross-origin isolated get shared memory and one helping worker for each further thread; a helper spends
  its life inside the module's `helper`. Elsewhere, and on a page's main thread, where nobody may wait, one thread computes.
- Memory is made once, exactly as large as needed, and never grows: views of it stay valid.
- Bytes of a stored model go from the browser's store into that memory; Python never holds them.

    [0, __heap_base)  data and stack of the module · one stack for each helper · the arena
"""

from __future__ import annotations

import asyncio
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import js
import numpy as np
from pyodide.code import run_js
from pyodide.ffi import JsException, to_js

from pyruntime.model.kernel_abi import UNIT
from pyruntime.model.kernel_layout import round_up

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from numpy.typing import NDArray

    from pyruntime.formats.source import ByteSource
    from pyruntime.model.kernel_weights import RowRange

MODULES = Path(__file__).parent / "kernels_wasm"

_PAGE = 65536
_MOST_PAGES = 65535
_STACK = 65536
_PROBE_PAGES = 16  # enough for the module's own data and stack
_KEPT_VIEWS = 256
_HELPER_PATIENCE_MS = 10_000

_make = run_js("(constructor, options) => new constructor(options)")
# A worker that is told its part when the arena is there. It says that it has started, because a worker's script is
# fetched only while its parent gives the browser a turn, and a parent that computes gives none. One that starts too late
# is ended: nobody would.
_start_helper = run_js(
    """(() => {
        const script = () => {
            onmessage = ({ data: { module, memory, stack, arena, number } }) => {
                const { exports } = new WebAssembly.Instance(module, { env: { memory } });
                exports.__stack_pointer.value = stack;
                exports.helper(arena, number);
                close();
            };
            postMessage("started");
        };
        const address = URL.createObjectURL(new Blob([`(${script})()`], { type: "text/javascript" }));
        return (patience) => new Promise((resolve, reject) => {
            const worker = new Worker(address, { type: "module", name: "kernels" });
            const refuse = (reason) => { worker.terminate(); reject(new Error(reason)); };
            const late = setTimeout(() => refuse("a worker did not start"), patience);
            worker.onmessage = () => { clearTimeout(late); resolve(worker); };
            worker.onerror = (event) => { clearTimeout(late); refuse(event.message); };
        });
    })()"""
)


@runtime_checkable
class ReadsIntoMemory(Protocol):
    """A source whose bytes need not pass through Python."""

    async def read_into(self, offset: int, target: Any) -> None:
        """Fill `target`, a JavaScript Uint8Array, with the bytes from `offset` on; errors as `ByteSource.read`."""


def can_share() -> bool:
    """Whether threads may share memory here: a worker of an isolated page (its main thread must not wait)."""
    # Not told by `document`: PyScript gives its workers one.
    return bool(getattr(js, "crossOriginIsolated", False)) and hasattr(js, "WorkerGlobalScope")


def usable_cores() -> int:
    """Processor cores, as far as the browser tells."""
    return int(getattr(js.navigator, "hardwareConcurrency", 1) or 1)


async def compiled_modules(*, shared: bool) -> AsyncGenerator[Any, None]:
    """The builds of the kernels that this browser can run, the fastest first; each is compiled when it is asked for."""
    suffix = "_shared" if shared else ""
    for name in (f"kernels_relaxed{suffix}.wasm", f"kernels_simd{suffix}.wasm"):
        path = MODULES / name
        if path.exists():
            data = to_js(path.read_bytes())
            if js.WebAssembly.validate(data):
                yield await js.WebAssembly.compile(data)


async def start_helpers(n: int) -> list[Any]:
    """Up to `n` workers that have started; fewer when the browser gives no more."""
    starting = (_start_helper(_HELPER_PATIENCE_MS) for _ in range(n))
    found = await asyncio.gather(*starting, return_exceptions=True)
    return [worker for worker in found if not isinstance(worker, BaseException)]


class WasmHost:
    """Implements `KernelHost`, where the methods are described.

    Args:
        module: one of `compiled_modules`.
        shared: whether it was compiled for shared memory.
        helpers: from `start_helpers`; theirs is the module for shared memory only.
    """

    name = "wasm"
    spin = 20_000  # without a pause between looks, some tens of microseconds

    def __init__(self, module: Any, *, shared: bool, helpers: list[Any] | None = None) -> None:
        self._module, self._shared, self._helpers = module, shared, helpers or []
        # A worker that waits is never garbage to a browser, and the memory it waits in neither.
        self._end_helpers = weakref.finalize(self, _terminate, self._helpers)
        self.threads = 1 + len(self._helpers)
        _, probe = self._instance(_PROBE_PAGES)
        self.takes_bytes = bool(probe.takes_bytes())
        self._stacks = round_up(int(js.Reflect.get(probe, "__heap_base").value), UNIT)
        self._base = self._stacks + _STACK * len(self._helpers)
        self._end = 0
        self._views: dict[tuple[int, int], Any] = {}
        self._exports: Any = None
        self._memory: Any = None
        self._begin = self._finish = self._candidates = _unallocated

    def allocate(self, n_bytes: int) -> None:
        """Memory for all of it; then the helpers are told their part."""
        pages = -(-(self._base + n_bytes) // _PAGE)
        if pages > _MOST_PAGES:
            raise MemoryError(f"{n_bytes} bytes are more than WebAssembly's 4 GiB")
        try:
            memory, exports = self._instance(pages)
        except JsException as error:
            raise MemoryError(str(error)) from error
        self._exports = exports
        self._memory, self._end = js.Uint8Array.new(memory.buffer), self._base + n_bytes
        # What each token needs is looked up once: a look is a new proxy, and takes longer than the call.
        self._begin, self._finish, self._candidates = exports.begin, exports.finish, exports.candidates
        for number, helper in enumerate(self._helpers, 1):
            part = {
                "module": self._module,
                "memory": memory,
                "stack": self._stacks + _STACK * number,
                "arena": self._base,
                "number": number,
            }
            helper.postMessage(_plain(part))

    def write(self, place: int, data: NDArray[np.generic] | bytes) -> None:
        """One copy, from Pyodide's memory into the kernels'."""
        array = np.frombuffer(data, np.uint8) if isinstance(data, bytes) else np.ascontiguousarray(data).view(np.uint8)
        self._view(place, array.size).assign(array.reshape(-1))

    def read(self, place: int, n_bytes: int) -> NDArray[np.uint8]:
        """One copy, the other way."""
        return _copied(self._view(place, n_bytes), n_bytes)

    async def load_rows(self, source: ByteSource, rows: RowRange, staging: int) -> int:
        """Reads to the staging place and repacks from there."""
        target = self._view(staging, rows.n_bytes)
        if isinstance(source, ReadsIntoMemory):
            await source.read_into(rows.offset, target)
        else:
            target.assign(await source.read(rows.offset, rows.n_bytes))
        panels = self._address(rows.place) + rows.panel_offset
        shape = rows.source, rows.format, self._address(staging), rows.rows, rows.columns, panels
        return int(self._exports.repack(*shape))

    def run(self, threads: int, n_tokens: int, position: int, n_output: int) -> int:
        """One call."""
        return int(self._exports.run(self._base, threads, n_tokens, position, n_output))

    def begin(self, threads: int, token_id: int, position: int) -> None:
        """One call."""
        self._begin(self._base, threads, token_id, position)

    def finish(self) -> int:
        """One call."""
        return int(self._finish(self._base))

    def candidates(
        self, place: int, peaks: int, n: int, below: float, most: int, found: int
    ) -> tuple[NDArray[np.int32], NDArray[np.float32]] | None:
        """One call, and a copy of what it found."""
        address = self._address
        count = int(self._candidates(address(place), address(peaks), n, below, most, address(found)))
        if count < 0:
            return None
        both = self.read(found, 8 * count)
        return both[: 4 * count].view(np.int32), both[4 * count :].view(np.float32)

    def stop_word(self) -> Any:
        """An Int32Array over the stop word, which other threads may write; None when the memory is not shared."""
        return js.Int32Array.new(self._memory.buffer, self._base, 1) if self._shared and self._end else None

    def close(self) -> None:
        """Ends the helpers, whatever they have in hand, and forgets the memory."""
        if self._exports is not None and self._helpers:
            self._exports.dismiss(self._base)  # who waits would have to be ended by force, which takes seconds
        self._end_helpers()
        self._views.clear()
        self._exports, self._memory, self._end = None, None, 0
        self._begin = self._finish = self._candidates = _unallocated

    def _instance(self, pages: int) -> tuple[Any, Any]:
        """Memory of exactly so many pages, and the exports of an instance in it."""
        memory = _make(js.WebAssembly.Memory, _plain({"initial": pages, "maximum": pages, "shared": self._shared}))
        instance = js.WebAssembly.Instance.new(self._module, _plain({"env": {"memory": memory}}))
        return memory, instance.exports

    def _address(self, place: int) -> int:
        return self._base + place * UNIT

    def _view(self, place: int, n_bytes: int) -> Any:
        """A Uint8Array of a range. Decoding asks for the same few again and again, and making one takes microseconds."""
        view = self._views.get((place, n_bytes))
        if view is None:
            start = self._address(place)
            if place < 0 or start + n_bytes > self._end:
                raise IndexError(f"{n_bytes} bytes at place {place} are outside the arena")
            if len(self._views) >= _KEPT_VIEWS:
                self._views.clear()
            view = self._views[place, n_bytes] = self._memory.subarray(start, start + n_bytes)
        return view


def _unallocated(*_: object) -> Any:
    raise RuntimeError("the kernels have no memory: it was not allocated yet, or given back")


def _terminate(helpers: list[Any]) -> None:
    for helper in helpers:
        helper.terminate()


def _copied(view: Any, n_bytes: int) -> NDArray[np.uint8]:
    """The bytes of a JavaScript Uint8Array."""
    found = np.empty(n_bytes, np.uint8)
    view.assign_to(found)
    return found


def _plain(value: dict[str, Any]) -> Any:
    """A JavaScript object with these properties."""
    return to_js(value, dict_converter=js.Object.fromEntries)
