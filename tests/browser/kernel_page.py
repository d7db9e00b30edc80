"""Running kernels in a page of Chromium: one more backend for `tests/kernel_lab.py`.

The page keeps the arena. Only units that changed travel, there before a call and back after it: an arena has megabytes,
a test touches kilobytes.
"""

from __future__ import annotations

import base64

import numpy as np

from pyruntime.model.kernel_abi import UNIT
from tests.kernel_lab import Place
from tooling import kernels

ADDRESS = "http://localhost/"  # nobody listens there: the page is answered for
ISOLATED = {"Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Embedder-Policy": "require-corp"}

_START = """async ({ binary, shared, room, unit }) => {
    const decode = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
    const encode = (bytes) => {
        const parts = [];
        for (let i = 0; i < bytes.length; i += 8192) parts.push(String.fromCharCode(...bytes.subarray(i, i + 8192)));
        return btoa(parts.join(""));
    };
    const memory = new WebAssembly.Memory({ initial: 16 + room / 65536, maximum: 65535, shared });
    const { exports } = (await WebAssembly.instantiate(decode(binary), { env: { memory } })).instance;
    const base = Math.ceil(exports.__heap_base.value / unit) * unit;
    const arena = new Uint8Array(memory.buffer, base, room), words = new Int32Array(memory.buffer, base, room / 4);
    const held = new Int32Array(words.length);
    window.call = ({ units, bytes, name, arguments: given }) => {
        const data = decode(bytes);
        units.forEach((n, i) => arena.set(data.subarray(i * unit, (i + 1) * unit), n * unit));
        held.set(words);
        const result = exports[name](...given.map((a) => (typeof a === "object" ? base + a.place : a)));
        const changed = new Set();
        for (let i = 0; i < words.length; i++) if (words[i] !== held[i]) changed.add(Math.floor((i * 4) / unit));
        const out = new Uint8Array(changed.size * unit);
        [...changed].forEach((n, i) => out.set(arena.subarray(n * unit, (n + 1) * unit), i * unit));
        return { result, units: [...changed], bytes: encode(out) };
    };
}"""


class PageBackend:
    """A build of the kernels in a page of its own.

    Args:
        context: a Playwright context.
        file: the build's file name.
        room: bytes of the arenas of all calls.
    """

    def __init__(self, context, file, room):
        self.takes_bytes = "relaxed" in file
        self._held = np.zeros((room // UNIT, UNIT), np.uint8)
        context.route(ADDRESS, lambda route: route.fulfill(body="<!doctype html>", headers=ISOLATED))
        self._page = context.new_page()
        self._page.goto(ADDRESS)
        variant = next(v for v in kernels.WASM_VARIANTS if v.file == file)
        binary = base64.b64encode(kernels.built(variant).read_bytes()).decode()
        told = {"binary": binary, "shared": "shared" in file, "room": room, "unit": UNIT}
        self._page.evaluate(_START, told)

    def call(self, memory, name, *arguments):
        ours = memory.reshape(-1, UNIT)
        units = np.flatnonzero((ours != self._held).any(axis=1))
        job = {
            "units": units.tolist(),
            "bytes": base64.b64encode(ours[units].tobytes()).decode(),
            "name": name,
            "arguments": [{"place": int(a)} if isinstance(a, Place) else a for a in arguments],
        }
        answer = self._page.evaluate("job => call(job)", job)
        ours[answer["units"]] = np.frombuffer(base64.b64decode(answer["bytes"]), np.uint8).reshape(-1, UNIT)
        self._held[:] = ours
        return answer["result"]

    def close(self):
        self._page.close()
