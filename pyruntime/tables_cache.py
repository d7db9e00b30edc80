"""Where a model's compiled tokenizer tables come from, and where new ones are kept.

Looked for on the device first, then among those the site ships; what is found is checked by its reader and never trusted.
Tables made anew are kept on the device. They only save time: when they cannot be had or kept, the model opens without.
Nothing here knows the browser.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol
from urllib.parse import urljoin

from pyruntime.delivery.download import Fetcher
from pyruntime.delivery.store import Store
from pyruntime.errors import TinyPyLMError
from pyruntime.text.tables_index import TablesEntry, read_index

INDEX = "tokenizers/index.json"
_MAX_INDEX_BYTES = 1 << 20
_MAX_TABLES_BYTES = 64 << 20


class TablesCache(Protocol):
    """The tables of one tokenizer."""

    @property
    def source_sha256(self) -> str:
        """Hash of the file that the tables are made from."""

    async def get(self) -> bytes | None:
        """The tables as they were kept or are served, not to be trusted; None when there are none."""

    async def put(self, tables: bytes) -> None:
        """Keep new tables, if there is room."""


class StoredTables:
    """The tables of one model file of a `Store`.

    Args:
        store: where the model is kept.
        fetcher: fetches what the site ships.
        site: the site's own address.
        source_sha256: hash of the model file.
    """

    def __init__(self, store: Store, fetcher: Fetcher, *, site: str, source_sha256: str) -> None:
        self._store, self._fetcher, self._site = store, fetcher, site
        self.source_sha256 = source_sha256

    async def get(self) -> bytes | None:
        """The device's, or else the site's, which are kept from then on."""
        kept = await self._store.get_tables(self.source_sha256)
        if kept is not None:
            return kept
        try:
            entry = (await self._index()).get(self.source_sha256)
            if entry is None:
                return None
            tables = await self._fetcher.fetch_document(self._address(entry.file), max_bytes=_MAX_TABLES_BYTES)
        except TinyPyLMError:  # no such list, a damaged one, or no network
            return None
        await self.put(tables)
        return tables

    async def put(self, tables: bytes) -> None:
        """Keep tables on the device; without room they are made again next time."""
        try:
            await self._store.put_tables(self.source_sha256, tables)
        except TinyPyLMError:
            return

    async def _index(self) -> Mapping[str, TablesEntry]:
        url = urljoin(self._site, INDEX)
        return read_index(await self._fetcher.fetch_document(url, max_bytes=_MAX_INDEX_BYTES), url)

    def _address(self, file: str) -> str:
        return urljoin(urljoin(self._site, INDEX), file)
