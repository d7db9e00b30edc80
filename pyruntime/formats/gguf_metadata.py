"""Metadata of a GGUF file: keys and typed values, read from bytes that may lie.

Every length and count is compared with what the file could hold before anything is allocated, and the number
of array items in the whole file is bounded (`MAX_ITEMS`), so a hostile file costs time and memory in
proportion to its own header and no more. Arrays of arrays, which no known model file has, are refused. Arrays of
strings are most of a real header and are read by a tight loop; only the item that stops it is read again with
the checks that can say what is wrong.

Layout: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

from __future__ import annotations

import struct
from array import array
from typing import Any, NoReturn

from pyruntime.errors import FormatError, UnsupportedError, label, shorten
from pyruntime.formats.string_array import StringArray

MAX_KEY_BYTES = 65_535  # the specification's own bound
_LONG = 1024  # strings of a list that is kept as bytes
MAX_ITEMS = 2_097_152  # array items in a whole file; a 262k-token vocabulary with its merges has 1.3 million

_BOOL, _STRING, _ARRAY = 7, 8, 9
# type number -> format of `struct`
_SCALARS = {
    0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", _BOOL: "B", 10: "Q", 11: "q", 12: "d",
}  # fmt: skip
_LENGTH = struct.Struct("<Q")
_TYPE = struct.Struct("<I")


class PrefixTooShortError(FormatError):
    """The header goes on after the bytes that were given; `needed` is a lower bound of its length in bytes."""

    def __init__(self, file: str, needed: int) -> None:
        self.needed = needed
        super().__init__(file, "header", f"needs at least {needed} bytes", advice="Give more of the file")


class Cursor:
    """A position in the first bytes of a file, and the checks that come before every read.

    Args:
        data: the file's first bytes.
        name: the file's name, for errors.
        size: bytes of the whole file; `data` may be shorter.
    """

    def __init__(self, data: bytes, name: str, size: int) -> None:
        self.data, self.name, self.size = data, name, size
        self.position = 0
        self.items_left = MAX_ITEMS

    def fail(self, field: str, problem: str, *, allowed: str = "") -> NoReturn:
        """Raise FormatError about `field` of this file."""
        raise FormatError(self.name, field, problem, allowed=allowed)

    def take(self, length: int, field: str) -> bytes:
        """The next `length` bytes."""
        end = self.position + length
        if end > self.size:
            self.fail(
                field, f"needs {length} bytes and the file ends {max(self.size - self.position, 0)} bytes further on"
            )
        if end > len(self.data):
            raise PrefixTooShortError(self.name, end)
        taken = self.data[self.position : end]
        self.position = end
        return taken

    def unpack(self, layout: struct.Struct, field: str) -> tuple[Any, ...]:
        return layout.unpack(self.take(layout.size, field))

    def length(self, field: str, limit: int | None = None) -> int:
        """A 64-bit length; FormatError when it is above `limit`."""
        value: int = self.unpack(_LENGTH, field)[0]
        if limit is not None and value > limit:
            self.fail(field, f"{value} bytes", allowed=f"at most {limit}")
        return value

    def text(self, length: int, field: str) -> str:
        data = self.take(length, field)
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            self.fail(field, f"not UTF-8 at byte {error.start}: {shorten(data[error.start : error.start + 8])}")


def read_metadata(cursor: Cursor, count: int) -> dict[str, Any]:
    """`count` pairs of key and value. Values are int, float, bool, str, or lists of them;
    a long list of str is a `StringArray`.

    Raises:
        FormatError: naming the key.
        PrefixTooShortError: the pairs go on after the bytes that were given.
    """
    metadata: dict[str, Any] = {}
    for index in range(count):
        where = f"metadata {index}: key"
        key = cursor.text(cursor.length(f"{where} length", MAX_KEY_BYTES), where)
        field = label(key)
        if key in metadata:
            cursor.fail(field, "the key appears twice")
        metadata[key] = _read_value(cursor, _read_type(cursor, field), field)
    return metadata


def _read_type(cursor: Cursor, field: str) -> int:
    kind: int = cursor.unpack(_TYPE, field)[0]
    if kind not in _SCALARS and kind not in (_STRING, _ARRAY):
        raise UnsupportedError(cursor.name, field, f"unknown value type {kind}", allowed="0 to 12")
    return kind


def _read_value(cursor: Cursor, kind: int, field: str) -> Any:
    if kind == _STRING:
        return cursor.text(cursor.length(field), field)
    if kind == _ARRAY:
        return _read_array(cursor, field)
    return _read_numbers(cursor, kind, 1, field)[0]


def _read_array(cursor: Cursor, field: str) -> list[Any] | StringArray:
    kind = _read_type(cursor, field)
    count = cursor.length(field)
    if count > cursor.items_left:
        cursor.fail(field, f"{count} array items", allowed=f"at most {MAX_ITEMS} in a file")
    cursor.items_left -= count
    if kind == _ARRAY:
        raise UnsupportedError(
            cursor.name, field, "an array of arrays", allowed="arrays of numbers, booleans or strings"
        )
    return _read_strings(cursor, count, field) if kind == _STRING else _read_numbers(cursor, kind, count, field)


def _read_numbers(cursor: Cursor, kind: int, count: int, field: str) -> list[Any]:
    layout = struct.Struct(f"<{count}{_SCALARS[kind]}")
    numbers = list(cursor.unpack(layout, field))
    if kind != _BOOL:
        return numbers
    for number in numbers:
        if number > 1:
            cursor.fail(field, f"the boolean byte {number}", allowed="0 or 1")
    return [number == 1 for number in numbers]


def _read_strings(cursor: Cursor, count: int, field: str) -> list[str] | StringArray:
    data, end, start, position, unpack = cursor.data, len(cursor.data), 0, cursor.position, _LENGTH.unpack_from
    first, bounds = position, array("I")  # a header is far below 4 GiB
    append = bounds.append
    try:
        for _ in range(count):
            start = position + 8
            position = start + unpack(data, position)[0]
            if position > end:
                break
            data[start:position].decode()
            append(start - first)
            append(position - first)
        else:
            cursor.position = position
            strings = StringArray(data[first:position], bounds)
            return strings if count > _LONG else list(strings)
    except (struct.error, UnicodeDecodeError):
        pass
    cursor.position = start - 8
    where = f"{field}: item {len(bounds) // 2}"
    cursor.text(cursor.length(where), where)
    raise AssertionError("the item that stopped the loop is at fault")
