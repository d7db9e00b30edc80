"""The worker's side of running Python that a model wrote: the page is asked to, and tells what came of it.

The page runs it in a sandbox (`sandbox.mjs`), which only a page can make. One piece of code runs at a time. Nothing here
knows browsers; the posting is passed in.
"""

import asyncio

import protocol

from pyruntime.tools.python import LIMITS, Outcome


class CodeRuns:
    """Args:
    post: sends a message of the protocol to the page.
    """

    def __init__(self, post):
        self._post = post
        self._last = 0  # a run's id
        self._ended = None  # the future of the run that is going on
        self._turn = asyncio.Lock()

    async def run(self, code):
        """The `Outcome` of a piece of code; cancelled, it is stopped in the page too."""
        async with self._turn:
            self._last += 1
            run, self._ended = self._last, asyncio.get_running_loop().create_future()
            self._post(protocol.RunCode(run, code, LIMITS.seconds, LIMITS.megabytes, LIMITS.characters))
            try:
                return await self._ended
            except asyncio.CancelledError:
                self._post(protocol.StopCode(run))
                raise
            finally:
                self._ended = None

    def ran(self, message):
        """Take in a CodeRan; that of a run which was stopped is dropped."""
        if message.run == self._last and self._ended is not None and not self._ended.done():
            self._ended.set_result(Outcome(message.ended, message.output, message.text))
