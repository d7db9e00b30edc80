"""What the delivery tests do inside Pyodide, with the real fetch and the real IndexedDB. Every result is JSON.

The text of this file runs in the harness; the names here are what the tests call.
"""

import asyncio
import hashlib

import js
from pyodide.code import run_js

from pyruntime.delivery.download import fetch_model
from pyruntime.delivery.fetch_browser import BrowserFetcher
from pyruntime.delivery.indexeddb_browser import DATABASE, IndexedDBStore
from pyruntime.delivery.manifest import Manifest, ManifestFile
from pyruntime.delivery.obtain_browser import obtain_model

SITE = js.location.href.removesuffix("harness/worker.mjs")

kept = {}  # what one expression leaves for the next


async def sha256(source):
    """The SHA-256 of a whole byte source, read in ranges that do not fit its chunks."""
    digest, step = hashlib.sha256(), 70_001
    for offset in range(0, source.size, step):
        digest.update(await source.read(offset, min(step, source.size - offset)))
    return digest.hexdigest()


async def obtain(manifest, *, keep=""):
    """A visit: the SHA-256 of the model, the progress told and the notices given."""
    progress, notices = [], []
    model = await obtain_model(
        manifest, page_url=SITE, on_progress=lambda *step: progress.append(step), on_notice=notices.append
    )
    source = model.files[model.manifest.layout().weights]
    if keep:
        kept[keep] = source
    return {
        "title": model.manifest.title,
        "name": source.name,
        "sha256": await sha256(source),
        "progress": progress,
        "notices": notices,
    }


async def kept_sha256(keep):
    """The SHA-256 of the source that `obtain` kept."""
    return await sha256(kept[keep])


async def fetch(file, *, stall_seconds=30.0, more_origins=(), seen=None, on_progress=None):
    """Download one file; the SHA-256 of what the store hands out afterwards. Tells the server that `seen` bytes came."""

    def told(done, total):
        if seen is not None and done > seen:
            js.fetch(f"{SITE}seen")
        if on_progress is not None:
            on_progress(done, total)

    entry = ManifestFile(**{**file, "chunk_sha256": tuple(file["chunk_sha256"]), "sources": tuple(file["sources"])})
    fetcher = BrowserFetcher(SITE, more_origins, stall_seconds=stall_seconds)
    model = await fetch_model(
        Manifest("lab", "Lab", "MIT", "1", (entry,)),
        IndexedDBStore(),
        fetcher,
        base_url=SITE,
        allowed_origins={js.location.origin, *more_origins},
        on_progress=told,
    )
    return await sha256(model.files[file["path"]])


async def fetch_and_cancel(file, after):
    """Start a download and cancel it once more than `after` bytes are there; whether it ended as cancelled."""
    reached = asyncio.Event()
    task = asyncio.ensure_future(fetch(file, on_progress=lambda done, total: done > after and reached.set()))
    await reached.wait()
    task.cancel()
    await asyncio.wait([task])
    return task.cancelled()


async def fetch_many(files):
    """Downloads at the same time; the SHA-256 of each."""
    return await asyncio.gather(*(fetch(file) for file in files))


async def held(sha256):
    """The chunks of a file that are stored, each hashed anew: index → (recorded, found)."""
    store = IndexedDBStore()
    recorded = await store.chunks(sha256)
    return {
        index: (digest, await (await store.get_chunk(sha256, index)).sha256()) for index, digest in recorded.items()
    }


async def entries():
    """What is stored: (sha256, bytes, committed)."""
    return [(entry.sha256, entry.size, entry.committed) for entry in await IndexedDBStore().entries()]


async def keep_tables(sha256, text):
    """Keep tables of a file; returns what is then read back."""
    store = IndexedDBStore()
    await store.put_tables(sha256, text.encode())
    return (await store.get_tables(sha256)).decode()


async def kept_tables(sha256):
    data = await IndexedDBStore().get_tables(sha256)
    return data and data.decode()


async def delete(sha256):
    """Delete one file."""
    await IndexedDBStore().delete(sha256)


async def forget_everything():
    """Delete the database; what another test took from the browser is given back by a new page."""
    await run_js(
        """(name) => new Promise((resolve, reject) => {
            const request = indexedDB.deleteDatabase(name);
            request.onsuccess = () => resolve();
            request.onerror = request.onblocked = () => reject(new Error("the database cannot be deleted"));
        })"""
    )(DATABASE)


def script(text):
    """Run JavaScript in the worker."""
    run_js(text)
