"""Running kernels on an arena, whatever they were compiled for: libraries in this process, WebAssembly in Node.

`Lab` is an arena that is laid out piece by piece; `call` runs one export on it. `LabHost` makes a whole executor of it.
The formats are written down here a second time, in numpy, from the diagrams of docs/kernels.md.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from pyruntime.model.kernel_abi import (
    CONTROL_BYTES,
    IDS_WORD,
    OPERATION_WORDS,
    OPERATIONS,
    UNIT,
    control_word,
    number,
    operation_number,
)
from pyruntime.model.kernel_layout import Arena, matrix_bytes, row_bytes
from pyruntime.model.native_host import load_library
from tooling import kernels

NODE_SCRIPT = Path(__file__).parent / "kernels.mjs"
NODE = ("node", "--experimental-wasm-relaxed-simd", str(NODE_SCRIPT))  # needed by Node 20; later ones ignore it
GIVEN_LIBRARY = os.environ.get("TINYPYLM_TEST_LIBRARY")  # tests run on this library alone


class Place(int):
    """An argument that is a byte offset in the arena."""


class NativeBackend:
    def __init__(self, path):
        self.library = load_library(path)
        self.takes_bytes = bool(self.library.takes_bytes())

    def call(self, memory, name, *arguments):
        base = memory.ctypes.data
        return getattr(self.library, name)(*(base + a if isinstance(a, Place) else a for a in arguments))

    def close(self):
        pass


class NodeBackend:
    """A running Node; each call hands it a copy of the arena and takes it back."""

    def __init__(self, path, folder, node=NODE):
        self.image = folder / "arena.bin"
        self.takes_bytes = "relaxed" in path.name
        self.process = subprocess.Popen([*node, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def call(self, memory, name, *arguments):
        self.image.write_bytes(memory.data)
        told = [{"place": int(a)} if isinstance(a, Place) else a for a in arguments]
        self.process.stdin.write(json.dumps({"arena": str(self.image), "call": name, "arguments": told}) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        memory[:] = np.fromfile(self.image, np.uint8)
        return json.loads(answer)

    def close(self):
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()


BACKENDS = (
    ["given"]
    if GIVEN_LIBRARY
    else ["kernels-baseline.so", "kernels-avx2.so"]
    + [f"{name}{shared}.wasm" for name in ("kernels_simd", "kernels_relaxed") for shared in ("", "_shared")]
)


def make_backend(name, folder):
    if name == "given":
        return NativeBackend(Path(GIVEN_LIBRARY))
    if name.endswith(".wasm"):
        if shutil.which("node") is None:
            pytest.skip("there is no Node here")
        variant = next(v for v in kernels.WASM_VARIANTS if v.file == name)
        return NodeBackend(kernels.built(variant), folder)
    variant = next((v for v in kernels.native_variants() if v.file == name), None)
    if variant is None:
        pytest.skip("not built for this machine")
    library = load_library(kernels.built(kernels.native_variants()[0]))
    if "avx2" in name and not library.has_avx2():
        pytest.skip("this processor cannot run it")
    return NativeBackend(kernels.built(variant))


def _mark(how, memory):
    """Tell AddressSanitizer, where it is, that memory must not (or may) be touched."""
    function = getattr(ctypes.CDLL(None), f"__asan_{how}_memory_region", None)
    if function is not None:
        function(ctypes.c_void_p(memory.ctypes.data), ctypes.c_size_t(memory.size))


class Lab:
    """An arena for one operation at a time."""

    def __init__(self, backend, n_bytes=1 << 20):
        self.backend, self.takes_bytes = backend, backend.takes_bytes
        whole = np.zeros(n_bytes + UNIT, np.uint8)
        self.memory = whole[-whole.ctypes.data % UNIT :][:n_bytes]
        self.arena = Arena()
        if GIVEN_LIBRARY:
            _mark("poison", self.memory)
        self.take(CONTROL_BYTES, fill=0)
        self._program, self._claims = self.take(4 * OPERATION_WORDS), self.take(8)

    def take(self, n_bytes, fill=0xA5):
        """New bytes, filled so that what was never written is no zero by luck; under AddressSanitizer they alone may be
        touched.
        """
        place = self.arena.take(n_bytes)
        assert self.arena.end <= self.memory.size
        if GIVEN_LIBRARY:
            _mark("unpoison", self.bytes_at(place, n_bytes))
        self.bytes_at(place, n_bytes)[:] = fill
        return place

    def put(self, array):
        array = np.ascontiguousarray(array)
        place = self.take(array.nbytes)
        self.memory[place * UNIT : place * UNIT + array.nbytes] = array.view(np.uint8).reshape(-1)
        return place

    def put_rows(self, rows):
        """Float rows, each padded to whole blocks with what nobody should read."""
        padded = np.full((len(rows), row_bytes("FLOAT", rows.shape[1]) // 4), 1e20, np.float32)
        padded[:, : rows.shape[1]] = rows
        return self.put(padded)

    def put_vector(self, vector):
        padded = np.zeros((1, row_bytes("FLOAT", len(vector)) // 4), np.float32)
        padded[0, : len(vector)] = vector
        return self.put(padded)

    def bytes_at(self, place, n_bytes):
        return self.memory[place * UNIT : place * UNIT + n_bytes]

    def rows(self, place, n, width):
        return self.bytes_at(place, n * row_bytes("FLOAT", width)).view(np.float32).reshape(n, -1)[:, :width].copy()

    def floats_at(self, place, shape):
        return self.bytes_at(place, 4 * int(np.prod(shape))).view(np.float32).reshape(shape).copy()

    def call(self, name, *arguments):
        return self.backend.call(self.memory, name, *arguments)

    def run(self, operation, *, n_tokens, position=0, n_output=0, flags=0, ids=(), threads=1, **fields):
        """Run a program of this one operation; its outcome."""
        names = next(o for o in OPERATIONS if o.name == operation).fields
        assert set(names) == set(fields), set(names) ^ set(fields)
        words = np.zeros(OPERATION_WORDS, np.int32)
        words[: 2 + len(names)] = [operation_number(operation), flags, *(fields[name] for name in names)]
        self.bytes_at(self._program, words.nbytes)[:] = words.view(np.uint8)
        control = self.memory[:CONTROL_BYTES].view(np.int32)
        for word, value in {"program": self._program, "n_operations": 1, "claims": self._claims, "spin": 1000}.items():
            control[control_word(word)] = value
        control[IDS_WORD : IDS_WORD + len(ids)] = ids
        return self.call("run", Place(0), threads, n_tokens, position, n_output)

    def repack(self, data, source, format_, rows, columns):
        """(verdict, place of the panels)."""
        staging, panels = self.put(np.frombuffer(data, np.uint8)), self.take(matrix_bytes(format_, rows, columns))
        numbers = number("SOURCE", source), number("FORMAT", format_)
        return self.call("repack", *numbers, Place(staging * UNIT), rows, columns, Place(panels * UNIT)), panels


class LabHost:
    """A `KernelHost` over a backend, single-threaded."""

    name, threads, spin = "lab", 1, 1000

    def __init__(self, backend):
        self.backend, self.takes_bytes = backend, backend.takes_bytes

    def allocate(self, n_bytes):
        self.lab = Lab(self.backend, n_bytes)

    def write(self, place, data):
        array = np.ascontiguousarray(data).view(np.uint8).reshape(-1)
        self.lab.bytes_at(place, array.size)[:] = array

    def read(self, place, n_bytes):
        return self.lab.bytes_at(place, n_bytes).copy()

    async def load_rows(self, source, rows, staging):
        self.write(staging, np.frombuffer(await source.read(rows.offset, rows.n_bytes), np.uint8))
        target = Place(rows.place * UNIT + rows.panel_offset)
        shape = rows.source, rows.format, Place(staging * UNIT), rows.rows, rows.columns, target
        return self.lab.call("repack", *shape)

    def run(self, threads, n_tokens, position, n_output):
        return self.lab.call("run", Place(0), threads, n_tokens, position, n_output)

    def close(self):
        pass


def unpack(panels, format_, rows, columns):
    """The float32 matrix in panels, by the diagrams."""
    header = {"Q8": 32, "Q4": 32, "Q4_MIN": 64}[format_]
    blocks = panels.reshape(-(-rows // 16), -(-columns // 32), -1)
    scale = blocks[..., :32].copy().view("<f2").astype(np.float32)  # (panels, blocks, 16 rows)
    body = blocks[..., header:]
    if format_ == "Q8":
        pairs = body.copy().view(np.int8).reshape(*body.shape[:2], 16, 4, 4, 2)  # pair of columns, group, row, column
        q = pairs.transpose(0, 1, 3, 4, 2, 5).reshape(*body.shape[:2], 16, 32).astype(np.float32)
        values = q * scale[..., None]
    else:
        quads = body.reshape(*body.shape[:2], 4, 4, 4, 4)  # 8 columns, group, row, column
        low, high = (quads & 15).astype(np.float32), (quads >> 4).astype(np.float32)
        both = np.stack([low, high], axis=5)  # (p, b, j, group, row, half, k)
        q = both.transpose(0, 1, 3, 4, 2, 5, 6).reshape(*body.shape[:2], 16, 32)
        minimum = blocks[..., 32:64].copy().view("<f2").astype(np.float32) if format_ == "Q4_MIN" else -8 * scale
        values = q * scale[..., None] + minimum[..., None]
    return values.transpose(0, 2, 1, 3).reshape(blocks.shape[0] * 16, -1)[:rows, :columns]
