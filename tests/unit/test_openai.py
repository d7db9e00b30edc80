"""The façade of chat completions: shapes and streams, and whom the engine belongs to meanwhile."""

from __future__ import annotations

import asyncio
import gc
import json
from contextlib import aclosing

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyruntime import __version__, errors
from pyruntime.openai import APIConnectionError, AsyncOpenAI
from tests.openai_lab import ADD, CALLING, USER, ask, call, client_of, read, stream
from tests.tiny_model import CALL, THINK, UNCALL, UNTHINK, scripted_engine

# -------------------------------------------------------------------------------------------------------------- shapes


def shape(**properties):
    """An object with exactly these fields."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def maybe(schema):
    return {"anyOf": [{"type": "null"}, schema]}


def items(schema, **limits):
    return {"type": "array", "items": schema, **limits}


NULL, TEXT, NUMBER, COUNT = {"type": "null"}, {"type": "string"}, {"type": "number"}, {"type": "integer", "minimum": 0}
REASON = {"enum": ["stop", "length", "tool_calls"]}
TOP = {"token": TEXT, "logprob": NUMBER, "bytes": maybe(items(COUNT))}
LOGPROBS = maybe(shape(content=items(shape(**TOP, top_logprobs=items(shape(**TOP)))), refusal=NULL))
FUNCTION = shape(name=TEXT, arguments=TEXT)
TOOL_CALL = {"id": TEXT, "function": FUNCTION, "type": {"const": "function"}}
USAGE = shape(
    prompt_tokens=COUNT,
    completion_tokens=COUNT,
    total_tokens=COUNT,
    prompt_tokens_details=shape(cached_tokens=COUNT),
)
HEAD = {"id": TEXT, "created": COUNT, "model": TEXT, "system_fingerprint": TEXT, "service_tier": NULL}
MESSAGE = shape(
    role={"const": "assistant"},
    content=maybe(TEXT),
    reasoning_content=maybe(TEXT),
    tool_calls=maybe(items(shape(**TOOL_CALL), minItems=1)),
    refusal=NULL,
    annotations=NULL,
    audio=NULL,
    function_call=NULL,
)
COMPLETION = shape(
    **HEAD,
    object={"const": "chat.completion"},
    usage=USAGE,
    choices=items(
        shape(index={"const": 0}, message=MESSAGE, finish_reason=REASON, logprobs=LOGPROBS), minItems=1, maxItems=1
    ),
)
DELTA = shape(
    role=maybe({"const": "assistant"}),
    content=maybe(TEXT),
    reasoning_content=maybe(TEXT),
    tool_calls=maybe(items(shape(index=COUNT, **TOOL_CALL))),
    refusal=NULL,
    function_call=NULL,
)
CHUNK = shape(
    **HEAD,
    object={"const": "chat.completion.chunk"},
    usage=maybe(USAGE),
    choices=items(shape(index={"const": 0}, delta=DELTA, finish_reason=maybe(REASON), logprobs=LOGPROBS), maxItems=1),
)
ANSWERS = {
    "text": "Hello é🙂",
    "nothing": "",
    "thinking": [THINK, *b"hmm", UNTHINK, *b"so"],
    "a call": call(),
    "text and calls": [*b"Well. ", *call(), *call()],
}


@pytest.mark.parametrize("kind", ANSWERS)
def test_an_answer_has_the_shape_of_the_api(kind):
    client, _, _ = client_of(ANSWERS[kind], **CALLING)
    answer = ask(client, tools=[ADD], logprobs=True, top_logprobs=3)
    jsonschema.validate(answer.model_dump(), COMPLETION)
    assert json.loads(answer.model_dump_json()) == answer.model_dump()


@pytest.mark.parametrize("kind", ANSWERS)
def test_every_chunk_has_the_shape_of_the_api(kind):
    client, _, _ = client_of(ANSWERS[kind], **CALLING)
    chunks = stream(client, tools=[ADD], logprobs=True, stream_options={"include_usage": True})
    for chunk in chunks:
        jsonschema.validate(chunk.model_dump(), CHUNK)
    assert chunks[0].choices[0].delta.model_dump(exclude_none=True) == {"role": "assistant", "content": ""}
    assert [chunk.choices[0].finish_reason is None for chunk in chunks[:-2]] == [True] * (len(chunks) - 2)
    assert chunks[-2].choices[0].finish_reason is not None
    assert (chunks[-1].choices, [chunk.usage for chunk in chunks[:-1]]) == ([], [None] * (len(chunks) - 1))


def test_an_answer_says_who_gave_it_when_and_at_what_cost():
    client, engine, _ = client_of("Hello", "again")
    first, second = ask(client), ask(client)
    assert (first.id, second.id, first.created, first.model) == ("answer1", "answer2", 1234, "Tiny")
    assert first.system_fingerprint == f"pyruntime-{__version__}-scripted"
    prompt = len(engine.prompt(USER))
    assert first.usage.model_dump() == {
        "prompt_tokens": prompt,
        "completion_tokens": 5,
        "total_tokens": prompt + 5,
        "prompt_tokens_details": {"cached_tokens": 0},
    }
    assert second.usage.prompt_tokens_details.cached_tokens == prompt - 1


def test_ids_are_unlike_each_other_and_calls_have_those_that_every_template_takes():
    engine, _ = scripted_engine(call(), call(), **CALLING)
    client = AsyncOpenAI(engine)
    first, second = (ask(client, tools=[ADD]) for _ in range(2))
    assert first.id.startswith("chatcmpl-")
    ids = [answer.choices[0].message.tool_calls[0].id for answer in (first, second)]
    assert len({first.id, second.id, *ids}) == 4
    assert all(len(one) == 9 and one.isalnum() for one in ids)


def test_what_is_none_may_be_left_out_of_plain_data():
    client, _, _ = client_of("Hello")
    assert ask(client).choices[0].message.model_dump(exclude_none=True) == {"content": "Hello", "role": "assistant"}


def test_the_models_are_the_engines():
    client, _, _ = client_of()
    page = asyncio.run(client.models.list())
    model = {"id": "Tiny", "object": "model", "created": 1234, "owned_by": "pyruntime"}
    assert page.model_dump() == {"object": "list", "data": [model]}


# -------------------------------------------------------------------------------------------------------------- stream


@pytest.mark.parametrize("kind", ANSWERS)
def test_a_stream_says_what_the_whole_answer_says(kind):
    parameters = {"tools": [ADD], "logprobs": True, "top_logprobs": 2}
    (whole,) = ask(client_of(ANSWERS[kind], **CALLING)[0], **parameters).choices
    chunks = stream(client_of(ANSWERS[kind], **CALLING)[0], stream_options={"include_usage": True}, **parameters)
    choices = [choice for chunk in chunks for choice in chunk.choices]
    deltas = [choice.delta for choice in choices]
    assert "".join(delta.content or "" for delta in deltas) == (whole.message.content or "")
    assert "".join(delta.reasoning_content or "" for delta in deltas) == (whole.message.reasoning_content or "")
    calls = [one for delta in deltas for one in delta.tool_calls or ()]
    assert [one.index for one in calls] == list(range(len(calls)))
    assert [one.function for one in calls] == [one.function for one in whole.message.tool_calls or ()]
    scored = [token for choice in choices if choice.logprobs for token in choice.logprobs.content]
    assert scored == whole.logprobs.content
    assert choices[-1].finish_reason == whole.finish_reason
    assert len({(chunk.id, chunk.created) for chunk in chunks}) == 1


pieces = st.lists(
    st.sampled_from([*b'ab {}"\\,:\n', *"é🙂".encode(), 0xFF, THINK, UNTHINK, CALL, UNCALL]) | st.integers(0, 255),
    max_size=40,
)


@given(pieces, st.lists(st.text("ab é", min_size=1, max_size=3), max_size=2))
def test_joined_deltas_are_the_content(ids, stop):
    async def both():
        client, _, _ = client_of(ids, ids, **CALLING)
        chunks = await read(client, stop=stop)
        answer = await client.chat.completions.create(model="m", messages=USER, stop=stop)
        return chunks, answer.choices[0]

    chunks, whole = asyncio.run(both())
    deltas = [choice.delta for chunk in chunks for choice in chunk.choices]
    assert "".join(delta.content or "" for delta in deltas) == (whole.message.content or "")
    assert "".join(delta.reasoning_content or "" for delta in deltas) == (whole.message.reasoning_content or "")
    assert chunks[-1].choices[0].finish_reason == whole.finish_reason


def test_without_being_asked_for_no_chunk_has_the_usage():
    client, _, _ = client_of("Hi")
    assert [chunk.usage for chunk in stream(client)] == [None] * 4


@pytest.mark.parametrize("ending", ["aclosing", "async with", "close", "unread", "forgotten"])
def test_a_stream_that_is_broken_off_ends_the_computation_and_leaves_the_engine_usable(ending):
    client, engine, executor = client_of("a long answer", "a long answer")

    async def run():
        chunks = await client.chat.completions.create(model="m", messages=USER, stream=True)
        if ending == "aclosing":
            async with aclosing(chunks):
                assert [(await anext(chunks)).choices[0].delta.content for _ in range(3)] == ["", "a", " "]
        elif ending == "async with":
            async with chunks:
                async for _ in chunks:
                    break
        elif ending == "close":
            await anext(chunks)
            await anext(chunks)
            await chunks.close()
        elif ending == "unread":
            await chunks.aclose()
        else:
            del chunks
            gc.collect()
            while not engine.turns.is_free:
                await asyncio.sleep(0)
        if ending != "forgotten":
            assert [chunk async for chunk in chunks] == []
        computed = len(executor.log)
        for _ in range(5):
            await asyncio.sleep(0)
        assert len(executor.log) == computed < 13
        return await client.chat.completions.create(model="m", messages=USER)

    assert asyncio.run(run()).choices[0].message.content == "a long answer"
    assert list(engine.kv_tokens) == executor.tokens


def test_cancelling_the_task_that_waits_leaves_the_engine_usable():
    client, _, executor = client_of("a long answer", "next")

    async def run():
        task = asyncio.ensure_future(client.chat.completions.create(model="m", messages=USER))
        while len(executor.log) < 3:
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return await client.chat.completions.create(model="m", messages=USER)

    assert asyncio.run(run()).choices[0].message.content == "next"


def test_an_answer_that_somebody_else_stops_fails_and_is_not_taken_for_a_whole_one():
    client, engine, executor = client_of("a long answer", "a long answer", "next")
    executor.on_forward = lambda: engine.cancel() if len(executor.log) % 5 == 4 else None
    with pytest.raises(APIConnectionError, match="stopped before its end") as caught:
        ask(client)
    assert isinstance(caught.value, errors.StoppedError)
    with pytest.raises(APIConnectionError):
        stream(client)
    executor.on_forward = lambda: None
    assert ask(client).choices[0].message.content == "next"
