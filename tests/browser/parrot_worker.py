"""Stands in for `web/worker.py`: a worker that answers each message with the message itself, without any model.

Commands in the message: "/flood TEXT" says it four characters at a time, as fast as it can; "/slow TEXT" one character
at a time, and waits to be stopped; "/drip TEXT" at once, and then dots until it is stopped; "/fail TEXT" fails after
having said it (nothing if there is none); "/wait" says nothing until it is stopped.
"""

import asyncio

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
        await answer(message.id, message.messages[-1]["content"])


async def answer(id, text):
    command, _, rest = text.partition(" ") if text.startswith("/") else ("", "", text)
    post(protocol.PromptReady(id, len(text), 0, now()))
    post(protocol.Prefill(id, len(text), len(text), now()))
    said = ""
    if command != "/wait":
        size = {"/flood": 4, "/slow": 1}.get(command, len(rest) or 1)
        for start in range(0, len(rest), size):
            if id in stopped:
                break
            said += rest[start : start + size]
            post(protocol.Delta(id, rest[start : start + size], now()))
            await asyncio.sleep(0.01 if command == "/slow" else 0)
    if command == "/fail":
        post(protocol.Failed(id, "ContextOverflowError", "prompt: too long. Shorten it", now()))
        return
    while command in ("/slow", "/drip", "/wait") and id not in stopped:
        if command == "/drip":
            said += "."
            post(protocol.Delta(id, ".", now()))
        await asyncio.sleep(0.01)
    reason = "cancelled" if id in stopped else "stop"
    post(protocol.Finished(id, reason, said, len(text), 0, len(said), 100.0, 50.0, now()))


sync.handle = handle
