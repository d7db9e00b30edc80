"""The kernels as a library in CPython's own process, called through ctypes.

The arena is one numpy array; the helping threads are Python threads that spend their life inside the library's `helper`,
where they do not hold the interpreter's lock. Libraries are made by `tooling/kernels.py`.
"""

from __future__ import annotations

import ctypes
import os
import threading
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pyruntime.model.kernel_abi import UNIT, VERSION

if TYPE_CHECKING:
    from pyruntime.formats.source import ByteSource
    from pyruntime.model.kernel_weights import RowRange

LIBRARIES = Path(__file__).parent / "kernels_native"  # where the libraries lie, one per kind of processor

_INT, _POINTER, _FLOAT = ctypes.c_int32, ctypes.c_void_p, ctypes.c_float
_SIGNATURES: dict[str, tuple[Any, list[Any]]] = {
    "abi_version": (_INT, []),
    "takes_bytes": (_INT, []),
    "has_avx2": (_INT, []),
    "repack": (_INT, [_INT, _INT, _POINTER, _INT, _INT, _POINTER]),
    "run": (_INT, [_POINTER, _INT, _INT, _INT, _INT]),
    "begin": (None, [_POINTER, _INT, _INT, _INT]),
    "finish": (_INT, [_POINTER]),
    "helper": (None, [_POINTER, _INT]),
    "dismiss": (None, [_POINTER]),
    "candidates": (_INT, [_POINTER, _POINTER, _INT, _FLOAT, _INT, _POINTER]),
}


def load_library(path: Path) -> ctypes.CDLL:
    """The library at `path`, its functions declared; OSError when it cannot be loaded or is of another version."""
    library = ctypes.CDLL(str(path))
    for name, (result, arguments) in _SIGNATURES.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    if library.abi_version() != VERSION:
        raise OSError(f"{path.name}: made for version {library.abi_version()} of the kernels' table, not {VERSION}")
    return library


def best_library(folder: Path = LIBRARIES) -> Path | None:
    """The library for this processor, or None when there is none here."""
    baseline, faster = folder / "kernels-baseline.so", folder / "kernels-avx2.so"
    try:
        has_avx2 = bool(load_library(baseline).has_avx2())
    except (OSError, AttributeError):
        return None
    return faster if has_avx2 and faster.exists() else baseline


def usable_cores() -> int:
    """Processor cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class NativeHost:
    """Implements `KernelHost`, where the methods are described.

    Args:
        library: from `load_library`.
        threads: the caller's and its helpers.
    """

    name = "native"
    spin = 2_000  # with the processor's pause between looks, about 40 µs

    def __init__(self, library: ctypes.CDLL, threads: int) -> None:
        self._library, self.threads = library, threads
        self.takes_bytes = bool(library.takes_bytes())
        self._memory: NDArray[np.uint8] | None = None
        self._base = 0
        self._end: weakref.finalize[..., NativeHost] | None = None

    def allocate(self, n_bytes: int) -> None:
        """One zeroed array, aligned to units; then the helpers."""
        memory = np.zeros(n_bytes + UNIT, np.uint8)
        skipped = -memory.ctypes.data % UNIT
        self._memory = memory[skipped : skipped + n_bytes]
        self._base = self._memory.ctypes.data
        helpers = [
            threading.Thread(target=self._library.helper, args=(self._base, n), daemon=True)
            for n in range(1, self.threads)
        ]
        for helper in helpers:
            helper.start()
        # `memory` is held by the finalizer: it must outlive the last helper.
        self._end = weakref.finalize(self, _send_home, self._library, self._base, helpers, memory)

    def write(self, place: int, data: NDArray[np.generic] | bytes) -> None:
        """One copy."""
        array = np.frombuffer(data, np.uint8) if isinstance(data, bytes) else np.ascontiguousarray(data).view(np.uint8)
        self._bytes(place, array.size)[:] = array.reshape(-1)

    def read(self, place: int, n_bytes: int) -> NDArray[np.uint8]:
        """One copy."""
        return self._bytes(place, n_bytes).copy()

    async def load_rows(self, source: ByteSource, rows: RowRange, staging: int) -> int:  # noqa: ARG002 - bytes need no copy
        """Repacks from the bytes as the source gives them."""
        data = np.frombuffer(await source.read(rows.offset, rows.n_bytes), np.uint8)
        target = self._base + rows.place * UNIT + rows.panel_offset
        verdict = self._library.repack(rows.source, rows.format, data.ctypes.data, rows.rows, rows.columns, target)
        return int(verdict)

    def run(self, threads: int, n_tokens: int, position: int, n_output: int) -> int:
        """One call."""
        return int(self._library.run(self._base, threads, n_tokens, position, n_output))

    def begin(self, threads: int, token_id: int, position: int) -> None:
        """One call."""
        self._library.begin(self._base, threads, token_id, position)

    def finish(self) -> int:
        """One call."""
        return int(self._library.finish(self._base))

    def candidates(
        self, place: int, peaks: int, n: int, below: float, most: int, found: int
    ) -> tuple[NDArray[np.int32], NDArray[np.float32]] | None:
        """One call."""
        room = self._bytes(found, 8 * most)
        logits, peaks = self._base + place * UNIT, self._base + peaks * UNIT
        count = self._library.candidates(logits, peaks, n, below, most, room.ctypes.data)
        if count < 0:
            return None
        return room[: 4 * count].view(np.int32).copy(), room[4 * count : 8 * count].view(np.float32).copy()

    def stop_word(self) -> None:
        """Python's own threads stop a run through the executor."""

    def close(self) -> None:
        """Sends the helpers home and forgets the array."""
        if self._end:
            self._end()
        self._memory = None

    def _bytes(self, place: int, n_bytes: int) -> NDArray[np.uint8]:
        if self._memory is None or place < 0 or place * UNIT + n_bytes > self._memory.size:
            raise IndexError(f"{n_bytes} bytes at place {place} are outside the arena")
        return self._memory[place * UNIT : place * UNIT + n_bytes]


def _send_home(library: ctypes.CDLL, base: int, helpers: list[threading.Thread], memory: NDArray[np.uint8]) -> None:
    library.dismiss(base)
    for helper in helpers:
        helper.join()
    del memory
