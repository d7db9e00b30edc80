"""A tiny safetensors writer for tests: small files, honest by default, dishonest on request."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

Tensor = tuple[str, Sequence[int], bytes]


def safetensors_bytes(tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None) -> bytes:
    """The bytes of a whole file: name → (dtype, shape in numpy order, data)."""
    table: dict[str, Any] = {} if metadata is None else {"__metadata__": dict(metadata)}
    data = b""
    for name, (dtype, shape, content) in tensors.items():
        table[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    return with_header(json.dumps(table), data)


def with_header(header: str | bytes, data: bytes = b"") -> bytes:
    """A file with this text as its header."""
    text = header.encode() if isinstance(header, str) else header
    return struct.pack("<Q", len(text)) + text + data


def bf16_bytes(array: np.ndarray) -> bytes:
    """float32 values as BF16, cut and not rounded: exact for values that BF16 has."""
    return (array.astype("<f4").view("<u4") >> np.uint32(16)).astype("<u2").tobytes()
