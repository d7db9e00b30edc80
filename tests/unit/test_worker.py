"""The engine worker's words for the engine's events; its module, which only a browser can run, with stand-ins for it."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import sys
from types import ModuleType, SimpleNamespace
from typing import get_args

import protocol
import pytest

from pyruntime import events
from pyruntime.chat.tool_calls import InvalidToolCall, ToolCall

TIMINGS = events.Timings(ttft_ms=100.0, prefill_tps=50.0, decode_tps=None)
TOLD = [
    (events.PromptReady(42, 10), protocol.PromptReady(7, 42, 10, 1234.5)),
    (events.PrefillProgress(32, 42), protocol.Prefill(7, 32, 42, 1234.5)),
    (events.Delta("Hi", 5), protocol.Delta(7, "Hi", 1234.5)),
    (events.ReasoningDelta("Hm", 5), protocol.ReasoningDelta(7, "Hm", 1234.5)),
    (
        events.CallReady(ToolCall("f", {"x": "é"}, "raw")),
        protocol.ToolCall(7, "f", '{\n  "x": "é"\n}', None, "raw", 1234.5),
    ),
    (
        events.CallInvalid(InvalidToolCall("incomplete", "raw")),
        protocol.ToolCall(7, None, None, "incomplete", "raw", 1234.5),
    ),
    (
        events.Finished("length", "Hi", "Hm", events.Usage(42, 10, 2), TIMINGS),
        protocol.Finished(7, "length", "Hi", "Hm", 42, 10, 2, 50.0, None, 1234.5),
    ),
]


@pytest.fixture
def worker(monkeypatch, repo_root):
    """The worker's module, in a browser that has a clock and nothing else; `posted` holds what it posts."""
    posted = []
    stand_ins = {
        "js": {"performance": SimpleNamespace(timeOrigin=1200.0, now=lambda: 34.5)},
        "pyodide": {},
        "pyodide.code": {"run_js": lambda _code: posted.append},
        "pyscript": {"sync": SimpleNamespace()},
        "pyruntime.delivery.fetch_browser": {"BrowserFetcher": None},
        "pyruntime.delivery.obtain_browser": {"obtain_model": None},
    }
    for name, contents in stand_ins.items():
        module = ModuleType(name)
        vars(module).update(contents)
        monkeypatch.setitem(sys.modules, name, module)
    spec = importlib.util.spec_from_file_location("worker", repo_root / "web" / "worker.py")
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    loaded.posted = posted
    return loaded


@pytest.mark.parametrize(("event", "message"), TOLD, ids=lambda value: type(value).__name__)
def test_an_event_of_the_engine_becomes_the_message_of_that_name(worker, event, message):
    assert worker._told(7, event) == message
    worker._post(message)
    assert json.loads(worker.posted[-1]) == protocol.to_wire(message)


def test_the_page_has_a_message_for_every_event_of_the_engine():
    # Log-probabilities come only to who asks for them, and the page does not.
    assert {type(event) for event, _ in TOLD} == set(get_args(events.Event)) - {events.TokenScored}


@pytest.mark.parametrize(
    ("types", "words"),
    [
        ((), "wasm"),
        (("F16",), "wasm, F16 weights in 8 bits"),
        (("Q5_K", "Q6_K"), "wasm, Q5_K and Q6_K weights in 8 bits"),
    ],
)
def test_the_page_is_told_which_weights_are_not_kept_as_the_file_has_them(worker, types, words):
    assert worker._computing(SimpleNamespace(executor_name="wasm", in_8_bits=types)) == words


class SlowEngine:
    """An engine that answers "a" for ever, and says whether it was told to stop."""

    def __init__(self):
        self.is_cancelled = False

    def cancel(self):
        self.is_cancelled = True

    async def chat(self, _messages, _params):
        self.is_cancelled = False
        yield events.PromptReady(1, 0)
        while not self.is_cancelled:
            await asyncio.sleep(0)
            yield events.Delta("a", 1)
        yield events.Finished("cancelled", "", "", events.Usage(1, 0, 0), TIMINGS)


@pytest.mark.parametrize("turns", range(6))
def test_stop_takes_effect_however_soon_after_the_question_it_comes(worker, turns):
    async def run():
        handler = worker.Worker()
        handler._engine = SlowEngine()
        answering = handler.handle(protocol.encode(protocol.Chat(3, [{"role": "user", "content": "Hi"}], {})))
        for _ in range(turns):
            await asyncio.sleep(0)
        handler.handle(protocol.encode(protocol.Cancel(3)))
        await answering

    asyncio.run(run())
    deltas = [text for text in worker.posted if protocol.decode(text).__class__ is protocol.Delta]
    assert len(deltas) <= turns
    assert protocol.decode(worker.posted[-1]).reason == "cancelled"


def test_stop_of_an_older_answer_does_not_end_the_present_one(worker):
    async def run():
        handler = worker.Worker()
        handler._engine = SlowEngine()
        answering = handler.handle(protocol.encode(protocol.Chat(3, [{"role": "user", "content": "Hi"}], {})))
        handler.handle(protocol.encode(protocol.Cancel(2)))
        await asyncio.sleep(0)
        assert not handler._engine.is_cancelled
        handler.handle(protocol.encode(protocol.Cancel(3)))
        await answering

    asyncio.run(run())
