"""Safetensors files: the whereabouts of tensors, from a file that is hostile until it is parsed.

- The header is JSON of bounded size, read strictly: no key twice, nothing that only some readers understand.
- Every byte of the data belongs to exactly one tensor, as the format asks: no overlap, no hole, nothing at the end.
- It does not look at tensor data, nor know what a tensor is for.

Layout: https://github.com/huggingface/safetensors, "Format".
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

from pyruntime.errors import FormatError, UnsupportedError, label, shorten
from pyruntime.formats.source import ByteSource
from pyruntime.formats.strict_json import parse_json
from pyruntime.formats.tensor_info import TensorInfo
from pyruntime.formats.tensor_types import TENSOR_TYPES

MAX_HEADER_BYTES = 8 * 1024 * 1024  # 65,536 tensors with names of 60 characters; real files have some hundreds
MAX_DIMENSIONS = 8
DTYPES = ("F32", "F16", "BF16")  # the types that are read, named as in `TENSOR_TYPES`

_MAX_DEPTH = 4  # two objects and a list; the rest is room for a clearer error about the field
_MAX_VALUES = 1 << 20
_MAX_SIZE = 1 << 48  # of one dimension
_LENGTH = struct.Struct("<Q")
_METADATA = "__metadata__"
_KEYS = ("dtype", "shape", "data_offsets")


@dataclass(frozen=True)
class SafetensorsFile:
    """The header of a safetensors file.

    Attributes:
        name: the file's name.
        metadata: what its writer noted, text by text.
        tensors: by name, in the file's order.
    """

    name: str
    metadata: Mapping[str, str]
    tensors: Mapping[str, TensorInfo]


async def read_safetensors(source: ByteSource) -> SafetensorsFile:
    """The header of the safetensors file in `source`.

    Raises:
        FormatError: the file is not what it claims to be; names the file and the field.
        UnsupportedError: a tensor's type is not supported.
    """
    left = source.size - _LENGTH.size
    if left < 0:
        problem = f"the file has {source.size} bytes"
        raise FormatError(source.name, "header length", problem, allowed=f"at least {_LENGTH.size}")
    (length,) = _LENGTH.unpack(await source.read(0, _LENGTH.size))
    if length > min(left, MAX_HEADER_BYTES):
        allowed = f"at most {MAX_HEADER_BYTES}, and no more than the {left} bytes that follow"
        raise FormatError(source.name, "header length", f"{length} bytes", allowed=allowed)
    return parse_safetensors(bytes(await source.read(_LENGTH.size, length)), name=source.name, size=source.size)


def parse_safetensors(header: bytes, *, name: str, size: int) -> SafetensorsFile:
    """What the header of a safetensors file says.

    Args:
        header: the JSON text between the length and the data.
        name: the file's name, for errors.
        size: bytes of the whole file.

    Raises:
        FormatError, UnsupportedError: as `read_safetensors`.
    """
    if not header.startswith(b"{"):
        raise FormatError(name, "header", f"it begins with {shorten(header[:8])}", allowed="b'{'")
    table: dict[str, Any] = parse_json(
        header, name=name, max_bytes=MAX_HEADER_BYTES, max_depth=_MAX_DEPTH, max_values=_MAX_VALUES, field="header"
    )
    metadata = _read_metadata(table.pop(_METADATA, {}), name)
    start = _LENGTH.size + len(header)
    tensors = {tensor: _read_tensor(tensor, entry, start, size - start, name) for tensor, entry in table.items()}
    _check_places(tensors, start, size, name)
    return SafetensorsFile(name, metadata, tensors)


def _read_metadata(value: Any, name: str) -> dict[str, str]:
    if not isinstance(value, dict) or not all(isinstance(text, str) for text in value.values()):
        raise FormatError(name, _METADATA, shorten(value), allowed="an object of texts")
    return value


def _read_tensor(tensor: str, entry: Any, start: int, data_bytes: int, name: str) -> TensorInfo:
    field = f"tensor {label(tensor)}"
    if not isinstance(entry, dict) or sorted(entry) != sorted(_KEYS):
        raise FormatError(name, field, shorten(entry), allowed=f"an object with {', '.join(_KEYS)}")
    dtype, shape, offsets = (entry[key] for key in _KEYS)
    if dtype not in DTYPES:
        raise UnsupportedError(name, field, f"dtype {shorten(dtype)} is not supported", allowed=", ".join(DTYPES))
    if not _are_sizes(shape, _MAX_SIZE) or len(shape) > MAX_DIMENSIONS:
        allowed = f"at most {MAX_DIMENSIONS} sizes, each a whole number up to {_MAX_SIZE}"
        raise FormatError(name, f"{field}: shape", shorten(shape), allowed=allowed)
    if not _are_sizes(offsets, data_bytes) or len(offsets) != 2 or offsets[0] > offsets[1]:
        allowed = f"a begin and an end, 0 ≤ begin ≤ end ≤ {data_bytes}"
        raise FormatError(name, f"{field}: data_offsets", shorten(offsets), allowed=allowed)
    needed, found = prod(shape) * TENSOR_TYPES[dtype].block_bytes, offsets[1] - offsets[0]
    if needed != found:
        raise FormatError(name, field, f"{found} bytes", allowed=f"{needed} for shape {tuple(shape)} of {dtype}")
    return TensorInfo(tensor, tuple(shape), dtype, start + offsets[0], found, name)


def _are_sizes(value: Any, largest: int) -> bool:
    """Whether it is a list of whole numbers from 0 to `largest`."""
    # `type(…) is int`: True is an int to Python and not to anybody else.
    return isinstance(value, list) and all(type(size) is int and 0 <= size <= largest for size in value)


def _check_places(tensors: Mapping[str, TensorInfo], start: int, size: int, name: str) -> None:
    """The data of the tensors follow one another from `start` to the end of the file."""
    end, before = start, "the header"
    for tensor in sorted(tensors.values(), key=lambda tensor: (tensor.offset, tensor.nbytes)):
        field = f"tensor {label(tensor.name)}"
        if tensor.offset < end:
            raise FormatError(name, field, f"its data overlap those of {before}")
        if tensor.offset > end:
            raise FormatError(name, field, f"{tensor.offset - end} bytes before its data belong to no tensor")
        end, before = tensor.offset + tensor.nbytes, field
    if end != size:
        raise FormatError(name, "data", f"{size - end} bytes at the end belong to no tensor")
