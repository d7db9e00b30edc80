"""A store in the browser's IndexedDB: chunks as Blobs, which the browser keeps on disk and hands out by reference.

database "tinypylm-models", version 2
chunks      [file sha256, index] → {sha256, size, blob}
files       file sha256 → [chunk sha256, ...]        present once the file is committed
manifests   address → text
tables      file sha256 → Blob                       derived from the file, to save time
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import js
from pyodide.ffi import JsException, to_js

from pyruntime.delivery.chunk_browser import BrowserChunk
from pyruntime.delivery.database_browser import Database, free_space, refusal
from pyruntime.delivery.manifest import ManifestFile
from pyruntime.delivery.memory_browser import release
from pyruntime.delivery.store import Chunk, Space, StoreEntry, is_whole
from pyruntime.formats.source import ByteSource, check_range

DATABASE = "tinypylm-models"
_database = Database(DATABASE, 2, ("chunks", "files", "manifests", "tables"))


class IndexedDBStore:
    """The `Store` of a browser. Two tabs, or two of these in one tab, see the same files."""

    async def put_chunk(self, sha256: str, index: int, chunk: Chunk, digest: str) -> None:
        if not isinstance(chunk, BrowserChunk):
            raise TypeError(f"IndexedDBStore keeps BrowserChunk, not {type(chunk).__name__}")
        record = js.Object.new()
        record.sha256, record.size, record.blob = digest, chunk.size, js.Blob.new(to_js([chunk.buffer]))
        async with _database.transaction("readwrite", "chunks") as stores:
            stores.chunks.put(record, to_js([sha256, index]))

    async def chunks(self, sha256: str) -> dict[int, str]:
        async with _database.transaction("readonly", "chunks") as stores:
            asked = _ask_for_chunks(stores.chunks, sha256)
        return {index: record.sha256 for index, record in _by_index(*asked).items()}

    async def get_chunk(self, sha256: str, index: int) -> BrowserChunk | None:
        async with _database.transaction("readonly", "chunks") as stores:
            request = stores.chunks.get(to_js([sha256, index]))
        if request.result is None:
            return None
        try:
            return BrowserChunk(await request.result.blob.arrayBuffer())
        except JsException:  # the browser has lost what it keeps apart from its database
            return None

    async def commit(self, file: ManifestFile) -> None:
        async with _database.transaction("readwrite", "files") as stores:
            stores.files.put(to_js(list(file.chunk_sha256)), file.sha256)

    async def committed(self, sha256: str) -> tuple[str, ...] | None:
        async with _database.transaction("readonly", "files") as stores:
            request = stores.files.get(sha256)
        return _digests(request.result)

    async def open(self, file: ManifestFile) -> ByteSource | None:
        # One transaction: what it finds whole was whole at one moment, whatever other tabs do.
        async with _database.transaction("readonly", "chunks", "files") as stores:
            asked = _ask_for_chunks(stores.chunks, file.sha256)
            request = stores.files.get(file.sha256)
        records = _by_index(*asked)
        held = {index: record.sha256 for index, record in records.items() if record.blob.size == record.size}
        if not is_whole(file, _digests(request.result), held):
            return None
        # A Blob of Blobs refers to them: reads may cross chunks, and nothing is copied until then.
        blobs = [records[index].blob for index in range(len(file.chunk_sha256))]
        return BlobSource(js.Blob.new(to_js(blobs)), file.name, partial(self.doubt, file.sha256))

    async def doubt(self, sha256: str) -> None:
        async with _database.transaction("readwrite", "files") as stores:
            stores.files.delete(sha256)

    async def delete(self, sha256: str) -> None:
        async with _database.transaction("readwrite", "chunks", "files", "tables") as stores:
            stores.chunks.delete(_chunk_keys(sha256))
            stores.files.delete(sha256)
            stores.tables.delete(sha256)

    async def entries(self) -> list[StoreEntry]:
        async with _database.transaction("readonly", "chunks", "files") as stores:
            keys, records = stores.chunks.getAllKeys(), stores.chunks.getAll()
            committed = stores.files.getAllKeys()
        sizes: dict[str, int] = {}
        for (sha256, _), record in zip(keys.result.to_py(), records.result, strict=True):
            sizes[sha256] = sizes.get(sha256, 0) + record.size
        whole = set(committed.result.to_py())
        return [StoreEntry(sha256, size, sha256 in whole) for sha256, size in sizes.items()]

    async def space(self) -> Space | None:
        return await free_space()

    async def put_manifest(self, url: str, data: bytes) -> None:
        async with _database.transaction("readwrite", "manifests") as stores:
            stores.manifests.put(data.decode("utf-8"), url)

    async def get_manifest(self, url: str) -> bytes | None:
        async with _database.transaction("readonly", "manifests") as stores:
            request = stores.manifests.get(url)
        return None if request.result is None else str(request.result).encode("utf-8")

    async def put_tables(self, sha256: str, data: bytes) -> None:
        async with _database.transaction("readwrite", "tables") as stores:
            stores.tables.put(js.Blob.new(to_js([to_js(data)])), sha256)

    async def get_tables(self, sha256: str) -> bytes | None:
        async with _database.transaction("readonly", "tables") as stores:
            request = stores.tables.get(sha256)
        if request.result is None:
            return None
        try:
            data: bytes = (await request.result.arrayBuffer()).to_bytes()
        except JsException:  # the browser has lost what it keeps apart from its database
            return None
        return data


class BlobSource:
    """A ByteSource over a JavaScript Blob; reading copies once, from the browser's memory into Python's or the kernels'.

    `on_unreadable` is called when the browser cannot hand out bytes that it should have.
    """

    def __init__(self, blob: Any, name: str, on_unreadable: Callable[[], Awaitable[None]]) -> None:
        self._blob, self.name, self._on_unreadable = blob, name, on_unreadable

    @property
    def size(self) -> int:
        return int(self._blob.size)

    async def read(self, offset: int, length: int) -> bytes:
        buffer = await self._buffer(offset, length)
        data: bytes = buffer.to_bytes()
        release(buffer)
        return data

    async def read_into(self, offset: int, target: Any) -> None:
        """Fill `target`, a JavaScript Uint8Array, with the bytes from `offset` on; Python never holds them."""
        buffer = await self._buffer(offset, target.byteLength)
        target.set(js.Uint8Array.new(buffer))
        release(buffer)

    async def _buffer(self, offset: int, length: int) -> Any:
        """An ArrayBuffer of a range."""
        check_range(self, offset, length)
        try:
            return await self._blob.slice(offset, offset + length).arrayBuffer()
        except JsException as error:
            await self._on_unreadable()
            raise await refusal(f"reading {self.name}", error) from error


def _chunk_keys(sha256: str) -> Any:
    """The key range of a file's chunks. In IndexedDB's order a list comes after every number."""
    return js.IDBKeyRange.bound(to_js([sha256]), to_js([sha256, []]))


def _ask_for_chunks(store: Any, sha256: str) -> tuple[Any, Any]:
    """Requests for the keys and for the records of a file's chunks."""
    return store.getAllKeys(_chunk_keys(sha256)), store.getAll(_chunk_keys(sha256))


def _by_index(keys: Any, records: Any) -> dict[int, Any]:
    """The answers to `_ask_for_chunks`: index → record."""
    return {int(key[1]): record for key, record in zip(keys.result, records.result, strict=True)}


def _digests(result: Any) -> tuple[str, ...] | None:
    """The chunk hashes in an answer of the store "files"."""
    return None if result is None else tuple(result.to_py())
