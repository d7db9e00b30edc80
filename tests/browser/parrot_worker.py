"""Stands in for `web/worker.py`: a worker that answers each message with the message itself, without any model.

Commands in the message: "/flood TEXT" says it four characters at a time, as fast as it can; "/slow TEXT" one character
at a time, and waits to be stopped; "/drip TEXT" at once, and then dots until it is stopped; "/fail TEXT" fails after
having said it (nothing if there is none); "/wait" says nothing until it is stopped; "/think THOUGHT|TEXT" thinks before
it says the text, and if there is none, thinks until it is stopped; "/call RAW|TEXT" says the text and makes a call that
is not valid; "/valid ARGUMENTS" makes one that is; "/history" says what it was sent.
"""

import asyncio
import json

import js
import protocol
from pyodide.code import run_js
from pyscript import sync

post_text = run_js("(text) => postMessage(text)")
stopped = set()


def post(message):
    post_text(protocol.encode(message))


def now():
    return js.performance.timeOrigin + js.performance.now()


async def handle(text):
    message = protocol.decode(text)
    if isinstance(message, protocol.Load):
        post(protocol.Ready("parrot", message.executor, message.context or 128, now()))
    elif isinstance(message, protocol.Cancel):
        stopped.add(message.id)
    else:
        await Answer(message).run()


class Answer:
    def __init__(self, request):
        self.id, self.request, self.said, self.thought = request.id, request, "", ""

    async def run(self):
        text = self.request.messages[-1]["content"]
        command, _, rest = text.partition(" ") if text.startswith("/") else ("", "", text)
        post(protocol.PromptReady(self.id, len(text), 0, now()))
        post(protocol.Prefill(self.id, len(text), len(text), now()))
        await getattr(self, command.replace("/", "do_") or "say")(rest)
        if command == "/fail":
            post(protocol.Failed(self.id, "ContextOverflowError", "prompt: too long. Shorten it", now()))
            return
        reason = "cancelled" if self.id in stopped else "stop"
        tokens = len(self.said) + len(self.thought)
        post(protocol.Finished(self.id, reason, self.said, self.thought, len(text), 0, tokens, 100.0, 50.0, now()))

    async def say(self, text, size=1_000_000, pause=0):
        for start in range(0, len(text), size):
            if self.id in stopped:
                break
            self.said += text[start : start + size]
            post(protocol.Delta(self.id, text[start : start + size], now()))
            await asyncio.sleep(pause)

    async def until_stopped(self, do=lambda: None):
        while self.id not in stopped:
            do()
            await asyncio.sleep(0.01)

    def think(self, text):
        self.thought += text
        post(protocol.ReasoningDelta(self.id, text, now()))

    do_fail = say

    async def do_flood(self, text):
        await self.say(text, 4)

    async def do_slow(self, text):
        await self.say(text, 1, 0.01)
        await self.until_stopped()

    async def do_drip(self, text):
        await self.say(text)

        def drip():
            self.said += "."
            post(protocol.Delta(self.id, ".", now()))

        await self.until_stopped(drip)

    async def do_wait(self, _text):
        await self.until_stopped()

    async def do_think(self, text):
        thought, _, said = text.partition("|")
        for start in range(0, len(thought), 4):
            self.think(thought[start : start + 4])
            await asyncio.sleep(0)
        if said:
            await self.say(said)
        else:
            await self.until_stopped(lambda: self.think("."))

    async def do_call(self, text):
        raw, _, said = text.partition("|")
        await self.say(said)
        post(protocol.ToolCall(self.id, None, None, "unknown tool 'f'", raw, now()))

    async def do_valid(self, arguments):
        post(protocol.ToolCall(self.id, "f", arguments, None, "raw", now()))

    async def do_history(self, _text):
        await self.say("```json\n" + json.dumps(self.request.messages, ensure_ascii=False) + "\n```")


sync.handle = handle
