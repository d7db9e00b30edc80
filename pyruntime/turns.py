"""Who may use an engine: one at a time, the others in the order in which they came."""

from __future__ import annotations

import asyncio
from collections import deque


class Turns:
    """A first-in, first-out queue of one place. It belongs to no event loop, so an engine may outlive one."""

    def __init__(self) -> None:
        self._taken = False
        self._waiting: deque[asyncio.Future[None]] = deque()

    @property
    def is_free(self) -> bool:
        """Whether `take` would return at once."""
        return not self._taken

    async def take(self) -> None:
        """Wait until it is one's turn. Whoever stops waiting loses the place in the queue."""
        if not self._taken:
            self._taken = True
            return
        place = asyncio.get_running_loop().create_future()
        self._waiting.append(place)
        try:
            await place
        except asyncio.CancelledError:
            if place in self._waiting:
                self._waiting.remove(place)
            elif not place.cancelled():
                self.give_back()  # the turn came in the same moment
            raise

    def give_back(self) -> None:
        """End one's turn: the next in the queue has it now."""
        while self._waiting:
            place = self._waiting.popleft()
            if not place.done():
                place.set_result(None)
                return
        self._taken = False
