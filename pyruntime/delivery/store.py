"""Stores: where the files of models are kept on this device.

A file is kept as chunks under the SHA-256 of the whole file. Chunks arrive one by one, each already verified; the
file counts as present only once it is committed, which its downloader does after the hash of the whole matched.
`Store` is the contract, `MemoryStore` the simplest thing that keeps it. A chunk's bytes may live outside Python (in
the browser they do), so they are handled through `Chunk`. Nothing here fetches or decides what is right: it only
keeps what it is given.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from pyruntime.delivery.manifest import ManifestFile
from pyruntime.errors import DeliveryError, compose
from pyruntime.formats.source import ByteSource, BytesSource


class RunningHash(Protocol):
    """What `hashlib` hands out: a hash that grows with the bytes it is given."""

    def update(self, data: bytes | memoryview, /) -> None:
        """Take more bytes in."""

    def hexdigest(self) -> str:
        """The hash of all bytes so far."""


class Chunk(Protocol):
    """The bytes of one chunk, wherever they live."""

    @property
    def size(self) -> int:
        """Bytes."""

    async def sha256(self) -> str:
        """Their SHA-256, 64 hexadecimal digits."""

    def feed(self, running: RunningHash) -> None:
        """Give the bytes to a running hash."""

    def release(self) -> None:
        """Give the memory back; the chunk cannot be used any more."""


@dataclass(frozen=True)
class Space:
    """What the device has for this site, in bytes: used by everything the site keeps, and the most it may keep."""

    used: int
    quota: int


@dataclass(frozen=True)
class StoreEntry:
    """One file in a store. `size` is the bytes held so far; only a committed file can be opened."""

    sha256: str
    size: int
    committed: bool


class Store(Protocol):
    """Keeps chunks of files, which files are whole, and the last manifest of each address.

    Every method raises DeliveryError when the device refuses; putting the same thing twice changes nothing.
    """

    async def put_chunk(self, sha256: str, index: int, chunk: Chunk, digest: str) -> None:
        """Keep a verified chunk of the file `sha256`; `digest` is the chunk's own SHA-256."""

    async def chunks(self, sha256: str) -> Mapping[int, str]:
        """The chunks held of a file: index → the chunk's SHA-256."""

    async def get_chunk(self, sha256: str, index: int) -> Chunk | None:
        """A chunk; None when it is not held."""

    async def commit(self, file: ManifestFile) -> None:
        """Note that the chunks of `file.chunk_sha256` together have the hash `file.sha256`."""

    async def committed(self, sha256: str) -> tuple[str, ...] | None:
        """The chunk hashes a file was committed with; None when it is not committed."""

    async def doubt(self, sha256: str) -> None:
        """Take a commit back, keeping the chunks: the next download hashes each again and fetches the damaged ones."""

    async def open(self, file: ManifestFile) -> ByteSource | None:
        """The bytes of a file; None unless it is committed with these chunks and every one is held."""

    async def delete(self, sha256: str) -> None:
        """Forget a file, whole or partial."""

    async def entries(self) -> list[StoreEntry]:
        """Every file of which something is held, ordered by hash."""

    async def space(self) -> Space | None:
        """What the device has for this site; None when it does not tell."""

    async def put_manifest(self, url: str, data: bytes) -> None:
        """Keep the text of the manifest at `url`, in place of an earlier one."""

    async def get_manifest(self, url: str) -> bytes | None:
        """The text kept for `url`, if any."""

    async def put_tables(self, sha256: str, data: bytes) -> None:
        """Keep what was derived from the file `sha256` to save time; deleted with the file."""

    async def get_tables(self, sha256: str) -> bytes | None:
        """What was kept for the file `sha256`, if anything."""


def is_whole(file: ManifestFile, committed: tuple[str, ...] | None, held: Mapping[int, str]) -> bool:
    """Whether a file was committed with the chunks its manifest names, and each of them is held."""
    return committed == file.chunk_sha256 and all(held.get(i) == digest for i, digest in enumerate(file.chunk_sha256))


class BytesChunk:
    """A chunk in Python's memory."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    @property
    def size(self) -> int:
        return len(self.data)

    async def sha256(self) -> str:
        return hashlib.sha256(self.data).hexdigest()

    def feed(self, running: RunningHash) -> None:
        running.update(self.data)

    def release(self) -> None:
        """The store may have the same bytes: nothing to do."""


class MemoryStore:
    """A store that lasts as long as the process. `quota` is the most it keeps, in bytes; None for no limit."""

    def __init__(self, quota: int | None = None) -> None:
        self._quota = quota
        self._chunks: dict[tuple[str, int], tuple[str, bytes]] = {}
        self._committed: dict[str, tuple[str, ...]] = {}
        self._manifests: dict[str, bytes] = {}
        self._tables: dict[str, bytes] = {}

    async def put_chunk(self, sha256: str, index: int, chunk: Chunk, digest: str) -> None:
        if not isinstance(chunk, BytesChunk):
            raise TypeError(f"MemoryStore keeps BytesChunk, not {type(chunk).__name__}")
        used = self._used() - len(self._chunks.get((sha256, index), ("", b""))[1])
        if self._quota is not None and used + chunk.size > self._quota:
            problem = f"{used} bytes used, {chunk.size} more do not fit"
            raise DeliveryError(compose("memory store", problem, allowed=f"{self._quota} bytes"))
        self._chunks[sha256, index] = (digest, chunk.data)

    async def chunks(self, sha256: str) -> dict[int, str]:
        return {index: digest for (file, index), (digest, _) in sorted(self._chunks.items()) if file == sha256}

    async def get_chunk(self, sha256: str, index: int) -> BytesChunk | None:
        found = self._chunks.get((sha256, index))
        return None if found is None else BytesChunk(found[1])

    async def commit(self, file: ManifestFile) -> None:
        self._committed[file.sha256] = file.chunk_sha256

    async def committed(self, sha256: str) -> tuple[str, ...] | None:
        return self._committed.get(sha256)

    async def doubt(self, sha256: str) -> None:
        self._committed.pop(sha256, None)

    async def open(self, file: ManifestFile) -> ByteSource | None:
        if not is_whole(file, self._committed.get(file.sha256), await self.chunks(file.sha256)):
            return None
        count = len(file.chunk_sha256)
        return BytesSource(b"".join(self._chunks[file.sha256, index][1] for index in range(count)), file.name)

    async def delete(self, sha256: str) -> None:
        self._committed.pop(sha256, None)
        self._tables.pop(sha256, None)
        for key in [key for key in self._chunks if key[0] == sha256]:
            del self._chunks[key]

    async def entries(self) -> list[StoreEntry]:
        sizes: dict[str, int] = {}
        for (sha256, _), (_, data) in sorted(self._chunks.items()):
            sizes[sha256] = sizes.get(sha256, 0) + len(data)
        return [StoreEntry(sha256, size, sha256 in self._committed) for sha256, size in sizes.items()]

    async def space(self) -> Space | None:
        return None if self._quota is None else Space(self._used(), self._quota)

    async def put_manifest(self, url: str, data: bytes) -> None:
        self._manifests[url] = data

    async def get_manifest(self, url: str) -> bytes | None:
        return self._manifests.get(url)

    async def put_tables(self, sha256: str, data: bytes) -> None:
        self._tables[sha256] = data

    async def get_tables(self, sha256: str) -> bytes | None:
        return self._tables.get(sha256)

    def _used(self) -> int:
        return sum(len(data) for _, data in self._chunks.values())
