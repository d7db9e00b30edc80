"""What the tests of the chat-completions façade have in common: clients of tiny engines, and asking them."""

from __future__ import annotations

import asyncio
from itertools import count

from pyruntime.engine import Engine
from pyruntime.formats.source import BytesSource
from pyruntime.openai import AsyncOpenAI
from tests.tiny_model import CALL, TAG_TEMPLATE, UNCALL, scripted_engine, tiny_gguf

USER = [{"role": "user", "content": "Hi"}]
ADD = {
    "type": "function",
    "function": {"name": "add", "description": "Adds.", "parameters": {"type": "object", "properties": {}}},
}
CALLING = {"tokenizer__chat_template": TAG_TEMPLATE}


def call(text='{"name": "add", "arguments": {"a": 1, "b": "é"}}'):
    return [CALL, *text.encode(), UNCALL]


def client_of(*answers, context=256, **changes):
    """(client, engine, executor) with a clock that stands still and ids that count."""
    engine, executor = scripted_engine(*answers, context=context, **changes)
    numbers = count(1)
    return AsyncOpenAI(engine, clock=lambda: 1234.9, new_id=lambda kind: f"{kind}{next(numbers)}"), engine, executor


def ask(client, messages=USER, **parameters):
    return asyncio.run(client.chat.completions.create(model="tiny", messages=messages, **parameters))


async def read(client, messages=USER, **parameters):
    return [
        c async for c in await client.chat.completions.create(model="m", messages=messages, stream=True, **parameters)
    ]


def stream(client, messages=USER, **parameters):
    return asyncio.run(read(client, messages, **parameters))


def tiny():
    return asyncio.run(Engine.load(BytesSource(tiny_gguf(), "tiny.gguf"), executor="numpy"))
