"""Byte sources: where the bytes of a model file come from, behind one small interface.

A source knows its name, its size and how to read a range; it does not know what the bytes mean. Reading is
`async` because the browser's stores are; `FileSource` and `BytesSource` never suspend, which is what lets
`run_without_waiting` drive the same code from a plain function on CPython.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from pyruntime.errors import FormatError

if TYPE_CHECKING:
    import os
    from collections.abc import Coroutine

T = TypeVar("T")


class ByteSource(Protocol):
    """Random access to the bytes of one file."""

    @property
    def name(self) -> str:
        """The file's name, as errors show it."""

    @property
    def size(self) -> int:
        """Total bytes."""

    async def read(self, offset: int, length: int) -> bytes | memoryview:
        """Exactly `length` bytes from `offset`; raises FormatError when the file is shorter."""


class BytesSource:
    """A source over bytes that are already in memory."""

    def __init__(self, data: bytes | memoryview, name: str = "<bytes>") -> None:
        self._data = memoryview(data)
        self.name = name

    @property
    def size(self) -> int:
        """Total bytes."""
        return len(self._data)

    async def read(self, offset: int, length: int) -> memoryview:
        """A view of the bytes; as `ByteSource.read`."""
        check_range(self, offset, length)
        return self._data[offset : offset + length]


class FileSource:
    """A source over a file on disk. The file is opened for each read: a model is read once, in large ranges."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)
        self.name = self._path.name
        self._size = self._path.stat().st_size

    @property
    def size(self) -> int:
        """Total bytes."""
        return self._size

    async def read(self, offset: int, length: int) -> bytes:
        """The bytes; as `ByteSource.read`."""
        check_range(self, offset, length)
        with self._path.open("rb") as file:
            file.seek(offset)
            data = file.read(length)
        if len(data) != length:
            raise FormatError(
                self.name, f"bytes {offset}..{offset + length}", f"the file ends after {offset + len(data)}"
            )
        return data


def check_range(source: ByteSource, offset: int, length: int) -> None:
    """Raise FormatError unless `offset..offset + length` lies inside the source."""
    if offset < 0 or length < 0 or offset + length > source.size:
        raise FormatError(source.name, f"bytes {offset}..{offset + length}", f"the file has only {source.size} bytes")


async def read_whole(source: ByteSource, max_bytes: int) -> bytes:
    """All bytes of a file that should be small; FormatError when it has more than `max_bytes`."""
    if source.size > max_bytes:
        raise FormatError(source.name, "size", f"{source.size} bytes", allowed=f"at most {max_bytes}")
    return bytes(await source.read(0, source.size))


def run_without_waiting(coroutine: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that never suspends (its sources are files or bytes)."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        result: T = stop.value
        return result
    coroutine.close()
    raise RuntimeError("the coroutine waited for something; await it instead")
