"""The whole delivery in a browser, for the worker.

    model = await obtain_model(manifest_url, page_url=page_url, on_progress=report)
    engine = await Engine.load(model.model_files())

Run it in a Web Worker: hashing keeps the thread busy for moments. `page_url` is the page's `location.href`, which a
worker cannot know by itself. Cancelling the task stops the transfer; calling again goes on where it stopped.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Collection
from contextlib import asynccontextmanager

from pyruntime.delivery.download import OnProgress, StoredModel
from pyruntime.delivery.fetch_browser import BrowserFetcher
from pyruntime.delivery.indexeddb_browser import IndexedDBStore
from pyruntime.delivery.locks_browser import browser_locks
from pyruntime.delivery.obtain import OnNotice, obtain


async def obtain_model(
    manifest_url: str,
    *,
    page_url: str,
    more_origins: Collection[str] = (),
    on_progress: OnProgress | None = None,
    on_notice: OnNotice | None = None,
    on_wait: Callable[[], None] = lambda: None,
) -> StoredModel:
    """The model of the manifest at `manifest_url`, verified; its files are read from IndexedDB.

    The arguments and the errors are those of `pyruntime.delivery.obtain.obtain`; `on_wait` is called when another tab is
    fetching a file, which is then waited for.
    """
    locks = browser_locks()

    @asynccontextmanager
    async def hold(name: str) -> AsyncGenerator[None, None]:
        release = await locks.hold(f"tinypylm:{name}", on_wait) if locks else None
        try:
            yield
        finally:
            if release:
                release()

    return await obtain(
        manifest_url,
        page_url=page_url,
        store=IndexedDBStore(),
        fetcher=BrowserFetcher(page_url, more_origins),
        more_origins=more_origins,
        on_progress=on_progress,
        on_notice=on_notice,
        hold=hold,
    )
