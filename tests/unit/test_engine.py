import asyncio
import math

import numpy as np
import pytest

from pyruntime.engine import Engine
from pyruntime.errors import BusyError, ContextOverflowError, ParameterError, StoppedError, UnsupportedError
from pyruntime.events import (
    CallInvalid,
    CallReady,
    Delta,
    Finished,
    PrefillProgress,
    PromptReady,
    ReasoningDelta,
    TokenScored,
)
from pyruntime.formats.source import BytesSource
from pyruntime.sampling import SamplingParams
from tests.tiny_model import (
    CALL,
    IM_END,
    IM_START,
    PAD,
    TAG_TEMPLATE,
    THINK,
    TOOL,
    UNCALL,
    UNTHINK,
    ScriptedExecutor,
    open_tiny,
    scripted_engine,
    tiny_gguf,
)

GREEDY = SamplingParams(temperature=0)


def user(text):
    return [{"role": "user", "content": text}]


async def collect(engine, messages, params=GREEDY, **kwargs):
    return [event async for event in engine.chat(messages, params, **kwargs)]


def answer(engine, messages, params=GREEDY, **kwargs):
    """All events of one answer; the last one is `Finished`."""
    return asyncio.run(collect(engine, messages, params, **kwargs))


def test_events_come_in_order_and_every_visible_token_is_one_delta():
    engine, _ = scripted_engine("Hello")
    events = answer(engine, user("Hi"))
    kinds = [type(event) for event in events]
    assert kinds == [PromptReady, PrefillProgress, *[Delta] * 5, Finished]
    assert [event.text for event in events[2:-1]] == list("Hello")
    assert events[-1].reason == "stop"
    assert events[-1].text == "Hello"


def test_the_prompt_is_the_rendered_conversation_and_the_counts_say_so():
    engine, executor = scripted_engine("ok")
    finished = answer(engine, user("Hi"))[-1]
    prompt = [IM_START, *b"user\nHi", IM_END, *b"\n", IM_START, *b"assistant\n"]
    assert executor.tokens[: len(prompt)] == prompt
    assert (finished.usage.prompt_tokens, finished.usage.cached_tokens, finished.usage.new_tokens) == (
        len(prompt),
        0,
        2,
    )


def test_a_character_of_several_tokens_is_shown_when_it_is_complete():
    engine, _ = scripted_engine("é🙂")
    deltas = [event.text for event in answer(engine, user("Hi")) if isinstance(event, Delta)]
    assert deltas == ["é", "🙂"]


def test_an_unfinished_character_is_flushed_at_the_end():
    engine, _ = scripted_engine([*b"a", 0xF0, 0x9F])
    assert answer(engine, user("Hi"))[-1].text == "a\ufffd"


@pytest.mark.parametrize("stop_id", [IM_END, PAD])
def test_every_declared_stop_id_ends_the_answer(stop_id):
    engine, _ = scripted_engine([*b"ok", stop_id, *b"no"])
    finished = answer(engine, user("Hi"))[-1]
    assert (finished.text, finished.reason) == ("ok", "stop")


def test_a_control_token_that_ends_nothing_prints_nothing():
    engine, _ = scripted_engine([*b"a", TOOL, *b"b"])
    assert answer(engine, user("Hi"))[-1].text == "ab"


def test_a_stop_string_ends_the_answer_and_is_never_shown():
    engine, _ = scripted_engine("one STOP two")
    events = answer(engine, user("Hi"), SamplingParams(temperature=0, stop=("STOP",)))
    assert "".join(event.text for event in events if isinstance(event, Delta)) == events[-1].text == "one "
    assert events[-1].reason == "stop"


def test_text_held_for_a_stop_string_is_not_lost_when_the_answer_ends():
    engine, _ = scripted_engine("one ST")
    assert answer(engine, user("Hi"), SamplingParams(temperature=0, stop=("STOP",)))[-1].text == "one ST"


def test_max_tokens_ends_the_answer_with_length():
    engine, _ = scripted_engine("Hello")
    finished = answer(engine, user("Hi"), SamplingParams(temperature=0, max_tokens=2))[-1]
    assert (finished.text, finished.reason, finished.usage.new_tokens) == ("He", "length", 2)


def test_a_full_context_ends_the_answer_with_length_and_keeps_it():
    engine, executor = scripted_engine("x" * 100, context=30)
    finished = answer(engine, user("Hi"))[-1]
    assert finished.reason == "length"
    assert finished.usage.prompt_tokens + finished.usage.new_tokens == 31
    assert executor.length == 30


def test_a_prompt_without_room_for_an_answer_is_an_error_with_the_numbers():
    engine, executor = scripted_engine("x", context=30)
    with pytest.raises(ContextOverflowError, match=r"needs 51 tokens and the context has 30") as caught:
        answer(engine, user("a" * 31))
    assert (caught.value.needed, caught.value.have) == (51, 30)
    assert executor.log == []


def test_the_next_turn_computes_only_what_the_cache_does_not_hold():
    engine, executor = scripted_engine("One", "Two")
    answer(engine, user("Hi"))
    held = list(executor.tokens)
    events = answer(engine, [*user("Hi"), {"role": "assistant", "content": "One"}, *user("And?")])
    assert events[0].cached_tokens == len(held)
    computed = [ids for call, ids in executor.log if call != "forward" or len(ids) > 1]
    assert computed[1] == [IM_END, *b"\n", IM_START, *b"user\nAnd?", IM_END, *b"\n", IM_START, *b"assistant\n"]


def test_an_edited_earlier_message_cuts_the_cache_back_to_what_is_shared():
    engine, executor = scripted_engine("One", "Two")
    answer(engine, user("Hi there"))
    events = answer(engine, user("Hi you"))
    assert events[0].cached_tokens == len([IM_START, *b"user\nHi "])
    assert tuple(executor.tokens) == engine.kv_tokens


def test_the_same_prompt_again_computes_its_last_token_only():
    engine, _ = scripted_engine("One", "Two")
    first = answer(engine, user("Hi"))
    events = answer(engine, user("Hi"))
    assert events[0].cached_tokens == first[0].prompt_tokens - 1


def test_a_long_prompt_is_prefilled_in_chunks_that_report_progress():
    engine, _ = scripted_engine("ok")
    progress = [event for event in answer(engine, user("a" * 80)) if isinstance(event, PrefillProgress)]
    total = progress[-1].total
    assert [event.done for event in progress] == [32, 64, 96, total]


def test_cancel_during_decode_keeps_the_partial_answer_and_a_consistent_cache():
    engine, executor = scripted_engine("Hello", "Again")

    async def run():
        events = []
        async for event in engine.chat(user("Hi"), GREEDY):
            events.append(event)
            if isinstance(event, Delta) and event.text == "e":
                engine.cancel()
        return events

    finished = asyncio.run(run())[-1]
    assert (finished.reason, finished.text) == ("cancelled", "He")
    assert tuple(executor.tokens) == engine.kv_tokens
    assert answer(engine, user("Next"))[-1].text == "Again"


def test_cancel_during_prefill_ends_without_text():
    engine, executor = scripted_engine("Hello")

    async def run():
        events = []
        async for event in engine.chat(user("a" * 100), GREEDY):
            events.append(event)
            if isinstance(event, PrefillProgress):
                engine.cancel()
        return events

    events = asyncio.run(run())
    assert [type(event) for event in events] == [PromptReady, PrefillProgress, Finished]
    assert (events[-1].reason, events[-1].text) == ("cancelled", "")
    assert executor.length == 32 == len(engine.kv_tokens)


class StoppableExecutor(ScriptedExecutor):
    """One that another thread can stop: `stop_at` is the call that is stopped from outside."""

    stop_at, is_stopped = None, False

    def stop(self):
        self.is_stopped = True

    def resume(self):
        self.is_stopped = False

    def stop_word(self):
        return "the word"

    def _take(self, call, ids):
        if self.is_stopped or len(self.log) == self.stop_at:
            self.is_stopped = False
            raise StoppedError("stopped")
        super()._take(call, ids)


def test_the_next_token_is_begun_before_its_words_are_handed_out_and_none_that_will_not_be_computed():
    class Eager(ScriptedExecutor):
        def begin(self, token_id):
            self.log.append(("begin", [token_id]))

        def forward_candidates(self, ids, below, most):
            logits = self.forward(ids)
            return np.arange(self.vocab_size, dtype=np.int32), logits

    executor = Eager([[*b"Hi", IM_END], [*b"Hello", IM_END], [*b"Hello", IM_END]])
    engine = Engine(open_tiny(), executor)
    answer(engine, user("x"))
    calls = [(call, bytes(ids)) for call, ids in executor.log if len(ids) == 1]
    assert calls == [("begin", b"H"), ("forward", b"H"), ("begin", b"i"), ("forward", b"i")]
    executor.log.clear()
    answer(engine, user("y"), SamplingParams(temperature=0, max_tokens=2))
    assert [(call, bytes(ids)) for call, ids in executor.log if len(ids) == 1] == [("begin", b"H"), ("forward", b"H")]


def stoppable_engine(*answers):
    executor = StoppableExecutor([[*text.encode(), IM_END] for text in answers])
    return Engine(open_tiny(), executor), executor


@pytest.mark.parametrize(("stop_at", "text"), [(0, ""), (1, ""), (3, "He"), (4, "Hel")])
def test_a_computation_stopped_from_outside_ends_the_answer_as_cancel_does(stop_at, text):
    engine, executor = stoppable_engine("Hello", "Again")
    executor.stop_at = stop_at
    finished = answer(engine, user("a" * 40))[-1]
    assert (finished.reason, finished.text) == ("cancelled", text)
    assert tuple(executor.tokens) == engine.kv_tokens
    executor.stop_at = None
    executor._scripts = executor._scripts[-1:]
    assert answer(engine, user("Next"))[-1].text == "Again"


@pytest.mark.parametrize(("word", "turns"), [("the word", 3), (None, 88)])
def test_where_another_thread_can_stop_a_computation_the_event_loop_has_a_turn_only_now_and_then(word, turns):
    executor = StoppableExecutor([[*b"Hello you!", IM_END]])
    executor.stop_word = lambda: word
    ticks = iter(n / 100 for n in range(1000))  # a hundredth of a second for each look at the clock
    engine = Engine(open_tiny(), executor, clock=ticks.__next__)
    given = 0

    async def count_turns():
        nonlocal given
        while True:
            given += 1
            await asyncio.sleep(0)

    async def run():
        other = asyncio.ensure_future(count_turns())
        events = await collect(engine, user("Hi"))
        other.cancel()
        return events

    assert asyncio.run(run())[-1].text == "Hello you!"
    assert given == turns


def test_cancel_stops_what_is_being_computed_and_nothing_later():
    engine, executor = stoppable_engine("Hello", "Again")
    engine.cancel()
    assert not executor.is_stopped  # nothing runs that it could be about
    assert engine.stop_word() == "the word"

    async def run():
        async for event in engine.chat(user("Hi"), GREEDY):
            if isinstance(event, Delta):
                engine.cancel()
        return event

    assert asyncio.run(run()).reason == "cancelled"
    assert not executor.is_stopped  # it met no computation any more, and is taken back
    assert engine.logits([1]).shape[0] == 1
    assert answer(engine, user("Next"))[-1].reason == "stop"


def test_a_stop_that_met_nothing_does_not_reach_a_later_call_for_logits():
    engine, executor = stoppable_engine()
    executor.stop()
    assert engine.logits([1, 2]).shape == (2, engine.model.config.vocab_size)


def test_closing_an_engine_closes_an_executor_that_holds_something():
    closed = []

    class Closable(ScriptedExecutor):
        def close(self):
            closed.append(self)

    executor = Closable([])
    Engine(open_tiny(), executor).close()
    assert closed == [executor]
    Engine(open_tiny(), ScriptedExecutor([])).close()


def warming_engine(clock, **changes):
    executor = ScriptedExecutor([[0, 0] for _ in range(20)])
    return Engine(open_tiny(**changes), executor, clock=clock), executor


def test_warming_up_computes_a_while_and_leaves_an_empty_cache():
    engine, executor = warming_engine(iter(n / 20 for n in range(1000)).__next__)
    asyncio.run(engine.warm_up())
    assert [(call, len(ids)) for call, ids in executor.log] == [
        ("forward", 15),
        ("forward", 1),
        ("forward", 30),
        ("forward", 1),
    ]
    assert executor.log[0][1][:6] == [
        IM_START,
        *b"user\n",
    ]  # a conversation, so that template and tokenizer are used too
    assert executor.length == 0 == len(engine.kv_tokens)


def test_on_a_slow_machine_warming_up_takes_small_steps():
    engine, executor = warming_engine(iter(n / 10 for n in range(1000)).__next__)
    asyncio.run(engine.warm_up())
    assert {len(ids) for _, ids in executor.log} == {15, 1}


def test_a_template_that_needs_more_than_a_greeting_does_not_disturb_warming_up():
    engine, executor = warming_engine(
        iter(range(1000)).__next__, tokenizer__chat_template="{{ raise_exception('no') }}"
    )
    asyncio.run(engine.warm_up())
    assert executor.log == []


def test_a_stop_that_comes_while_warming_up_ends_that_and_breaks_nothing():
    """Whoever asks at once and stops at once writes the stop word before the answer has begun."""
    engine, executor = stoppable_engine("Hello")
    executor.stop()
    asyncio.run(engine.warm_up())
    assert (executor.log, executor.length, engine.kv_tokens) == ([], 0, ())
    assert answer(engine, user("Hi"))[-1].text == "Hello"


def test_a_request_ends_warming_up_and_a_used_cache_is_left_alone():
    engine, executor = scripted_engine("Hello")
    executor._scripts = [[0, 0], *executor._scripts]

    async def run():
        warming = asyncio.ensure_future(engine.warm_up())
        await asyncio.sleep(0)
        events = await collect(engine, user("Hi"))
        await warming
        return events

    assert asyncio.run(run())[-1].text == "Hello"
    assert [len(ids) for _, ids in executor.log[:3]] == [15, 1, 21]
    log = list(executor.log)
    asyncio.run(engine.warm_up())
    assert executor.log == log


def test_a_second_request_while_one_runs_is_refused_and_the_first_goes_on():
    engine, _ = scripted_engine("Hello")

    async def run():
        first = engine.chat(user("Hi"), GREEDY)
        events = [await anext(first)]
        with pytest.raises(BusyError):
            await anext(engine.chat(user("You"), GREEDY))
        with pytest.raises(BusyError):
            engine.logits([1])
        events.extend([event async for event in first])
        return events

    assert asyncio.run(run())[-1].text == "Hello"


def test_an_answer_that_is_abandoned_leaves_the_engine_usable():
    engine, _ = scripted_engine("Hello", "Again")

    async def run():
        events = engine.chat(user("Hi"), GREEDY)
        async for event in events:
            if isinstance(event, Delta):
                break
        await events.aclose()

    asyncio.run(run())
    assert answer(engine, user("Next"))[-1].text == "Again"


def test_a_failure_in_the_executor_reaches_the_caller_and_leaves_the_engine_usable():
    engine, executor = scripted_engine("Hello", "Again")
    executor.fail_after = 3
    with pytest.raises(RuntimeError, match="broke"):
        answer(engine, user("Hi"))
    assert tuple(executor.tokens) == engine.kv_tokens
    executor.fail_after = None
    assert answer(engine, user("Next"))[-1].text == "Again"


def test_a_model_without_a_template_says_that_it_cannot_chat():
    engine, _ = scripted_engine("x", tokenizer__chat_template=None)
    with pytest.raises(UnsupportedError, match="chat template"):
        answer(engine, user("Hi"))


def test_thinking_is_told_apart_and_is_no_part_of_the_answer():
    engine, _ = scripted_engine([THINK, *b"\nhm\n", UNTHINK, *b"\n\nYes"], tokenizer__chat_template=TAG_TEMPLATE)
    events = answer(engine, user("Hi"))
    assert "".join(event.text for event in events if isinstance(event, ReasoningDelta)) == "hm"
    assert "".join(event.text for event in events if isinstance(event, Delta)) == "Yes"
    assert (events[-1].text, events[-1].reasoning) == ("Yes", "hm")


def test_thinking_that_the_prompt_opened_is_thinking_from_the_first_token():
    engine, _ = scripted_engine([*b"hm", UNTHINK, *b"Yes"], tokenizer__chat_template=TAG_TEMPLATE)
    finished = answer(engine, user("Hi"), open_thinking=True)[-1]
    assert (finished.text, finished.reasoning) == ("Yes", "hm")


@pytest.mark.parametrize(
    ("budget", "thought"), [(0, ""), (3, "abc"), (4, "abcd"), (5, "abcde"), (6, "abcde"), (None, "abcde")]
)
def test_thinking_ends_when_its_budget_is_used_up_as_the_template_ends_it(budget, thought):
    end = [*b"\n", UNTHINK, *b"\n\n"]
    # The model goes on from what it is made to have said.
    is_cut = budget is not None and budget < len("abcde\n")
    thinking = [*b"abcde\n"][: budget if is_cut else None]
    script = [*thinking, *b"Yes"] if is_cut else [*thinking, UNTHINK, *b"\n\nYes"]
    engine, executor = scripted_engine(script, tokenizer__chat_template=TAG_TEMPLATE)
    params = SamplingParams(temperature=0, thinking_budget=budget)
    finished = answer(engine, user("Hi"), params, open_thinking=True)[-1]
    assert (finished.reasoning, finished.text) == (thought, "Yes")
    if is_cut:
        written = executor.tokens[finished.usage.prompt_tokens :]
        assert written[: len(thinking) + len(end)] == [*thinking, *end]
        assert finished.usage.new_tokens == len(thinking) + len(end) + 3


def test_the_budget_counts_thinking_that_the_model_opened_itself_and_no_other_token():
    engine, _ = scripted_engine([*b"Hm. ", THINK, *b"ab", *b"So."], tokenizer__chat_template=TAG_TEMPLATE)
    finished = answer(engine, user("Hi"), SamplingParams(temperature=0, thinking_budget=2))[-1]
    assert (finished.reasoning, finished.text) == ("ab", "Hm.So.")


def test_log_probabilities_are_told_of_every_token_of_the_answer_when_they_are_asked_for():
    engine, _ = scripted_engine([*"é!".encode()])
    events = answer(engine, user("Hi"), SamplingParams(temperature=0, logprobs=3))
    scored = [event.logprobs for event in events if isinstance(event, TokenScored)]
    assert [one.token_id for one in scored] == [*"é!".encode()]
    # One logit is 50 and the others are 0.
    assert scored[0].top[0] == (scored[0].token_id, pytest.approx(0, abs=1e-9))
    assert [round(value) for _, value in scored[0].top[1:]] == [-50, -50]
    assert [type(event) for event in events[2:-1]] == [TokenScored, TokenScored, Delta, TokenScored, Delta]
    assert not any(isinstance(event, TokenScored) for event in answer(scripted_engine("a")[0], user("Hi")))


def test_of_tokens_that_end_the_thinking_nothing_is_told():
    engine, _ = scripted_engine([*b"aYes"], tokenizer__chat_template=TAG_TEMPLATE)
    params = SamplingParams(temperature=0, thinking_budget=1, logprobs=0)
    events = answer(engine, user("Hi"), params, open_thinking=True)
    assert [e.logprobs.token_id for e in events if isinstance(e, TokenScored)] == [*b"aYes"]


def test_a_call_is_told_once_when_it_is_complete_and_its_raw_text_is_never_shown():
    script = [*b"Let me see.", CALL, *b'{"name": "now", "arguments": {"zone": "</call>"}}', UNCALL]
    engine, _ = scripted_engine(script, tokenizer__chat_template=TAG_TEMPLATE)
    events = answer(engine, user("Hi"), tools=[{"type": "function", "function": {"name": "now"}}])
    calls = [event.call for event in events if isinstance(event, CallReady)]
    assert [(call.name, call.arguments) for call in calls] == [("now", {"zone": "</call>"})]
    assert events[-1].text == "Let me see."


def test_a_call_of_a_tool_that_was_not_offered_is_told_as_invalid():
    engine, _ = scripted_engine([CALL, *b'{"name": "rm"}', UNCALL], tokenizer__chat_template=TAG_TEMPLATE)
    events = answer(engine, user("Hi"))
    assert [event.call.problem for event in events if isinstance(event, CallInvalid)] == ["unknown tool 'rm'"]


def test_thinking_inside_an_imported_answer_reaches_the_template_as_thinking():
    engine, executor = scripted_engine("ok", tokenizer__chat_template=TAG_TEMPLATE)
    history = [*user("Hi"), {"role": "assistant", "content": "<think>\nhm\n</think>\n\nYes"}, *user("And?")]
    answer(engine, history)
    assert executor.tokens.count(THINK) == executor.tokens.count(UNTHINK) == 1


def test_timings_come_from_the_clock_passed_in():
    engine, executor = scripted_engine("Hello")
    ticks = iter(range(1000))
    timed = Engine(engine.model, executor, clock=lambda: float(next(ticks)))
    timings = answer(timed, user("Hi"))[-1].timings
    # started 0, prompt ready 1, prefill done 2, first text 3, end 4
    assert timings.ttft_ms == 3000
    assert timings.prefill_tps == answer_prompt_tokens(user("Hi"))
    assert timings.decode_tps == 4


def answer_prompt_tokens(messages):
    engine, _ = scripted_engine("x")
    return answer(engine, messages)[0].prompt_tokens


def load(**kwargs):
    return asyncio.run(Engine.load(BytesSource(tiny_gguf(), "tiny.gguf"), **kwargs))


def test_a_real_file_is_loaded_with_progress_and_answers_reproducibly_from_a_seed():
    progress = []
    engine = load(on_progress=lambda done, total: progress.append((done, total)))
    assert progress[-1][0] == progress[-1][1] > 0
    params = SamplingParams(seed=3, max_tokens=8)
    first, second = answer(engine, user("Hi"), params)[-1], answer(load(), user("Hi"), params)[-1]
    assert first.text == second.text


def test_logits_have_one_row_per_id_and_do_not_depend_on_what_was_cached():
    engine = load()
    before = engine.logits([1, 2, 3])
    answer(engine, user("Hi"), SamplingParams(seed=1, max_tokens=3))
    assert before.shape == (3, engine.model.config.vocab_size)
    np.testing.assert_array_equal(before, engine.logits([1, 2, 3]))
    assert engine.kv_tokens == (1, 2, 3)


@pytest.mark.parametrize(
    ("context", "ok"), [(1, False), (257, False), (2.5, False), (True, False), (256, True), (16, True)]
)
def test_the_context_asked_for_must_lie_within_the_models(context, ok):
    if ok:
        assert load(context=context).context == context
    else:
        with pytest.raises(ParameterError, match="context"):
            load(context=context)


def test_an_unknown_executor_is_named():
    with pytest.raises(ParameterError, match="executor: 'gpu' is not allowed"):
        load(executor="gpu")


def test_greedy_decoding_equals_the_argmax_of_a_fresh_prefill():
    engine = load()
    finished = answer(engine, user("Hi"), SamplingParams(temperature=0, max_tokens=12))[-1]
    tokens = list(engine.kv_tokens)
    rows = engine.logits(tokens)
    prompt = finished.usage.prompt_tokens
    assert [int(row.argmax()) for row in rows[prompt - 1 : -1]] == tokens[prompt:]
    assert all(math.isfinite(x) for x in rows[-1])


def test_a_stop_that_came_too_late_ends_no_later_computation():
    engine, executor = stoppable_engine("Hello")
    executor.stop()  # from another thread, when the answer had just ended
    assert engine.logits([1, 2]).shape[0] == 2
