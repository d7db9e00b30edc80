"""Calls for tools with nothing chosen by the test but the weights: real engine, template, parser, tools."""

from __future__ import annotations

import asyncio

import pytest

from pyruntime.conversation import Options, Session
from pyruntime.engine import Engine
from pyruntime.formats.source import BytesSource
from pyruntime.sampling import SamplingParams
from pyruntime.tools import ToolRegistry
from pyruntime.tools.calculator import calculator_tool
from tests.conversation_lab import collect, path
from tests.speaking_model import speaking_gguf


@pytest.mark.parametrize(
    ("expression", "state", "result"),
    [("6*7", "done", "42"), ("1/0", "error", "ParameterError: expression: ")],
)
def test_a_model_asks_for_a_tool_and_answers_behind_the_result(expression, state, result):
    async def run():
        call = f'{{"name": "calculator", "arguments": {{"expression": "{expression}"}}}}'
        engine = await Engine.load(BytesSource(speaking_gguf(call, "So it is."), "speaker.gguf"), executor="numpy")
        options = Options(SamplingParams(temperature=0), ToolRegistry([calculator_tool()]))
        talk = Session(engine, options=options)
        await collect(talk.send("What is it?"))
        return talk

    talk = asyncio.run(run())
    assert [role for role, _ in path(talk)] == ["user", "assistant", "tool", "assistant"]
    _, asking, given, answer = talk.tree.path
    assert (given.state, given.text.startswith(result)) == (state, True)
    assert (asking.text, answer.text) == ("", "So it is.")
