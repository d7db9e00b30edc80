"""Whether the kernels compute rightly where they run: products of every kind, compared with numpy, in a millisecond.

A compiler between the sources and the processor may be wrong (one engine's baseline compiler got the relaxed dot product
with addition wrong, which therefore is not used); a wrong product would only show as nonsense in answers. Asked once, of a host of its own, before a model
is loaded; whoever asks falls back to another executor.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

import numpy as np

from pyruntime.formats.source import BytesSource
from pyruntime.formats.tensor_types import TENSOR_TYPES
from pyruntime.model.kernel_abi import (
    CONTROL_BYTES,
    NOTHING,
    OPERATION_WORDS,
    OPERATIONS,
    UNIT,
    control_word,
    number,
    operation_number,
)
from pyruntime.model.kernel_layout import FORMAT_OF_TYPE, Arena, matrix_bytes, row_bytes
from pyruntime.model.kernel_weights import RowRange
from pyruntime.weights.quantized import dequantize

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pyruntime.model.kernel_host import KernelHost

_ROWS, _COLUMNS, _TOKENS = 32, 96, 5  # one group of four tokens and one token alone
_TYPES = ("Q8_0", "Q4_0", "Q4_1")
# Of the largest result; rounding activations to 8 bits costs about 0.005, and a wrong product is wrong by more than 0.1.
_TOLERANCE = 0.03


@dataclass(frozen=True)
class _Places:
    program: int
    claims: int
    staging: int
    panels: int
    floats: int
    integers: int
    results: int


async def computes_rightly(host: KernelHost) -> bool:
    """Whether products come out right on `host`, a fresh one, which is closed in the end."""
    arena = Arena()
    arena.take(CONTROL_BYTES)
    places = _Places(
        program=arena.take(2 * 4 * OPERATION_WORDS),
        claims=arena.take(16),
        staging=arena.take(_ROWS * _COLUMNS * 2),
        panels=arena.take(matrix_bytes("Q8", _ROWS, _COLUMNS)),
        floats=arena.take(_TOKENS * row_bytes("FLOAT", _COLUMNS)),
        integers=arena.take(_TOKENS * row_bytes("INT16", _COLUMNS)),
        results=arena.take(_TOKENS * row_bytes("FLOAT", _ROWS)),
    )
    host.allocate(arena.end)
    try:
        random = Random(1)  # numpy's own would load a megabyte of modules in a browser
        rows = _bytes(random, (_TOKENS, _COLUMNS)).view(np.int8).astype(np.float32) / np.float32(128)
        host.write(places.floats, rows)
        for type_ in _TYPES:
            weights = await _load(host, places, type_, random)
            forms = ("INT16",) if type_ == "Q8_0" or not host.takes_bytes else ("INT8", "SPLIT")
            for form in forms:
                found = _multiply(host, places, type_, form)
                expected = rows @ weights.T
                # Not `error > …`: what is not a number must fail too.
                if not np.abs(found - expected).max() <= _TOLERANCE * np.abs(expected).max():
                    return False
        return True
    finally:
        host.close()


async def _load(host: KernelHost, places: _Places, type_name: str, random: Random) -> NDArray[np.float32]:
    """Random weights: repacked by the host, and as floats."""
    type_ = TENSOR_TYPES[type_name]
    blocks = _bytes(random, (_ROWS * _COLUMNS // type_.block_size, type_.block_bytes))
    blocks[:, :2] = np.frombuffer(np.float16(0.01).tobytes(), np.uint8)
    if type_name == "Q4_1":
        blocks[:, 2:4] = np.frombuffer(np.float16(-0.07).tobytes(), np.uint8)
    data, format_ = blocks.tobytes(), number("FORMAT", FORMAT_OF_TYPE[type_name])
    span = RowRange(0, len(data), _ROWS, _COLUMNS, number("SOURCE", type_name), format_, places.panels, 0)
    await host.load_rows(BytesSource(data), span, places.staging)
    return dequantize(data, type_name, (_ROWS, _COLUMNS))


def _bytes(random: Random, shape: tuple[int, int]) -> NDArray[np.uint8]:
    return np.frombuffer(bytearray(random.randbytes(shape[0] * shape[1])), np.uint8).reshape(shape)


def _multiply(host: KernelHost, places: _Places, type_name: str, form: str) -> NDArray[np.float32]:
    """The rows times the weights, by the kernels."""
    row = number("ROW", form)
    quantize = {"dst": places.integers, "dst_row": row, "src": places.floats, "width": _COLUMNS}
    linear = {
        "dst": places.results,
        "weight": places.panels,
        "format": number("FORMAT", FORMAT_OF_TYPE[type_name]),
        "src": places.integers,
        "src_row": row,
        "inputs": _COLUMNS,
        "outputs": _ROWS,
        "bias": NOTHING,
        "residual": NOTHING,
        "peaks": NOTHING,
    }
    program = np.zeros((2, OPERATION_WORDS), np.int32)
    for words, name, sync, fields in zip(program, ("QUANTIZE", "LINEAR"), (0, 1), (quantize, linear), strict=True):
        names = next(operation.fields for operation in OPERATIONS if operation.name == name)
        words[: 2 + len(names)] = [operation_number(name), sync, *(fields[field] for field in names)]
    host.write(places.program, program)
    line = np.zeros(UNIT // 4, np.int32)
    line[:4] = [places.program, len(program), places.claims, host.spin]
    host.write(control_word("program") * 4 // UNIT, line)
    host.run(host.threads, _TOKENS, 0, 0)
    results = host.read(places.results, _TOKENS * row_bytes("FLOAT", _ROWS)).view(np.float32)
    return results.reshape(_TOKENS, -1)[:, :_ROWS]
