"""The worker's conversation with a page that a test plays, a model whose answers it chooses, and a store in memory."""

from __future__ import annotations

import asyncio

import protocol
from worker_chat import Chat

from pyruntime.conversation.shelf import MemoryTexts, Shelf
from tests.conversation_lab import scripted

SETTINGS = {"sampling": {"temperature": 0}, "tools": [], "thinking": None}


class Page:
    """A page as far as the worker can see it.

    Attributes:
        posted: what the worker has posted.
        messages: those shown, as the page would have them from what was posted.
        clock: milliseconds.
        settings: what requests are run with; all of its tools are offered.
    """

    def __init__(self, *answers, store=None, tools=(), **kwargs):
        self.store = store or MemoryTexts()
        self.engine, self.executor = scripted(*answers, **kwargs)
        self.posted, self.messages, self.clock, self._id = [], [], 0.0, 0
        self.chat = Chat(self._take, lambda: self.clock, Shelf(self.store), {tool.name: tool for tool in tools})
        self.settings = {**SETTINGS, "tools": [tool.name for tool in tools]}

    def _take(self, message):
        self.posted.append(protocol.decode(protocol.encode(message)))
        if isinstance(message, protocol.Shown):
            self.messages = self.messages[: message.first] + message.messages

    async def open(self, key=None):
        await self.chat.restore(key)
        self.chat.use(self.engine)
        return self

    def _request(self, kind, *arguments):
        self._id += 1
        request = kind(self._id, *arguments, self.settings)
        self.chat.begin(request)
        if kind is not protocol.Send:
            places = [message["id"] for message in self.messages]
            del self.messages[places.index(request.message) :]
        return self.chat.run(request)

    def send(self, text):
        return self._request(protocol.Send, text)

    def edit(self, place, text):
        return self._request(protocol.Edit, self.messages[place]["id"], text)

    def regenerate(self, place):
        return self._request(protocol.Regenerate, self.messages[place]["id"])

    def go_on(self, place):
        return self._request(protocol.Continue, self.messages[place]["id"])

    def retry(self, place):
        return self._request(protocol.Retry, self.messages[place]["id"])

    def decide(self, call, allowed=True):
        self.chat.decide(self._id, call, allowed=allowed)

    def stop(self):
        self.chat.cancel(self._id)

    def on(self, kind, act):
        """Act once, when the worker posts a message of a kind."""
        take = self._take

        def taken(message):
            take(message)
            if isinstance(message, kind):
                self.chat._post = take
                act()

        self.chat._post = taken

    def of_kind(self, *kinds):
        """What the worker has posted of these kinds."""
        return [message for message in self.posted if isinstance(message, kinds)]

    def texts(self):
        return [message["text"] for message in self.messages]

    @property
    def last(self):
        return self.posted[-1]

    async def settle(self):
        """Until everything is kept."""
        while self.chat._keeping is not None:
            await asyncio.sleep(0)


def visit(scenario, *answers, **kwargs):
    """Run a scenario with a page that is ready."""

    async def run():
        page = await Page(*answers, **kwargs).open()
        await scenario(page)
        await page.settle()
        return page

    return asyncio.run(run())
