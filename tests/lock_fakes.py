"""Locks of several tabs in one process: what Web Locks do, for tests without a browser."""

from __future__ import annotations

import asyncio


class FakeLocks:
    """Implements `pyruntime.delivery.locks.Locks`; every tab gets the same object, and a closed tab is simulated by
    giving back what it holds.
    """

    def __init__(self):
        self._held = set()
        self._changed = asyncio.Condition()

    async def hold(self, name, on_wait=lambda: None):
        async with self._changed:
            if name in self._held:
                on_wait()
            await self._changed.wait_for(lambda: name not in self._held)
            self._held.add(name)
        return lambda: asyncio.ensure_future(self._give_back(name))

    async def _give_back(self, name):
        async with self._changed:
            self._held.discard(name)
            self._changed.notify_all()

    async def held(self):
        await asyncio.sleep(0)
        return sorted(self._held)

    async def any_free(self, names):
        async with self._changed:
            await self._changed.wait_for(lambda: not self._held.issuperset(names))
