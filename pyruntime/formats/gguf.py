"""GGUF files: metadata and the whereabouts of tensors, from a file that is hostile until it is parsed.

- Versions 2 and 3, little-endian. `parse_gguf` is pure and works on the first bytes of the file;
  `read_gguf` reads as much of the beginning as the header needs, and never the tensors.
- Everything a later reader relies on is checked here: types, shapes, alignment, that each tensor lies
  inside the file and overlaps no other. An error names the file and the field.
- It does not know what the metadata mean, apart from the few keys that say how to read the file itself
  and those every user of a model file relies on (`_KEY_TYPES`); and it does not look at tensor data.

Layout: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from math import prod
from types import MappingProxyType
from typing import Any

from pyruntime.errors import FormatError, UnsupportedError, label, shorten
from pyruntime.formats.gguf_metadata import Cursor, PrefixTooShortError, read_metadata
from pyruntime.formats.source import ByteSource
from pyruntime.formats.tensor_info import TensorInfo
from pyruntime.formats.tensor_types import OTHER_TYPE_NAMES, TENSOR_TYPES

FIRST_READ_BYTES = 2 * 1024 * 1024
MAX_HEADER_BYTES = 32 * 1024 * 1024  # metadata and tensor list; a 262k-token vocabulary takes about 10 MB
MAX_TENSOR_NAME_BYTES = 256  # GGML itself stops at 63
MAX_DIMENSIONS = 4
MAX_ENTRIES = 65_536  # of metadata, and of tensors; real files have tens and hundreds
MAX_ALIGNMENT = 65_536

_SUPPORTED_VERSIONS = (2, 3)
_DEFAULT_ALIGNMENT = 32
_TYPE_BY_NUMBER = {type_.number: name for name, type_ in TENSOR_TYPES.items()}
_KEY_TYPES: dict[str, type] = {
    "general.architecture": str,
    "general.alignment": int,
    "split.no": int,
    "split.count": int,
    "tokenizer.chat_template": str,
}


@dataclass(frozen=True)
class GGUFFile:
    """The header of a GGUF file.

    Attributes:
        name: the file's name.
        size: bytes of the whole file.
        version: 2 or 3.
        metadata: key to int, float, bool, str, or list of them.
        tensors: by name, in the file's order.
        data_offset: where tensor data start, from the start of the file.
        alignment: of tensor data, in bytes.
    """

    name: str
    size: int
    version: int
    metadata: Mapping[str, Any]
    tensors: Mapping[str, TensorInfo]
    data_offset: int
    alignment: int


async def read_gguf(source: ByteSource) -> GGUFFile:
    """The header of the GGUF file in `source`.

    The beginning of the file is read in growing steps, each twice the last, so that the work stays in
    proportion to the header. No byte is read twice.

    Raises:
        FormatError: the file is not what it claims to be; names the file and the field.
        UnsupportedError: the version, a tensor's type or a value's type is not supported.
    """
    prefix, wanted = b"", min(FIRST_READ_BYTES, source.size)
    while True:
        prefix += await source.read(len(prefix), wanted - len(prefix))
        try:
            return parse_gguf(prefix, name=source.name, size=source.size)
        except PrefixTooShortError as error:
            needed = error.needed
        if needed > MAX_HEADER_BYTES:
            raise FormatError(source.name, "header", f"at least {needed} bytes", allowed=f"at most {MAX_HEADER_BYTES}")
        wanted = min(max(2 * len(prefix), needed), MAX_HEADER_BYTES, source.size)


def parse_gguf(prefix: bytes | memoryview, *, name: str, size: int) -> GGUFFile:
    """The header of a GGUF file of `size` bytes that begins with `prefix`.

    Raises:
        PrefixTooShortError: the header goes on after `prefix`.
        FormatError, UnsupportedError: as `read_gguf`.
    """
    cursor = Cursor(bytes(prefix), name, size)
    version = _read_version(cursor)
    n_tensors, n_pairs = _read_counts(cursor)
    metadata = read_metadata(cursor, n_pairs)
    _check_keys(cursor, metadata)
    alignment = _alignment(cursor, metadata)
    entries = [_read_tensor(cursor, index) for index in range(n_tensors)]
    data_offset = cursor.position + -cursor.position % alignment
    tensors = _place_tensors(cursor, entries, data_offset, alignment)
    return GGUFFile(name, size, version, MappingProxyType(metadata), MappingProxyType(tensors), data_offset, alignment)


def _read_version(cursor: Cursor) -> int:
    magic = cursor.take(4, "header")
    if magic != b"GGUF":
        cursor.fail("magic", f"the file begins with {shorten(magic)}", allowed="b'GGUF'")
    (version,) = cursor.unpack(struct.Struct("<I"), "header: version")
    if version in _SUPPORTED_VERSIONS:
        return int(version)
    (swapped,) = struct.unpack(">I", struct.pack("<I", version))
    found = f"{swapped}, but big-endian" if swapped in _SUPPORTED_VERSIONS else str(version)
    raise UnsupportedError(
        cursor.name,
        "version",
        found,
        allowed="2 or 3, little-endian",
        advice="Convert the file anew, or choose another",
    )


def _read_counts(cursor: Cursor) -> tuple[int, int]:
    """Tensors and metadata pairs."""
    n_tensors, n_pairs = cursor.unpack(struct.Struct("<QQ"), "header: counts")
    for field, count in (("tensor count", n_tensors), ("metadata count", n_pairs)):
        if count > MAX_ENTRIES:
            cursor.fail(field, str(count), allowed=f"at most {MAX_ENTRIES}")
    return n_tensors, n_pairs


def _check_keys(cursor: Cursor, metadata: Mapping[str, Any]) -> None:
    """The keys in `_KEY_TYPES` have their type, there is an architecture, and the file is whole."""
    for key, type_ in _KEY_TYPES.items():
        value = metadata.get(key)
        if key in metadata and (not isinstance(value, type_) or isinstance(value, bool)):
            cursor.fail(key, shorten(value), allowed="a string" if type_ is str else "an integer")
    if not metadata.get("general.architecture"):
        cursor.fail("general.architecture", "missing")
    if metadata.get("split.count", 1) > 1 or metadata.get("split.no", 0) > 0:
        number, count = metadata.get("split.no", 0), metadata.get("split.count", "several")
        raise UnsupportedError(
            cursor.name, "split.no", f"this is part {number + 1} of {count} of a split model",
            allowed="whole files", advice="Merge the parts, or choose a model in one file",
        )  # fmt: skip


def _alignment(cursor: Cursor, metadata: Mapping[str, Any]) -> int:
    value: int = metadata.get("general.alignment", _DEFAULT_ALIGNMENT)
    if not 8 <= value <= MAX_ALIGNMENT or value & (value - 1):
        cursor.fail("general.alignment", str(value), allowed=f"a power of two from 8 to {MAX_ALIGNMENT}")
    return value


def _read_tensor(cursor: Cursor, index: int) -> TensorInfo:
    """One entry of the tensor list; its `offset` still counts from the start of the tensor data."""
    where = f"tensor {index}"
    name = cursor.text(cursor.length(f"{where}: name length", MAX_TENSOR_NAME_BYTES), f"{where}: name")
    field = f"tensor {label(name)}"
    (n_dims,) = cursor.unpack(struct.Struct("<I"), field)
    if n_dims > MAX_DIMENSIONS:
        cursor.fail(field, f"{n_dims} dimensions", allowed=f"at most {MAX_DIMENSIONS}")
    *sizes, number, offset = cursor.unpack(struct.Struct(f"<{n_dims}QIQ"), field)
    if 0 in sizes:
        cursor.fail(field, f"shape {tuple(reversed(sizes))}", allowed="sizes of 1 or more")
    if number not in _TYPE_BY_NUMBER:
        named = (
            f"{OTHER_TYPE_NAMES[number]} (type {number})" if number in OTHER_TYPE_NAMES else f"unknown type {number}"
        )
        raise UnsupportedError(cursor.name, field, f"{named} is not supported", allowed=", ".join(TENSOR_TYPES))
    type_name = _TYPE_BY_NUMBER[number]
    _, block_size, block_bytes = TENSOR_TYPES[type_name]
    columns = sizes[0] if sizes else 1
    if columns % block_size:
        cursor.fail(field, f"rows of {columns} values", allowed=f"multiples of {block_size} for {type_name}")
    nbytes = prod(sizes) // block_size * block_bytes
    return TensorInfo(name, tuple(reversed(sizes)), type_name, offset, nbytes, cursor.name)


def _place_tensors(
    cursor: Cursor, entries: list[TensorInfo], data_offset: int, alignment: int
) -> dict[str, TensorInfo]:
    """The tensors with offsets from the start of the file: aligned, inside the file, apart, each name once."""
    tensors: dict[str, TensorInfo] = {}
    for entry in entries:
        field = f"tensor {label(entry.name)}"
        if entry.name in tensors:
            cursor.fail(field, "the name appears twice")
        if entry.offset % alignment:
            cursor.fail(field, f"offset {entry.offset}", allowed=f"multiples of {alignment}")
        offset = data_offset + entry.offset
        if offset + entry.nbytes > cursor.size:
            cursor.fail(field, f"its data end at byte {offset + entry.nbytes} and the file has {cursor.size}")
        tensors[entry.name] = replace(entry, offset=offset)
    for before, after in pairwise(sorted(tensors.values(), key=lambda tensor: tensor.offset)):
        if before.offset + before.nbytes > after.offset:
            cursor.fail(f"tensor {label(after.name)}", f"its data overlap those of tensor {label(before.name)}")
    return tensors
