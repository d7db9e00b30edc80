"""Computing, while nobody waits, what is certain of the next prompt."""

import asyncio

import pytest

from pyruntime.conversation import Options
from pyruntime.errors import BusyError
from pyruntime.events import Delta, PromptReady
from tests.conversation_lab import GREEDY, collect, run, scripted, session, shown_text
from tests.tiny_model import IM_END, IM_START, THINK, UNTHINK

# Every prompt of the next question begins with this.
AFTER_HI = [IM_START, *b"user\nHi", IM_END, *b"\n", IM_START, *b"assistant\nYes", IM_END, *b"\n", IM_START, *b"user\n"]


def cached(events):
    return next(event.cached_tokens for event in events if isinstance(event, PromptReady))


def test_behind_an_answer_the_certain_part_of_the_next_prompt_is_computed_and_used():
    talk, _ = session([THINK, "\nhm\n", UNTHINK, "\n\nYes"], "Sure.", look_ahead=True)

    async def two_questions():
        await collect(talk.send("Hi"))
        await talk.rest()
        return talk.engine.kv_tokens, await collect(talk.send("And?"))

    held, events = asyncio.run(two_questions())
    # The thinking is gone from it, as the template wants.
    assert list(held) == AFTER_HI
    assert cached(events) == len(AFTER_HI)
    assert shown_text(events) == "Sure."


def test_a_question_that_comes_meanwhile_is_answered_first_and_uses_what_is_there():
    talk, executor = session([THINK, "\nhm\n", UNTHINK, "\n\nYes"], "Sure.", look_ahead=True)

    async def at_once():
        await collect(talk.send("Hi"))
        await asyncio.sleep(0)  # one step of it
        before = len(executor.log)
        events = await collect(talk.send("And?"))
        return events, executor.log[before:]

    events, computed = asyncio.run(at_once())
    assert shown_text(events) == "Sure."
    assert 0 < cached(events) < len(AFTER_HI)
    # Not one step of it is computed once the question is there: the rest of the prompt, and then token by token.
    assert [len(ids) for _, ids in computed[1:]] == [1] * 5


def test_without_being_asked_to_nothing_is_computed():
    talk, executor = session("Yes")

    async def one_question():
        await collect(talk.send("Hi"))
        before = len(executor.log)
        await talk.rest()
        return len(executor.log) - before

    assert asyncio.run(one_question()) == 0


def test_where_turns_would_have_to_be_left_out_nothing_is_certain():
    talk, executor = session("x" * 30, context=75, options=Options(params=GREEDY, reserve=20), look_ahead=True)

    async def one_question():
        await collect(talk.send("Hi"))
        before = len(executor.log)
        await talk.rest()
        return len(executor.log) - before

    assert asyncio.run(one_question()) == 0


def test_a_fault_while_looking_ahead_is_told_by_the_next_request_alone():
    talk, executor = session("Yes", "Sure.", look_ahead=True)

    async def with_a_fault():
        await collect(talk.send("Hi"))
        executor.fail_after = len(executor.log)
        await talk.rest()
        assert talk.engine.kv_tokens == tuple(executor.tokens)
        executor.fail_after = None
        return await collect(talk.send("And?"))

    assert shown_text(asyncio.run(with_a_fault())) == "Sure."


def test_the_beginning_of_a_prompt_is_computed_in_small_steps_and_what_is_there_is_not_cut():
    engine, executor = scripted("ok")
    prompt = engine.prompt([{"role": "user", "content": "a" * 20}])
    assert asyncio.run(engine.prefill(prompt[:30])) == 30
    assert [len(ids) for _, ids in executor.log] == [8, 8, 8, 6]
    assert asyncio.run(engine.prefill(prompt[:10])) == 10
    assert len(engine.kv_tokens) == 30


def test_nothing_is_computed_ahead_while_an_answer_is_written():
    talk, _ = session("Hello")

    def on_event(event):
        if isinstance(event, Delta):
            with pytest.raises(BusyError):
                talk.engine.prefill([1]).send(None)

    run(talk.send("Hi"), on_event)
