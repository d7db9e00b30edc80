"""An event loop that takes the next step of any task that can go on, chosen by a seed: the same seed, the same interleaving.

It knows no time and no input; asyncio's own order (first come, first served) is one of those it may take.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import Any


class SteppingLoop(asyncio.AbstractEventLoop):
    """Runs until nothing can go on.

    Args:
        seed: of the order.
        after_step: called after every step.
    """

    def __init__(self, seed: int, after_step: Callable[[], None] = lambda: None) -> None:
        self._random = random.Random(seed)
        self._ready: list[asyncio.Handle] = []
        self._after_step = after_step
        self.steps = 0
        self.problems: list[dict[str, Any]] = []

    def run(self, *coroutines: Coroutine[Any, Any, Any]) -> list[asyncio.Task[Any]]:
        """Run all of them side by side; their tasks, those that wait for ever among them."""
        before = asyncio._get_running_loop()
        asyncio._set_running_loop(self)
        try:
            tasks = [self.create_task(coroutine) for coroutine in coroutines]
            while self._ready:
                handle = self._ready.pop(self._random.randrange(len(self._ready)))
                if not handle.cancelled():
                    handle._run()
                self.steps += 1
                self._after_step()
        finally:
            asyncio._set_running_loop(before)
        return tasks

    def call_soon(self, callback, *args, context=None):
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def create_future(self):
        return asyncio.Future(loop=self)

    def create_task(self, coro, **kwargs):
        return asyncio.Task(coro, loop=self, **kwargs)

    def get_debug(self):
        return False

    def is_running(self):
        return True

    def is_closed(self):
        return False

    def call_exception_handler(self, context):
        self.problems.append(context)
