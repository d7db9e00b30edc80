"""A tiny GGUF writer for tests: small files, honest by default, dishonest on request.

`write_gguf` writes a whole file; `gguf_bytes` returns it. Python values become GGUF values by the obvious rule
(see `value_type`); `Typed` names another type. Each step of the layout is a function of its own, so that a test
of hostile files can write one field wrongly and the rest rightly. It does not check what it is given.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

UINT8, INT8, UINT16, INT16, UINT32, INT32, FLOAT32, BOOL, STRING, ARRAY, UINT64, INT64, FLOAT64 = range(13)
SCALARS = {
    UINT8: "<B", INT8: "<b", UINT16: "<H", INT16: "<h", UINT32: "<I", INT32: "<i", FLOAT32: "<f", BOOL: "<B",
    UINT64: "<Q", INT64: "<q", FLOAT64: "<d",
}  # fmt: skip
TENSOR_TYPES = {
    "F32": 0,
    "F16": 1,
    "Q4_0": 2,
    "Q4_1": 3,
    "Q5_0": 6,
    "Q5_1": 7,
    "Q8_0": 8,
    "Q2_K": 10,
    "Q4_K": 12,
    "Q5_K": 13,
    "Q6_K": 14,
    "IQ4_NL": 20,
    "BF16": 30,
}

Tensor = tuple["str | int", Sequence[int], bytes]


@dataclass(frozen=True)
class Typed:
    """A metadata value with its GGUF type, where the obvious type is not the wanted one.

    For an array, `type` is ARRAY and `value` is (item type, items).
    """

    type: int
    value: Any


def write_gguf(
    target: str | os.PathLike[str] | BinaryIO,
    metadata: Mapping[str, Any],
    tensors: Mapping[str, Tensor],
    *,
    version: int = 3,
    alignment: int = 32,
) -> None:
    """Write a GGUF file to a path or a binary file.

    Args:
        target: where to write.
        metadata: key to Python value, or to `Typed`.
        tensors: name to (type name or number, shape in numpy order, bytes).
        version: the version in the header.
        alignment: of tensor data; say the same in `general.alignment` when it is not 32.
    """
    data = gguf_bytes(metadata, tensors, version=version, alignment=alignment)
    if isinstance(target, str | os.PathLike):
        Path(target).write_bytes(data)
    else:
        target.write(data)


def gguf_bytes(
    metadata: Mapping[str, Any], tensors: Mapping[str, Tensor], *, version: int = 3, alignment: int = 32
) -> bytes:
    """The bytes of a whole GGUF file; arguments as `write_gguf`."""
    infos, data = b"", b""
    for name, (kind, shape, content) in tensors.items():
        data += padding(len(data), alignment)
        infos += tensor_info(name, kind, shape, len(data))
        data += content
    head = (
        header(version, len(tensors), len(metadata))
        + b"".join(pair(key, value) for key, value in metadata.items())
        + infos
    )
    return head + padding(len(head), alignment) + data


def header(version: int, n_tensors: int, n_pairs: int) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", version, n_tensors, n_pairs)


def pair(key: str | bytes, value: Any) -> bytes:
    """One metadata pair: key, type, value."""
    kind, payload = value_type(value)
    return string(key) + struct.pack("<I", kind) + encode(kind, payload)


def tensor_info(name: str | bytes, kind: str | int, shape: Sequence[int], offset: int) -> bytes:
    """One tensor's entry; `shape` in numpy order, `offset` from the start of the tensor data."""
    number = TENSOR_TYPES[kind] if isinstance(kind, str) else kind
    sizes = b"".join(struct.pack("<Q", size) for size in reversed(shape))
    return string(name) + struct.pack("<I", len(shape)) + sizes + struct.pack("<IQ", number, offset)


def string(value: str | bytes) -> bytes:
    data = value.encode() if isinstance(value, str) else value
    return struct.pack("<Q", len(data)) + data


def padding(position: int, alignment: int) -> bytes:
    return bytes(-position % alignment)


def value_type(value: Any) -> tuple[int, Any]:
    """The GGUF type of a Python value, and what `encode` wants for it."""
    if isinstance(value, Typed):
        return value.type, value.value
    if isinstance(value, bool):
        return BOOL, value
    if isinstance(value, int):
        small, large = (INT32, INT64) if value < 0 else (UINT32, UINT64)
        return (small if -(2**31) <= value < 2**32 else large), value
    if isinstance(value, float):
        return FLOAT32, value
    if isinstance(value, str | bytes):
        return STRING, value
    items = list(value)
    kinds = {value_type(item)[0] for item in items} or {STRING}
    # Ints of mixed sign or size share the widest type; anything else mixed is a mistake of the test.
    kind = kinds.pop() if len(kinds) == 1 else INT32 if kinds == {UINT32, INT32} else INT64
    return ARRAY, (kind, [value_type(item)[1] for item in items])


def encode(kind: int, value: Any) -> bytes:
    """The bytes of one value, without its type."""
    if kind == STRING:
        return string(value)
    if kind == ARRAY:
        item_kind, items = value
        return struct.pack("<IQ", item_kind, len(items)) + b"".join(encode(item_kind, item) for item in items)
    return struct.pack(SCALARS[kind], value)
