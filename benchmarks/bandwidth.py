"""How fast this machine reads memory: what a decode step could be at best, because it reads every weight once.

All cores read one large array that was written before, natively and in the page (WebAssembly with shared memory, one
worker for each core), with the same few lines of C (`stream.c`).
"""

from __future__ import annotations

import base64
import contextlib
import ctypes
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from benchmarks.page import VARIANTS, Browsers
from benchmarks.results import Contender
from pyruntime.model.native_host import usable_cores
from tooling.console import ToolingError
from tooling.paths import cache_dir

FIGURE = "read from memory, GB/s"
SIZE = 512 << 20
PASSES = 6

_SOURCE = Path(__file__).parent / "stream.c"
_NATIVE = ("-O3", "-shared", "-fPIC")
_WASM = (
    "-target", "wasm32-freestanding", "-O3", "-msimd128", "-matomics", "-mbulk-memory", "-nostdlib", "-Wl,--no-entry",
    "-Wl,--import-memory", "-Wl,--shared-memory", "-Wl,--max-memory=1073741824", "-Wl,--export=stream",
)  # fmt: skip

_START = """async ([code, size, threads]) => {
    const bytes = Uint8Array.from(atob(code), (letter) => letter.charCodeAt(0));
    const module = await WebAssembly.compile(bytes);
    const memory = new WebAssembly.Memory({ initial: 1 + size / 65536, maximum: 16384, shared: true });
    new Uint8Array(memory.buffer).fill(1, 65536);
    const script = `onmessage = ({ data: { module, memory, from, size, passes } }) => {
        self.stream ??= new WebAssembly.Instance(module, { env: { memory } }).exports.stream;
        let found = 0;
        // In many short calls: the browser compiles well only what is called often.
        for (let pass = 0; pass < passes; pass++)
            for (let at = 0; at < size; at += 65536) found ^= self.stream(from + at, Math.min(65536, size - at));
        postMessage(found);
    }`;
    const address = URL.createObjectURL(new Blob([script], { type: 'text/javascript' }));
    const workers = Array.from({ length: threads }, () => new Worker(address));
    window.readMemory = async (passes) => {
        const began = performance.now();
        await Promise.all(workers.map((worker, n) => new Promise((resolve) => {
            worker.onmessage = resolve;
            const part = size / threads;
            worker.postMessage({ module, memory, from: 65536 + n * part, size: part, passes });
        })));
        return passes * size / (performance.now() - began) / 1e6;
    };
    for (let warming = 0; warming < 3; warming++) await readMemory(1);
}"""


def memory_contenders(stack: contextlib.ExitStack, started: Browsers) -> dict[str, Contender]:
    """Who reads memory and does nothing else, for `take_turns`; the browser's is open until `stack` ends."""
    threads = usable_cores()
    code = base64.b64encode(_compiled("stream.wasm", _WASM).read_bytes()).decode()
    tab = stack.enter_context(started.page(VARIANTS["default"], {}))
    page = tab.page
    page.goto(tab.url_of("licences/index.txt"))  # any page that is isolated and does nothing
    page.evaluate(_START, [code, SIZE // threads // 256 * 256 * threads, threads])
    native = _native_reader(threads)
    return {
        "memory alone, in the page": Contender([lambda: {FIGURE: page.evaluate("(n) => readMemory(n)", PASSES)}]),
        "memory alone, natively": Contender([lambda: {FIGURE: native()}]),
    }


def _native_reader(threads: int) -> Callable[[], float]:
    stream = ctypes.CDLL(str(_compiled("stream.so", _NATIVE))).stream
    stream.argtypes, stream.restype = [ctypes.c_void_p, ctypes.c_ulong], ctypes.c_uint32
    array = np.ones(SIZE, np.uint8)
    part = SIZE // threads // 256 * 256

    def pass_over(n: int) -> None:
        for _ in range(PASSES):
            stream(array.ctypes.data + n * part, part)

    def read() -> float:
        readers = [threading.Thread(target=pass_over, args=(n,)) for n in range(threads)]
        began = time.perf_counter()
        for reader in readers:
            reader.start()
        for reader in readers:
            reader.join()
        return PASSES * part * threads / (time.perf_counter() - began) / 1e9

    return read


def _compiled(name: str, flags: tuple[str, ...]) -> Path:
    target = cache_dir() / "benchmarks" / name
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="tinypylm-stream-") as scratch:
        made = Path(scratch) / name
        cache = {f"ZIG_{kind}_CACHE_DIR": str(cache_dir() / "zig") for kind in ("GLOBAL", "LOCAL")}
        command = [sys.executable, "-m", "ziglang", "cc", *flags, str(_SOURCE), "-o", str(made)]
        done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **cache}, check=False)
        if done.returncode != 0:
            raise ToolingError(f"{_SOURCE.name} cannot be compiled:\n{done.stderr}")
        target.unlink(missing_ok=True)
        target.write_bytes(made.read_bytes())
    return target
