"""What the façade of chat completions refuses, by which name, and with which error."""

from __future__ import annotations

import asyncio

import pytest

from pyruntime import errors
from pyruntime.conversation import Session
from pyruntime.openai import (
    APIConnectionError,
    APIError,
    APIStatusError,
    BadRequestError,
    InternalServerError,
    OpenAIError,
    RateLimitError,
)
from tests.openai_lab import ADD, CALLING, USER, ask, client_of
from tests.tiny_model import IM_END


def refused(client, kind=BadRequestError, messages=USER, **parameters):
    with pytest.raises(kind) as caught:
        ask(client, messages, **parameters)
    return caught.value


UNSUPPORTED = {
    **dict.fromkeys(("audio", "function_call", "functions", "metadata", "prediction", "reasoning_effort"), 1),
    **dict.fromkeys(("user", "verbosity", "web_search_options", "timeout", "extra_headers", "extra_query"), 1),
    "temprature": 0.5,
}
VALUES = [
    ("n", 2, "n", "unsupported_value"),
    ("n", True, "n", "unsupported_value"),
    ("response_format", {"type": "json_object"}, "response_format", "unsupported_value"),
    ("modalities", ["text", "audio"], "modalities", "unsupported_value"),
    ("parallel_tool_calls", False, "parallel_tool_calls", "unsupported_value"),
    ("store", True, "store", "unsupported_value"),
    ("service_tier", "flex", "service_tier", "unsupported_value"),
    ("tool_choice", "required", "tool_choice", "unsupported_value"),
    ("tool_choice", {"type": "function", "function": {"name": "add"}}, "tool_choice", "unsupported_value"),
    ("temperature", -1, "temperature", "invalid_value"),
    ("temperature", "hot", "temperature", "invalid_value"),
    ("top_p", 1.5, "top_p", "invalid_value"),
    ("top_k", -1, "top_k", "invalid_value"),
    ("min_p", 2, "min_p", "invalid_value"),
    ("presence_penalty", 1000, "presence_penalty", "invalid_value"),
    ("frequency_penalty", "no", "frequency_penalty", "invalid_value"),
    ("seed", -1, "seed", "invalid_value"),
    ("thinking_budget", -1, "thinking_budget", "invalid_value"),
    ("stop", 5, "stop", "invalid_value"),
    ("stop", [""], "stop", "invalid_value"),
    ("max_tokens", 0, "max_tokens", "invalid_value"),
    ("max_completion_tokens", 1.5, "max_completion_tokens", "invalid_value"),
    ("logit_bias", [1], "logit_bias", "invalid_value"),
    ("logit_bias", {"x": 1}, "logit_bias", "invalid_value"),
    ("logit_bias", {"²": 1}, "logit_bias", "invalid_value"),
    ("logit_bias", {264: 1}, "logit_bias", "invalid_value"),
    ("logit_bias", {3: "much"}, "logit_bias[3]", "invalid_value"),
    ("logprobs", 3, "logprobs", "invalid_value"),
    ("top_logprobs", 3, "top_logprobs", "invalid_value"),
    ("top_logprobs", 21, "top_logprobs", "invalid_value"),
    ("tools", {}, "tools", "invalid_value"),
    ("tools", [1], "tools[0]", "invalid_value"),
    ("tools", [ADD, {"type": "web_search"}], "tools[1].type", "unsupported_value"),
    ("tools", [{"type": "function"}], "tools[0].function", "invalid_value"),
    ("tools", [{"type": "function", "function": {"name": ""}}], "tools[0].function", "invalid_value"),
    (
        "tools",
        [{"type": "function", "function": {"name": "f", "parameters": 1}}],
        "tools[0].function.parameters",
        "invalid_value",
    ),
    (
        "tools",
        [{"type": "function", "function": {"name": "f", "strict": True}}],
        "tools[0].function.strict",
        "unsupported_value",
    ),
    ("stream_options", {"include_usage": True}, "stream_options", "invalid_value"),
    ("extra_body", 1, "extra_body", "invalid_value"),
    ("extra_body", {"best_of": 2}, "best_of", "unsupported_parameter"),
    ("enable_thinking", "yes", "enable_thinking", "invalid_value"),
    ("chat_template_kwargs", 1, "chat_template_kwargs", "invalid_value"),
    ("chat_template_kwargs", {"messages": []}, "chat_template_kwargs", "invalid_value"),
    ("chat_template_kwargs", {"self": 1}, "chat_template_kwargs", "invalid_value"),
    ("stream", "yes", "stream", "invalid_value"),
]


@pytest.mark.parametrize("name", UNSUPPORTED)
def test_a_parameter_that_is_not_supported_is_refused_by_name(name):
    client, _, executor = client_of("Hello")
    error = refused(client, **{name: UNSUPPORTED[name]})
    assert (error.status_code, error.param, error.code) == (400, name, "unsupported_parameter")
    assert str(error).startswith(f"{name}: ")
    assert executor.log == []


@pytest.mark.parametrize(("name", "value", "param", "code"), VALUES)
def test_a_value_that_cannot_be_is_refused_by_name(name, value, param, code):
    client, _, executor = client_of("Hello", **CALLING)
    error = refused(client, **{name: value})
    assert (error.status_code, error.type) == (400, "invalid_request_error")
    assert (error.param, error.code) == (param, code)
    assert error.message == str(error)
    assert error.message.startswith(f"{param}: ")
    assert error.body == {"message": error.message, "type": error.type, "param": param, "code": code}
    assert executor.log == []


def test_parameters_that_contradict_each_other_are_refused():
    client, _, _ = client_of("Hello")
    assert refused(client, max_tokens=3, max_completion_tokens=4).param == "max_tokens"


@pytest.mark.parametrize(
    ("options", "param"),
    [(1, "stream_options"), ({"include_usage": 1}, "stream_options.include_usage"), ({"x": 1}, "stream_options.x")],
)
def test_options_of_a_stream_are_refused_by_name(options, param):
    client, _, _ = client_of("Hello")
    assert refused(client, stream=True, stream_options=options).param == param


def test_a_name_of_a_model_has_to_be_one():
    client, _, _ = client_of("Hello")
    for model in ("", 5, None):
        with pytest.raises(BadRequestError) as caught:
            asyncio.run(client.chat.completions.create(model=model, messages=USER))
        assert caught.value.param == "model"


def assistant(**fields):
    return {"role": "assistant", "content": "", **fields}


def called(function, **fields):
    return assistant(tool_calls=[{"id": "x", "type": "function", "function": function, **fields}])


IMAGE = [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": "data:,"}}]
MESSAGES = [
    ([], "messages"),
    ("Hi", "messages"),
    (USER[0], "messages"),
    (None, "messages"),
    (["Hi"], "messages[0]"),
    ([{"content": "Hi"}], "messages[0].role"),
    ([{"role": "function", "content": "Hi", "name": "f"}], "messages[0].role"),
    ([{"role": ["user"], "content": "Hi"}], "messages[0].role"),
    ([{"role": "user"}], "messages[0].content"),
    ([{"role": "user", "content": 5}], "messages[0].content"),
    ([{"role": "user", "content": ["a"]}], "messages[0].content[0]"),
    ([{"role": "user", "content": IMAGE}], "messages[0].content[1].type"),
    ([{"role": "user", "content": [{"type": "text"}]}], "messages[0].content[0].text"),
    ([{"role": "user", "content": "Hi", "tool_calls": [1]}], "messages[0].tool_calls"),
    ([assistant(audio={"id": "x"})], "messages[0].audio"),
    ([assistant(refusal="no")], "messages[0].refusal"),
    ([assistant(tool_calls=5)], "messages[0].tool_calls"),
    ([assistant(tool_calls=[5])], "messages[0].tool_calls[0]"),
    ([called({"name": "f", "arguments": "{}"}, type="custom")], "messages[0].tool_calls[0]"),
    ([called({"name": "f", "arguments": "{}"}, id=None)], "messages[0].tool_calls[0].id"),
    ([called({"arguments": "{}"})], "messages[0].tool_calls[0].function.name"),
    ([called({"name": "f", "arguments": {}})], "messages[0].tool_calls[0].function.arguments"),
    ([called({"name": "f", "arguments": "{"})], "messages[0].tool_calls[0].function.arguments"),
    ([called({"name": "f", "arguments": "[1]"})], "messages[0].tool_calls[0].function.arguments"),
    ([called({"name": "f", "arguments": "{} {}"})], "messages[0].tool_calls[0].function.arguments"),
    ([called({"name": "f", "arguments": "[" * 9999})], "messages[0].tool_calls[0].function.arguments"),
    ([*USER, {"role": "tool", "content": "3"}], "messages[1].tool_call_id"),
    ([*USER, {"role": "tool", "content": "3", "tool_call_id": "y"}], "messages[1].tool_call_id"),
]


@pytest.mark.parametrize(("messages", "param"), MESSAGES)
def test_a_message_that_cannot_be_given_to_the_model_is_refused_by_its_place(messages, param):
    client, _, executor = client_of("Hello", **CALLING)
    error = refused(client, messages=messages)
    assert (error.param, error.status_code) == (param, 400)
    assert str(error).startswith(f"{param}: ")
    assert executor.log == []


@pytest.mark.parametrize("streamed", [False, True])
def test_a_conversation_that_is_too_long_is_refused_with_the_numbers(streamed):
    client, _, _ = client_of("Hello", context=64)
    error = refused(client, messages=[{"role": "user", "content": "x" * 100}], stream=streamed)
    assert (error.code, error.param, error.status_code) == ("context_length_exceeded", "messages", 400)
    assert "the context has 64" in error.message
    assert isinstance(error, BadRequestError)
    assert ask(client).choices[0].message.content == "Hello"


@pytest.mark.parametrize("holder", ["a stream", "the engine itself", "a conversation"])
def test_a_busy_engine_refuses_at_once_and_its_answer_goes_on(holder):
    client, engine, _ = client_of("first", "second")

    async def begin():
        if holder == "a stream":
            return await client.chat.completions.create(model="m", messages=USER, stream=True)
        events = engine.chat(USER) if holder == "the engine itself" else Session(engine).send("Hi")
        await anext(events)
        return events

    async def run():
        answer = await begin()
        for streamed in (False, True):
            with pytest.raises(RateLimitError) as caught:
                await client.chat.completions.create(model="m", messages=USER, stream=streamed)
            assert (caught.value.status_code, caught.value.code) == (429, "rate_limit_exceeded")
        last = [part async for part in answer][-1]
        return last, await client.chat.completions.create(model="m", messages=USER)

    last, second = asyncio.run(run())
    if holder == "a stream":
        assert last.choices[0].finish_reason == "stop"
    assert second.choices[0].message.content == "second"


def test_a_conversation_waits_for_a_stream_to_end():
    client, engine, _ = client_of("first", "second")

    async def run():
        stream = await client.chat.completions.create(model="m", messages=USER, stream=True)
        session = Session(engine, queue=True)

        async def talk():
            return [event async for event in session.send("Hi")]

        talking = asyncio.ensure_future(talk())
        text = "".join([chunk.choices[0].delta.content or "" async for chunk in stream])
        await talking
        return text, session.tree.path[-1].text

    assert asyncio.run(run()) == ("first", "second")


def test_what_the_template_refuses_and_a_model_without_one_are_bad_requests():
    strict = "{{ raise_exception('only users speak') }}"
    error = refused(client_of("x", tokenizer__chat_template=strict)[0])
    assert (error.param, "only users speak" in error.message) == ("messages", True)
    error = refused(client_of("x", tokenizer__chat_template=None)[0])
    assert (error.param, "no chat template" in error.message) == ("model", True)
    error = refused(client_of("x")[0], tools=[ADD])
    assert (error.param, "no way of asking for tools" in error.message) == ("model", True)


def test_a_failure_of_the_runtime_is_a_failure_of_the_server():
    client, _, executor = client_of("Hello", "Hello")

    def fail():
        raise errors.OutOfMemoryError("no memory is left")

    executor.on_forward = fail
    error = refused(client, InternalServerError)
    assert (error.status_code, str(error)) == (500, "no memory is left")
    executor.on_forward = lambda: None
    assert ask(client).choices[0].message.content == "Hello"


def test_errors_belong_to_the_apis_family_and_to_the_runtimes():
    assert issubclass(OpenAIError, errors.TinyPyLMError)
    for kind, others in {
        BadRequestError: (APIStatusError, ValueError),
        RateLimitError: (APIStatusError, errors.BusyError),
        InternalServerError: (APIStatusError,),
        APIConnectionError: (APIError, errors.StoppedError),
    }.items():
        assert all(issubclass(kind, other) for other in (*others, APIError, OpenAIError))


def test_typed_text_stays_text():
    """The façade takes the engine's own road: no message becomes a control token."""
    client, _, executor = client_of("ok")
    prompt = ask(client, [{"role": "user", "content": "<|im_end|>"}]).usage.prompt_tokens
    assert executor.tokens[:prompt].count(IM_END) == 1
