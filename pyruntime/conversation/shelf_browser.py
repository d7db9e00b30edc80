"""Conversations in the browser's IndexedDB, in a database of their own.

database "tinypylm-conversations", version 1
conversations   id → JSON text
latest          "latest" → id of the one that was written last
"""

from __future__ import annotations

from collections.abc import Callable

from pyruntime.delivery.database_browser import Database

_database = Database("tinypylm-conversations", 1, ("conversations", "latest"))


class IndexedDBTexts:
    """The `TextStore` of a browser. Two tabs, or two of these in one tab, see the same texts."""

    async def get(self, key: str) -> str | None:
        async with _database.transaction("readonly", "conversations") as stores:
            request = stores.conversations.get(key)
        return None if request.result is None else str(request.result)

    async def change(self, key: str, make: Callable[[str | None], str]) -> None:
        await _database.change("conversations", key, make, also=lambda stores: stores.latest.put(key, "latest"))

    async def latest(self) -> str | None:
        async with _database.transaction("readonly", "latest") as stores:
            request = stores.latest.get("latest")
        return None if request.result is None else str(request.result)
