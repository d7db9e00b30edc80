"""The state machine of a conversation: legal transitions only, and a whole tree and a usable engine after any failure."""

import asyncio
import inspect
import re

import pytest

from pyruntime.chat.tree import MOST_CALLS, Tree
from pyruntime.conversation import TRANSITIONS, Options, State
from pyruntime.conversation.events import MessageAdded, PromptFitted
from pyruntime.conversation.states import IllegalTransitionError, Machine, StateChanged
from pyruntime.errors import BusyError, ClosedError, ParameterError, TemplateError, UnsupportedError
from pyruntime.events import Delta, Finished, PrefillProgress, TokenScored
from pyruntime.sampling import SamplingParams
from pyruntime.tools import Tool, ToolRegistry
from pyruntime.turns import Turns
from tests.conversation_lab import GREEDY, collect, open_model, path, prompts, run, session, shown_text, states
from tests.tiny_model import CALL, TEMPLATE, TOOL, UNCALL


@pytest.mark.parametrize("before", State)
@pytest.mark.parametrize("now", State)
def test_only_the_transitions_of_the_table_are_possible_and_each_tells_an_event(before, now):
    machine = Machine()
    machine.state = before
    if now in TRANSITIONS[before]:
        assert machine.move(now) == StateChanged(before, now)
        assert machine.state == now
    else:
        with pytest.raises(IllegalTransitionError, match=f"{before} → {now} is no transition"):
            machine.move(now)
        assert machine.state == before


def test_from_every_state_the_conversation_can_come_to_rest():
    for state in State:
        reached, left = set(), [state]
        while left:
            one = left.pop()
            if one not in reached:
                reached.add(one)
                left += TRANSITIONS[one]
        assert State.IDLE in reached


def test_the_documentation_has_the_table_of_the_code(repo_root):
    text = (repo_root / "docs" / "conversation.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| (.+?) \|", text, re.MULTILINE)
    documented = {name: set(re.findall(r"`(\w+)`", targets)) for name, targets in rows if name in State.__members__}
    assert documented == {state.name: {target.name for target in targets} for state, targets in TRANSITIONS.items()}


def test_an_answer_without_a_word_is_an_answer_too():
    talk, _ = session("")
    events = run(talk.send("Hi"))
    assert states(events) == "prefill decode completed idle"
    assert path(talk) == [("user", "Hi"), ("assistant", "")]


def test_the_answer_remembers_who_wrote_it_how_and_how_fast():
    talk, _ = session(
        "ok", options=Options(params=SamplingParams(temperature=0, seed=3, logit_bias={5: 1.0}, stop=("x",)))
    )
    run(talk.send("Hi"))
    leaf = talk.tree.leaf
    assert (leaf.model, leaf.state, leaf.stop_reason) == ("Tiny", "done", "stop")
    assert leaf.params["seed"] == 3
    assert (leaf.params["logit_bias"], leaf.params["stop"]) == ({"5": 1.0}, ["x"])
    assert (leaf.usage["new_tokens"], leaf.usage["left_out"]) == (2, 0)
    assert set(leaf.timings) == {"ttft_ms", "prefill_tps", "decode_tps"}
    assert talk.tree.path[0].created < leaf.created


def test_log_probabilities_that_were_asked_for_come_through():
    talk, _ = session("ok", options=Options(params=SamplingParams(temperature=0, logprobs=1)))
    events = run(talk.send("Hi"))
    assert [event.logprobs.token_id for event in events if isinstance(event, TokenScored)] == [*b"ok"]
    assert states(events) == "prefill decode completed idle"


@pytest.mark.parametrize("calls_that_work", range(6))
def test_a_crash_of_the_executor_at_any_call_ends_in_failed_with_the_tree_whole_and_the_engine_usable(calls_that_work):
    talk, executor = session("Hello", "Again")
    executor.fail_after = calls_that_work
    events = []
    with pytest.raises(RuntimeError, match="the executor broke"):
        run(talk.send("a" * 60), events.append)
    assert states(events).endswith("failed idle")
    assert not any(isinstance(event, Finished) for event in events)
    shown = shown_text(events)
    kept = [(node.text, node.state) for node in talk.tree.path if node.role == "assistant"]
    assert kept == ([(shown, "error")] if shown else [])
    assert path(talk)[0] == ("user", "a" * 60)
    assert talk.engine.kv_tokens == tuple(executor.tokens)
    executor.fail_after = None
    assert states(run(talk.send("And?"))) == "prefill decode completed idle"


@pytest.mark.parametrize("number", range(1, 8))
def test_a_listener_that_fails_or_goes_away_stops_the_answer_and_keeps_what_came(number):
    talk, executor = session("Hello", "Again")
    seen = []

    async def listen():
        request = talk.send("Hi")
        async for event in request:
            seen.append(event)
            if len(seen) == number:
                break
        await request.aclose()

    asyncio.run(listen())
    assert talk.state == State.IDLE
    # A text that was about to be told when its listener went is kept as well.
    came = "H" if number >= 6 else ""
    assert came.startswith(shown_text(seen))
    assert [(node.text, node.state) for node in talk.tree.path[1:]] == ([(came, "cancelled")] if came else [])
    assert talk.engine.kv_tokens == tuple(executor.tokens)
    executor._is_cut = True
    assert states(run(talk.send("And?"))) == "prefill decode completed idle"


def test_a_cancelled_task_ends_its_request_like_a_stop():
    talk, _ = session("Hello", "Again")

    async def begin_and_cancel():
        got = asyncio.Event()
        task = asyncio.ensure_future(
            collect(talk.send("Hi"), lambda event: got.set() if isinstance(event, Delta) else None)
        )
        await got.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(begin_and_cancel())
    assert (talk.state, talk.tree.leaf.state) == (State.IDLE, "cancelled")
    assert shown_text(run(talk.send("And?"))) == "Again"


def test_ctrl_c_in_the_middle_of_a_computation_ends_the_request_like_a_stop():
    talk, executor = session("Hello", "Again")

    def interrupt():
        if len(executor.log) == 3:
            raise KeyboardInterrupt

    executor.on_forward = interrupt
    with pytest.raises(KeyboardInterrupt):
        run(talk.send("Hi"))
    assert (talk.state, talk.tree.leaf.state, talk.tree.leaf.text) == (State.IDLE, "cancelled", "He")
    executor.on_forward = lambda: None
    assert shown_text(run(talk.send("And?"))) == "Again"


def test_what_the_template_refuses_changes_nothing():
    strict = (
        "{% for m in messages %}{% if m.content == 'no' %}{{ raise_exception('Not that.') }}{% endif %}{% endfor %}"
    )
    talk, _ = session("Hello", model=open_model(tokenizer__chat_template=strict + TEMPLATE))
    events = []
    with pytest.raises(TemplateError, match="Not that"):
        run(talk.send("no"), events.append)
    assert (states(events), talk.tree) == ("prefill failed idle", Tree())
    assert shown_text(run(talk.send("yes"))) == "Hello"


def test_tools_are_refused_where_the_template_has_no_way_of_asking_for_them():
    async def nothing(arguments):
        return ""

    options = Options(params=GREEDY, tools=ToolRegistry([Tool("now", "", {"type": "object"}, nothing)]))
    talk, _ = session("Hello", model=open_model(tokenizer__chat_template=TEMPLATE), options=options)
    with pytest.raises(UnsupportedError, match="it has no way of asking for tools"):
        run(talk.send("Hi"))
    assert talk.tree == Tree()
    talk.options = Options(params=GREEDY)
    assert shown_text(run(talk.send("Hi"))) == "Hello"


@pytest.mark.parametrize(
    "request_of",
    [
        lambda talk: talk.edit("nowhere", "x"),
        lambda talk: talk.edit(talk.tree.leaf.id, "x"),
        lambda talk: talk.regenerate(talk.tree.path[0].id),
        lambda talk: talk.continue_answer(talk.tree.path[0].id),
        lambda talk: talk.retry(talk.tree.leaf.id),
    ],
)
def test_a_request_about_a_message_that_does_not_fit_is_refused_and_changes_nothing(request_of):
    talk, _ = session("Hello", "Again")
    run(talk.send("Hi"))
    before = talk.tree
    with pytest.raises(ParameterError, match="message"):
        run(request_of(talk))
    assert (talk.tree, talk.state) == (before, State.IDLE)
    assert shown_text(run(talk.send("And?"))) == "Again"


def test_an_answer_without_text_or_with_calls_cannot_be_continued():
    talk, _ = session("")
    run(talk.send("Hi"))
    with pytest.raises(ParameterError, match="with text and without calls"):
        run(talk.continue_answer(talk.tree.leaf.id))


def test_stop_while_nothing_runs_stops_nothing_later():
    talk, _ = session("One", "Two")
    talk.cancel()
    run(talk.send("Hi"))
    talk.cancel()
    assert shown_text(run(talk.send("And?"))) == "Two"


def test_a_closed_conversation_ends_its_answer_and_takes_no_more_requests():
    talk, _ = session("Hello", queue=True)

    async def close_while_answering():
        first = talk.send("Hi")
        second = asyncio.ensure_future(collect(talk.send("Later")))
        events = []
        async for event in first:
            events.append(event)
            await asyncio.sleep(0)
            if isinstance(event, Delta):
                talk.close()
        with pytest.raises(ClosedError):
            await second
        return events

    assert states(asyncio.run(close_while_answering())) == "prefill decode cancelled idle"
    assert path(talk) == [("user", "Hi"), ("assistant", "H")]
    with pytest.raises(ClosedError, match="it was closed"):
        run(talk.send("Hi"))


def test_a_call_is_approved_or_denied_only_while_it_waits():
    talk, _ = session("Hello")
    for decide in (talk.approve, talk.deny):
        with pytest.raises(ParameterError, match="a call that waits for approval"):
            decide("call00001")


def test_an_answer_with_more_calls_than_may_be_is_kept_with_the_last_marked():
    async def nothing(arguments):
        return ""

    one = [CALL, '{"name": "now"}', UNCALL]
    options = Options(
        params=GREEDY, tools=ToolRegistry([Tool("now", "", {"type": "object"}, nothing, needs_approval=False)])
    )
    talk, _ = session(one * (MOST_CALLS + 3), "Done.", options=options)
    run(talk.send("Hi"))
    calls = talk.tree.path[1].calls
    assert (len(calls), calls[-1].problem) == (MOST_CALLS, "more than 63 calls in one answer")
    assert sum(role == "tool" for role, _ in path(talk)) == MOST_CALLS - 1


ONE_CALL = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}"
    "{% if m.tool_calls %}{% if m.tool_calls|length > 1 %}{{ raise_exception('One call only!') }}{% endif %}"
    '{"name": "{{ m.tool_calls[0].function.name }}", "parameters": {{ m.tool_calls[0].function.arguments|tojson }}}'
    "{% endif %}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def test_of_a_model_that_is_answered_one_call_at_a_time_the_first_call_is_run_and_the_others_are_told():
    async def echo(arguments):
        return arguments

    calls = '{"name": "echo", "parameters": {"a": 1}} {"name": "echo", "parameters": {"a": 2}}'
    tools = ToolRegistry([Tool("echo", "", {"type": "object"}, echo, needs_approval=False)])
    model = open_model(tokenizer__chat_template=ONE_CALL)
    talk, _ = session(calls, "Done.", "Yes.", options=Options(params=GREEDY, tools=tools), model=model)
    events = run(talk.send("Hi"))
    assert shown_text(events) == "Done."
    assert path(talk) == [("user", "Hi"), ("assistant", ""), ("tool", '{"a": 1}'), ("assistant", "Done.")]
    first, second = talk.tree.path[1].calls
    assert (first.problem, second.problem) == (None, "this model can be answered one call at a time only")
    assert shown_text(run(talk.send("Sure?"))) == "Yes."


def test_a_template_that_wants_arguments_as_text_gets_them_so():
    as_text = TEMPLATE.replace(
        "{{ message.content }}",
        "{{ message.content }}{% for c in message.tool_calls or [] %}<call>{{ c.function.name }}<|tool|>"
        "{{ c.function.arguments + '' }}</call>{% endfor %}",
    )

    async def echo(arguments):
        return arguments

    tools = ToolRegistry([Tool("echo", "", {"type": "object"}, echo, needs_approval=False)])
    model = open_model(tokenizer__chat_template=as_text)
    talk, executor = session(
        [CALL, "echo", TOOL, '{"a": 1}', UNCALL], "Done.", options=Options(params=GREEDY, tools=tools), model=model
    )
    run(talk.send("Hi"))
    assert path(talk)[1:] == [("assistant", ""), ("tool", '{"a": 1}'), ("assistant", "Done.")]
    assert '<call>echo<|tool|>{"a": 1}</call><|im_end|>' in prompts(executor, model)[-1]


def test_a_tool_that_is_cancelled_by_itself_is_a_failed_call():
    async def gives_up(arguments):
        raise asyncio.CancelledError

    tool = Tool("now", "", {"type": "object"}, gives_up, needs_approval=False)
    talk, _ = session(
        [CALL, '{"name": "now"}', UNCALL], "Hm.", options=Options(params=GREEDY, tools=ToolRegistry([tool]))
    )
    run(talk.send("Hi"))
    assert (talk.tree.path[2].state, path(talk)[-1]) == ("error", ("assistant", "Hm."))


def test_messages_are_added_before_they_are_told():
    talk, _ = session("ok")
    added = []

    def on_event(event):
        if isinstance(event, MessageAdded):
            added.append(talk.tree.node(event.node_id).role)
        elif isinstance(event, PromptFitted | PrefillProgress):
            assert talk.tree.leaf.role == "user"

    run(talk.send("Hi"), on_event)
    assert added == ["user", "assistant"]


def test_turns_are_given_in_the_order_in_which_they_were_asked_for():
    async def five():
        turns, order = Turns(), []

        async def one(name):
            await turns.take()
            order.append(name)
            await asyncio.sleep(0)
            turns.give_back()

        tasks = [asyncio.ensure_future(one(name)) for name in "abcde"]
        await asyncio.sleep(0)
        tasks[2].cancel()  # it waits in the queue
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert [type(result) for result in results].count(asyncio.CancelledError) == 1
        assert turns.is_free
        return order

    assert asyncio.run(five()) == ["a", "b", "d", "e"]


def test_a_turn_that_is_given_in_the_moment_of_giving_up_goes_to_the_next():
    async def three():
        turns = Turns()
        await turns.take()
        second, third = (asyncio.ensure_future(turns.take()) for _ in range(2))
        await asyncio.sleep(0)
        turns.give_back()
        second.cancel()
        await third
        turns.give_back()
        return turns.is_free

    assert asyncio.run(three())


def test_requests_are_generators_that_must_be_begun_to_do_anything():
    talk, _ = session("Hello")
    request = talk.send("Hi")
    assert inspect.isasyncgen(request)
    assert (talk.tree, talk.state) == (Tree(), State.IDLE)
    run(request)
    with pytest.raises(BusyError):
        asyncio.run(second_while_first())


async def second_while_first():
    talk, _ = session("Hello")
    first = talk.send("Hi")
    await anext(first)
    try:
        await anext(talk.send("You"))
    finally:
        await first.aclose()
