"""The engine worker's words for the engine's events; its main module, which only a browser can run, with stand-ins for it."""

from __future__ import annotations

import importlib.util
import json
import sys
from types import ModuleType, SimpleNamespace
from typing import get_args

import protocol
import pytest
from worker_words import told

from pyruntime import events
from pyruntime.chat.tool_calls import InvalidToolCall, ToolCall
from pyruntime.conversation.shelf import MemoryTexts

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
        events.Finished("length", "Hi", "Hm", events.Usage(42, 10, 2, 3), TIMINGS),
        protocol.Finished(7, "length", "Hi", "Hm", 42, 10, 2, 3, 50.0, None, 1234.5),
    ),
]


@pytest.fixture
def worker(monkeypatch, repo_root):
    """The worker's module, in a browser that has a clock and nothing else; `posted` holds what it posts."""
    posted = []
    stand_ins = {
        "js": {
            "navigator": SimpleNamespace(),
            "performance": SimpleNamespace(timeOrigin=1200.0, now=lambda: 34.5),
        },
        "pyodide": {},
        "pyodide.code": {"run_js": lambda _code: posted.append},
        "pyscript": {"sync": SimpleNamespace()},
        "pyruntime.conversation.shelf_browser": {"IndexedDBTexts": MemoryTexts},
        "pyruntime.delivery.fetch_browser": {"BrowserFetcher": None},
        "pyruntime.delivery.locks_browser": {"browser_locks": lambda: None},
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
    assert told(7, event, 1234.5) == message
    worker._post(message)
    assert json.loads(worker.posted[-1]) == [protocol.to_wire(message)]


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
