"""Locks that every tab of the site sees: how tabs agree on who fetches a model, and who has how much memory.

A lock is held until it is given back, or until its tab is closed or crashes. `locks_browser.py` binds this to the browser.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

Release = Callable[[], None]


class Locks(Protocol):
    """Locks by name."""

    async def hold(self, name: str, on_wait: Callable[[], None] = lambda: None) -> Release:
        """Hold a lock, when nobody else does any more; returns what gives it back.

        `on_wait` is called first if it has to be waited for. Cancelling the task that waits leaves the queue.
        """

    async def held(self) -> list[str]:
        """The names of all locks that are held, by any tab."""

    async def any_free(self, names: Sequence[str]) -> None:
        """Wait until at least one of these locks is not held."""
