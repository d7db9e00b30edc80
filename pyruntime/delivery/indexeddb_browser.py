"""A store in the browser's IndexedDB: chunks as Blobs, which the browser keeps on disk and hands out by reference.

    database "tinypylm-models", version 2
    chunks      [file sha256, index] → {sha256, size, blob}
    files       file sha256 → [chunk sha256, ...]        present once the file is committed
    manifests   address → text
    tables      file sha256 → Blob                       derived from the file, to save time

Every operation opens the database, runs one transaction and closes it again (about a millisecond). So no connection
goes stale when another tab upgrades or deletes the database, and none stands in its way. IndexedDB ends a
transaction when no request is pending, therefore all requests of one are made before anything is awaited.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from types import SimpleNamespace
from typing import Any

import js
from pyodide.code import run_js
from pyodide.ffi import JsException, to_js

from pyruntime.delivery.chunk_browser import BrowserChunk
from pyruntime.delivery.manifest import ManifestFile
from pyruntime.delivery.store import Chunk, Space, StoreEntry, is_whole
from pyruntime.errors import DeliveryError, compose
from pyruntime.formats.source import ByteSource, check_range

DATABASE = "tinypylm-models"
_VERSION = 2
_STORES = ("chunks", "files", "manifests", "tables")
_WHERE = "browser storage"
_ADVICE = {
    "QuotaExceededError": "Delete stored models or free disk space, and reload",
    "SecurityError": "Allow this site to store data, or leave private browsing",
    "InvalidStateError": "Allow this site to store data, or leave private browsing",
    "VersionError": "A newer version of this app was used here: reload to get it",
    "NotReadableError": "The stored copy is damaged: reload to fetch what is missing",
    "NotFoundError": "The stored copy is damaged: reload to fetch what is missing",
}

# IndexedDB answers by events: as promises they can be awaited, and what it throws at once arrives the same way.
# Errors are copied, because Pyodide never wakes for one whose class it does not know (QuotaExceededError has its own).
_indexeddb = run_js(
    """(() => {
        const promise = (begin) => new Promise((resolve, reject) => {
            const refuse = (error) => reject(Object.assign(new Error(error?.message), { name: error?.name ?? "AbortError" }));
            try { begin(resolve, refuse); } catch (error) { refuse(error); }
        });
        return {
            open: (name, version, stores) => promise((resolve, refuse) => {
                if (!globalThis.indexedDB) throw new DOMException("it has none", "InvalidStateError");
                const request = indexedDB.open(name, version);
                request.onupgradeneeded = () => stores
                    .filter((store) => !request.result.objectStoreNames.contains(store))
                    .forEach((store) => request.result.createObjectStore(store));
                request.onsuccess = () => resolve(request.result);
                request.onerror = () => refuse(request.error);
            }),
            completion: (transaction) => promise((resolve, refuse) => {
                transaction.oncomplete = () => resolve();
                transaction.onabort = () => refuse(transaction.error);
            }),
        };
    })()"""
)


class IndexedDBStore:
    """The `Store` of a browser. Two tabs, or two of these in one tab, see the same files."""

    async def put_chunk(self, sha256: str, index: int, chunk: Chunk, digest: str) -> None:
        if not isinstance(chunk, BrowserChunk):
            raise TypeError(f"IndexedDBStore keeps BrowserChunk, not {type(chunk).__name__}")
        record = js.Object.new()
        record.sha256, record.size, record.blob = digest, chunk.size, js.Blob.new(to_js([chunk.buffer]))
        async with _transaction("readwrite", "chunks") as stores:
            stores.chunks.put(record, to_js([sha256, index]))

    async def chunks(self, sha256: str) -> dict[int, str]:
        async with _transaction("readonly", "chunks") as stores:
            asked = _ask_for_chunks(stores.chunks, sha256)
        return {index: record.sha256 for index, record in _by_index(*asked).items()}

    async def get_chunk(self, sha256: str, index: int) -> BrowserChunk | None:
        async with _transaction("readonly", "chunks") as stores:
            request = stores.chunks.get(to_js([sha256, index]))
        if request.result is None:
            return None
        try:
            return BrowserChunk(await request.result.blob.arrayBuffer())
        except JsException:  # the browser has lost what it keeps apart from its database
            return None

    async def commit(self, file: ManifestFile) -> None:
        async with _transaction("readwrite", "files") as stores:
            stores.files.put(to_js(list(file.chunk_sha256)), file.sha256)

    async def committed(self, sha256: str) -> tuple[str, ...] | None:
        async with _transaction("readonly", "files") as stores:
            request = stores.files.get(sha256)
        return _digests(request.result)

    async def open(self, file: ManifestFile) -> ByteSource | None:
        # One transaction: what it finds whole was whole at one moment, whatever other tabs do.
        async with _transaction("readonly", "chunks", "files") as stores:
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
        async with _transaction("readwrite", "files") as stores:
            stores.files.delete(sha256)

    async def delete(self, sha256: str) -> None:
        async with _transaction("readwrite", "chunks", "files", "tables") as stores:
            stores.chunks.delete(_chunk_keys(sha256))
            stores.files.delete(sha256)
            stores.tables.delete(sha256)

    async def entries(self) -> list[StoreEntry]:
        async with _transaction("readonly", "chunks", "files") as stores:
            keys, records = stores.chunks.getAllKeys(), stores.chunks.getAll()
            committed = stores.files.getAllKeys()
        sizes: dict[str, int] = {}
        for (sha256, _), record in zip(keys.result.to_py(), records.result, strict=True):
            sizes[sha256] = sizes.get(sha256, 0) + record.size
        whole = set(committed.result.to_py())
        return [StoreEntry(sha256, size, sha256 in whole) for sha256, size in sizes.items()]

    async def space(self) -> Space | None:
        return await _space()

    async def put_manifest(self, url: str, data: bytes) -> None:
        async with _transaction("readwrite", "manifests") as stores:
            stores.manifests.put(data.decode("utf-8"), url)

    async def get_manifest(self, url: str) -> bytes | None:
        async with _transaction("readonly", "manifests") as stores:
            request = stores.manifests.get(url)
        return None if request.result is None else str(request.result).encode("utf-8")

    async def put_tables(self, sha256: str, data: bytes) -> None:
        async with _transaction("readwrite", "tables") as stores:
            stores.tables.put(js.Blob.new(to_js([to_js(data)])), sha256)

    async def get_tables(self, sha256: str) -> bytes | None:
        async with _transaction("readonly", "tables") as stores:
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
        data: bytes = (await self._buffer(offset, length)).to_bytes()
        return data

    async def read_into(self, offset: int, target: Any) -> None:
        """Fill `target`, a JavaScript Uint8Array, with the bytes from `offset` on; Python never holds them."""
        target.set(js.Uint8Array.new(await self._buffer(offset, target.byteLength)))

    async def _buffer(self, offset: int, length: int) -> Any:
        """An ArrayBuffer of a range."""
        check_range(self, offset, length)
        try:
            return await self._blob.slice(offset, offset + length).arrayBuffer()
        except JsException as error:
            await self._on_unreadable()
            raise await _refusal(f"reading {self.name}", error) from error


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


@asynccontextmanager
async def _transaction(mode: str, *names: str) -> AsyncGenerator[SimpleNamespace, None]:
    """The object stores `names` in one transaction, which is complete when the block has ended.

    Raises:
        DeliveryError: when the browser refuses to open the database or to complete the transaction.
    """
    try:
        database = await _indexeddb.open(DATABASE, _VERSION, to_js(_STORES))
    except JsException as error:
        raise await _refusal("opening", error) from error
    try:
        transaction = database.transaction(to_js(names), mode)
        yield SimpleNamespace(**{name: transaction.objectStore(name) for name in names})
        await _indexeddb.completion(transaction)
    except JsException as error:
        raise await _refusal("reading" if mode == "readonly" else "writing", error) from error
    finally:
        database.close()


async def _space() -> Space | None:
    storage = getattr(js.navigator, "storage", None)
    if storage is None:  # the page is not a secure context
        return None
    estimate = await storage.estimate()
    return Space(int(estimate.usage), int(estimate.quota))


async def _refusal(doing: str, error: JsException) -> DeliveryError:
    """The error to raise for what IndexedDB reported while `doing` something."""
    message = str(error.message)
    if error.name == "QuotaExceededError":
        # Browsers report more quota than there is, so that sites cannot measure the disk: only `used` is worth telling.
        space = await _space()
        message = "no more room" if space is None else f"no more room beside the {space.used / 1e6:,.1f} MB in use"
    advice = _ADVICE.get(error.name, "Reload; if it happens again, delete this site's data")
    return DeliveryError(compose(_WHERE, f"{doing} failed with {error.name}: {message}", advice=advice))
