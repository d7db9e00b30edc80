"""The page's part in running Python that a model wrote: passes it to the sandbox (`sandbox.mjs`), and back what came of it.

The sandbox's module is fetched when it is first needed. One piece of code runs at a time.
"""

import asyncio

import protocol


class SandboxLink:
    """Args:
    import_module: gives a JavaScript module of this site by its address.
    post: sends a message to the worker.
    """

    def __init__(self, import_module, post):
        self._import, self._post = import_module, post
        self._run = None  # the id of the run that is going on
        self._close = None  # ends it; None until it has begun

    def receive(self, message):
        """Do what a RunCode or StopCode says."""
        if isinstance(message, protocol.RunCode):
            self._end()
            self._run = message.run
            asyncio.create_task(self._begin(message))
        elif message.run == self._run:
            self._end()

    async def _begin(self, message):
        try:
            sandbox = await self._import("./sandbox.mjs")
        except Exception as error:  # noqa: BLE001 - whatever it is, the worker is told
            self._tell(protocol.CodeRan(message.run, "broken", "", f"the sandbox could not be loaded: {error}"))
            return
        if message.run == self._run:
            self._close = sandbox.start(protocol.encode(message), lambda answer: self._tell(protocol.decode(answer)))

    def _tell(self, message):
        if message.run == self._run:
            self._run = self._close = None
            self._post(message)

    def _end(self):
        if self._close is not None:
            self._close()
        self._run = self._close = None
