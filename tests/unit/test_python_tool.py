"""Python as a tool: what the model reads of a run, the worker's and the page's part in it, and what runs the code."""

from __future__ import annotations

import asyncio
import json
import sys

import protocol
import pytest
import sandbox_run
from ui.sandbox_link import SandboxLink
from worker_python import CodeRuns

from pyruntime.errors import SandboxError
from pyruntime.tools import ToolRegistry
from pyruntime.tools.python import LIMITS, Limits, Outcome, described, python_tool
from pyruntime.tools.registry import LONGEST_RESULT

SMALL = Limits(seconds=2, megabytes=64, characters=5)

# ------------------------------------------------------------------------------------------------------------ the tool


@pytest.mark.parametrize(
    ("outcome", "words"),
    [
        (Outcome("done", "", ""), "The code ran to its end. It printed nothing and has no value."),
        (Outcome("done", "hi\n", ""), "Output:\nhi"),
        (Outcome("done", "", "4"), "Value:\n4"),
        (Outcome("done", "hi\n", "'x'"), "Output:\nhi\n\nValue:\n'x'"),
        (Outcome("done", "12345", "12345"), "Output:\n12345\n\nValue:\n12345"),
        (Outcome("done", "123456", ""), "Output:\n12345\n[the rest is left out]"),
        (Outcome("done", "", "123456"), "Value:\n12345\n[the rest is left out]"),
        (Outcome("error", "hi", "no: x"), "Output:\nhi\n\nError:\nno: x"),
        (Outcome("error", "", "abcdef"), "Error:\n[the beginning is left out]\nbcdef"),
        (Outcome("memory", "", "Error"), "Error:\nError\n\nThe code may use 64 MB of memory."),
        (Outcome("time", "", ""), "The code was stopped because it ran longer than 2 seconds."),
        (
            Outcome("time", "1\n2\n3\n", ""),
            "Output:\n1\n2\n3\n[the rest is left out]\n\nThe code was stopped because it ran longer than 2 seconds.",
        ),
    ],
)
def test_an_outcome_is_put_into_words_of_bounded_length(outcome, words):
    assert described(outcome, SMALL) == words


def test_an_interpreter_that_broke_down_is_an_error_and_no_result():
    with pytest.raises(SandboxError, match="the code could not be run to its end: it w"):
        described(Outcome("broken", "", "it was gone" * 1000), SMALL)


def test_the_model_is_told_the_limits_and_a_person_is_asked():
    tool = python_tool(None, SMALL)
    assert (tool.name, tool.needs_approval) == ("python", True)
    assert "2 seconds and 64 MB" in tool.description


def test_the_code_is_run_as_it_is_and_the_longest_outcome_fits_into_a_result():
    ran = []

    async def run(code):
        ran.append(code)
        return Outcome("memory", "x" * 10**5, "y" * 10**5)

    registry = ToolRegistry([python_tool(run)])
    assert registry.fault("python", {"code": 1}) == "arguments.code: 1 is not of type string"
    assert registry.fault("python", {}) == "arguments: 'code' is missing"
    result = asyncio.run(registry.run("python", {"code": "1 +\n 1"}))
    assert ran == ["1 +\n 1"]
    assert 2 * LIMITS.characters < len(result) < LONGEST_RESULT


# ---------------------------------------------------------------------------------------------------------- the worker


def ran(run, ended="done", output="", text=""):
    return protocol.CodeRan(run, ended, output, text)


async def settle():
    for _ in range(5):
        await asyncio.sleep(0)


def test_the_page_is_asked_to_run_the_code_within_the_limits():
    async def scenario():
        posted = []
        runs = CodeRuns(posted.append)
        task = asyncio.ensure_future(runs.run("1 + 1"))
        await settle()
        assert posted == [protocol.RunCode(1, "1 + 1", LIMITS.seconds, LIMITS.megabytes, LIMITS.characters)]
        runs.ran(ran(1, "error", "hi", "no"))
        runs.ran(ran(1))
        assert await task == Outcome("error", "hi", "no")

    asyncio.run(scenario())


def test_pieces_of_code_that_are_asked_for_side_by_side_run_one_after_another():
    async def scenario():
        posted = []
        runs = CodeRuns(posted.append)
        first, second = (asyncio.ensure_future(runs.run(code)) for code in ("one", "two"))
        await settle()
        assert [message.code for message in posted] == ["one"]
        runs.ran(ran(2, text="of no run yet"))
        runs.ran(ran(1, text="1"))
        await settle()
        assert [message.code for message in posted] == ["one", "two"]
        runs.ran(ran(1, text="late"))
        assert not second.done()
        runs.ran(ran(2, text="2"))
        assert [(await task).text for task in (first, second)] == ["1", "2"]

    asyncio.run(scenario())


def test_a_run_that_is_cancelled_is_stopped_in_the_page_and_the_next_one_has_its_turn():
    async def scenario():
        posted = []
        runs = CodeRuns(posted.append)
        first, waits, last = (asyncio.ensure_future(runs.run(code)) for code in ("one", "two", "three"))
        await settle()
        waits.cancel()
        first.cancel()
        await settle()
        assert posted[1] == protocol.StopCode(1)
        assert [message.code for message in posted if isinstance(message, protocol.RunCode)] == ["one", "three"]
        runs.ran(ran(1, text="late"))
        runs.ran(ran(2, text="3"))
        assert (await last).text == "3"
        runs.ran(ran(2, text="again"))

    asyncio.run(scenario())


# ------------------------------------------------------------------------------------------------------------ the page


class Sandbox:
    """Stands in for the module `sandbox.mjs`: keeps what it is told."""

    def __init__(self):
        self.begun, self.closed = [], []

    async def module(self, address):
        assert address == "./sandbox.mjs"
        await asyncio.sleep(0)
        return self

    def start(self, request, tell):
        asked = json.loads(request)
        self.begun.append((asked["run"], tell))
        return lambda: self.closed.append(asked["run"])


def asked(run):
    return protocol.RunCode(run, "1", 10, 256, 4000)


def test_what_came_of_the_code_goes_back_to_the_worker():
    async def scenario():
        sandbox, posted = Sandbox(), []
        link = SandboxLink(sandbox.module, posted.append)
        link.receive(asked(1))
        await settle()
        ((run, tell),) = sandbox.begun
        tell(protocol.encode(ran(run, text="4")))
        assert posted == [ran(1, text="4")]
        link.receive(protocol.StopCode(1))
        assert sandbox.closed == [], "it has ended by itself"

    asyncio.run(scenario())


def test_a_stop_ends_the_run_and_nothing_more_is_said_of_it():
    async def scenario():
        sandbox, posted = Sandbox(), []
        link = SandboxLink(sandbox.module, posted.append)
        link.receive(asked(1))
        link.receive(protocol.StopCode(1))
        await settle()
        assert sandbox.begun == [], "it was stopped before it had begun"
        link.receive(asked(2))
        await settle()
        link.receive(protocol.StopCode(1))
        assert sandbox.closed == [], "that was another run"
        link.receive(protocol.StopCode(2))
        sandbox.begun[0][1](protocol.encode(ran(2)))
        assert (sandbox.closed, posted) == ([2], [])

    asyncio.run(scenario())


def test_the_worker_is_told_of_a_sandbox_that_does_not_arrive():
    async def scenario():
        async def missing(_address):
            raise OSError("no line")

        posted = []
        SandboxLink(missing, posted.append).receive(asked(1))
        await settle()
        assert posted == [ran(1, "broken", text="the sandbox could not be loaded: no line")]

    asyncio.run(scenario())


# ------------------------------------------------------------------------------------------------------- in the sandbox


@pytest.fixture
def run_code(monkeypatch):
    """`run_code(code)`: what the sandbox's Python says of a piece of code, with room for 400 characters."""
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
    return lambda code: asyncio.run(sandbox_run.run(code, 400))


@pytest.mark.parametrize(
    ("code", "value"),
    [
        ("", ""),
        ("x = 4", ""),
        ("None", ""),
        ("x = 4\nx * x", "16"),
        ("'é\\n'", "'é\\n'"),
        ("import asyncio\nawait asyncio.sleep(0, 'waited')", "'waited'"),
        ("for i in range(3): await __import__('asyncio').sleep(0)\ni", "2"),
        ("def f(): return g()\ndef g(): return 7\nf()", "7"),
        ("import pickle\nclass A: x = 5\npickle.loads(pickle.dumps(A())).x", "5"),
        ("__name__", "'__main__'"),
        ("import sys\nsys.exit()", ""),
        ("exit(0)", ""),
        ("'x' * 1000", "'" + 400 * "x"),
    ],
)
def test_the_value_of_the_last_expression_is_told(run_code, code, value):
    assert run_code(code) == ("done", value)


@pytest.mark.parametrize(
    ("code", "ended", "last"),
    [
        ("1 / 0", "error", "ZeroDivisionError: division by zero"),
        ("x = (", "error", "SyntaxError: '(' was never closed"),
        ("x = '\0'", "error", "SyntaxError: source code string cannot contain null bytes"),
        ("import sys\nsys.exit('no')", "error", "SystemExit: no"),
        ("raise KeyboardInterrupt", "error", "KeyboardInterrupt"),
        ("raise MemoryError", "memory", "MemoryError"),
        ("class A:\n    def __repr__(self): raise ValueError('no')\nA()", "error", "ValueError: no"),
        ("def f(): return f()\nf()", "error", "RecursionError: maximum recursion depth exceeded"),
    ],
)
def test_an_exception_is_told_by_the_end_of_its_traceback(run_code, code, ended, last):
    found, text = run_code(code)
    assert found == ended
    assert text.splitlines()[-1].startswith(last)
    assert len(text) <= 401


def test_a_traceback_begins_in_the_code_and_shows_its_lines(run_code):
    _, text = run_code("def half(x):\n    return x / 0\n\nhalf(1)")
    assert text.startswith('Traceback (most recent call last):\n  File "<python>", line 4, in <module>\n    half(1)\n')
    assert "line 2, in half\n    return x / 0\n" in text


def test_the_bridge_to_javascript_is_no_module_any_more(monkeypatch):
    modules = dict.fromkeys(("json", "js", "js.fetch", "pyodide", "pyodide.ffi", "pyodide_js", "_pyodide_core"), sys)
    monkeypatch.setattr(sys, "modules", modules)
    sandbox_run.close_the_bridge()
    assert [name for name, module in modules.items() if module is sys] == ["json"]
    for name in ("js", "js.fetch", "pyodide", "pyodide.ffi", "_pyodide", "_pyodide_core"):
        assert modules[name] is None, name
    assert modules["pyodide_js._api"].config.enableRunUntilComplete, "asyncio.run asks for it"
