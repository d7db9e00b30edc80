"""The page's state and its conversation, without a page: wishes of the user and messages of the worker, and what follows."""

from __future__ import annotations

import protocol
import pytest
from ui.options import Options
from ui.session import Session

SETTINGS = {"sampling": {"temperature": 0}, "tools": [], "thinking": None}


@pytest.fixture
def session():
    return Session(Options("M", "P", "auto", None, None, {"temperature": 0}))


@pytest.fixture
def ready(session):
    session.load()
    session.receive(protocol.Ready("SmolLM2", "numpy", 4096, 0.0))
    return session


def finished(id, text, reason="stop", at=0.0, reasoning=""):
    return protocol.Finished(id, reason, text, reasoning, 42, 0, 5, 0, 30.0, 20.0, at)


def told(id, role, text, branches=None, **more):
    """A message as the worker tells of it."""
    entry = {"id": id, "role": role, "text": text, "reasoning": "", "calls": [], "stats": None}
    return {**entry, "call_id": None, "state": "done", "branches": branches or [id], **more}


def show(session, *entries, first=0, conversation="c1"):
    session.receive(protocol.Shown(conversation, first, list(entries), 0.0))


def converse(session, *texts):
    """A conversation of several turns, as an earlier visit left it; the ids are m0, m1, …"""
    roles = ("user", "assistant")
    show(session, *(told(f"m{i}", roles[i % 2], text) for i, text in enumerate(texts)))
    return session.conversation.messages


def states(session):
    return [(message.role, message.state, message.text) for message in session.conversation.messages]


def test_the_session_says_what_is_going_on_from_the_start(session):
    assert (session.state, session.status) == ("starting", "Starting Python")
    assert session.load() == protocol.Load("M", "P", "auto", None, None, None)
    assert (session.state, session.status) == ("fetching", "Looking up the model")
    session.receive(protocol.Progress("fetch", "the model", 0, 98_362_432, 1000.0))
    session.receive(protocol.Progress("fetch", "the model", 42_000_000, 98_362_432, 2000.0))
    assert (session.state, session.status, session.detail) == ("fetching", "Fetching the model", "42 of 98 MB, 42 MB/s")
    assert session.fraction == pytest.approx(0.427, abs=0.001)
    session.receive(protocol.Progress("open", "SmolLM2", 50_000_000, 97_000_000, 3000.0))
    assert (session.state, session.status, session.detail) == ("loading", "Opening SmolLM2", "50 of 97 MB")
    session.receive(protocol.Ready("SmolLM2", "numpy", 4096, 4000.0))
    assert (session.state, session.status, session.detail, session.fraction) == ("ready", "Ready", "", None)
    assert session.model == "SmolLM2 · numpy · 4096 tokens of context"


@pytest.mark.parametrize("stage", ["fetch", "open"])
def test_what_is_said_while_the_page_waits_for_another_tab_goes_when_it_goes_on(session, stage):
    session.load()
    session.receive(protocol.Waiting(stage, "Close another tab", 1.0))
    assert session.state == {"fetch": "fetching", "open": "loading"}[stage]
    assert (session.status, session.notice.text) == ("Waiting for another tab", "Close another tab")
    session.receive(protocol.Waiting(stage, "Close one more", 2.0))
    assert session.notice.text == "Close one more"
    session.receive(protocol.Progress(stage, "m", 0, 100, 3.0))
    assert session.notice is None
    session.receive(protocol.Remark("Computing with numpy", 4.0))
    session.receive(protocol.Ready("m", "numpy", 4096, 5.0))
    assert session.notice.text == "Computing with numpy"


def test_the_rate_is_that_of_the_last_seconds(session):
    for second in range(10):
        session.receive(protocol.Progress("fetch", "m", second * 1_000_000, 98_000_000, second * 1000.0))
    session.receive(protocol.Progress("fetch", "m", 39_000_000, 98_000_000, 12_000.0))
    assert session.detail.endswith(", 10 MB/s")  # 30 MB in the 3 s before; 3.3 MB/s over all


def test_a_message_is_answered_piece_by_piece(ready):
    assert ready.send("Hello", 100.0) == protocol.Send(1, "Hello", SETTINGS)
    assert ready.state == "busy"
    ready.receive(protocol.PromptReady(1, 42, 0, 110.0))
    ready.receive(protocol.Prefill(1, 32, 42, 120.0))
    assert (ready.status, ready.detail) == ("Reading your message", "32 of 42 tokens")
    ready.receive(protocol.Delta(1, "Hi", 150.0))
    assert (ready.status, ready.fraction) == ("Answering", None)
    ready.receive(protocol.Delta(1, " there", 160.0))
    assert states(ready) == [("user", "done", "Hello"), ("assistant", "streaming", "Hi there")]
    show(ready, told("m0", "user", "Hello"), told("m1", "assistant", "Hi there!"))
    ready.receive(finished(1, "Hi there!", at=170.0))
    assert states(ready)[1] == ("assistant", "done", "Hi there!")
    assert ready.conversation.messages[1].stats == {
        "prompt_tokens": 42,
        "cached_tokens": 0,
        "new_tokens": 5,
        "left_out": 0,
        "ttft_ms": 50.0,
        "prefill_tps": 30.0,
        "decode_tps": 20.0,
        "stop_reason": "stop",
    }
    assert ready.state == "ready"


def test_the_first_token_is_the_first_piece_that_is_not_empty(ready):
    ready.send("Hello", 100.0)
    ready.receive(protocol.Delta(1, "", 120.0))
    ready.receive(protocol.Delta(1, "Hi", 150.0))
    ready.receive(finished(1, "Hi"))
    assert ready.conversation.messages[1].stats["ttft_ms"] == 50.0


def thinking_of(message):
    return message.reasoning, message.thinking, message.thought_ms


def test_thinking_is_kept_apart_from_the_text_and_timed(ready):
    ready.send("Hello", 100.0)
    answer = ready.conversation.answer
    ready.receive(protocol.ReasoningDelta(1, "", 120.0))
    assert ready.status == "Reading your message"
    ready.receive(protocol.ReasoningDelta(1, "Let me", 150.0))
    ready.receive(protocol.ReasoningDelta(1, " see", 1150.0))
    assert (ready.state, ready.status) == ("busy", "Thinking")
    assert thinking_of(answer)[:2] == ("Let me see", "running")
    ready.receive(protocol.Delta(1, "Hi", 3350.0))
    assert (ready.state, ready.status) == ("busy", "Answering")
    assert thinking_of(answer) == ("Let me see", "done", 3200.0)
    ready.receive(finished(1, "Hi", at=4000.0, reasoning="Let me see"))
    assert (answer.text, answer.state, *thinking_of(answer)) == ("Hi", "done", "Let me see", "done", 3200.0)
    assert answer.stats["ttft_ms"] == 50.0, "thinking is the first that is seen of an answer"


def test_thinking_that_goes_on_after_some_text_is_timed_in_both_parts(ready):
    ready.send("Hello", 0.0)
    for message in (
        protocol.ReasoningDelta(1, "a", 100.0),
        protocol.Delta(1, "x", 200.0),
        protocol.ReasoningDelta(1, "b", 1000.0),
    ):
        ready.receive(message)
    assert ready.status == "Thinking"
    ready.receive(protocol.Delta(1, "y", 1400.0))
    assert thinking_of(ready.conversation.answer) == ("ab", "done", 500.0)


@pytest.mark.parametrize(("reason", "state"), [("length", "done"), ("cancelled", "cancelled")])
def test_an_answer_that_is_cut_off_while_thinking_stays_with_what_it_thought(ready, reason, state):
    ready.send("Hello", 0.0)
    ready.receive(protocol.ReasoningDelta(1, "Let me", 100.0))
    ready.receive(finished(1, "", reason, at=300.0, reasoning="Let me"))
    assert states(ready) == [("user", "done", "Hello"), ("assistant", state, "")]
    assert thinking_of(ready.conversation.messages[1]) == ("Let me", "cut", 200.0)
    assert (ready.take_draft(), ready.state) == ("", "ready")


def test_an_answer_that_ends_by_itself_after_thinking_is_not_called_cut_off(ready):
    ready.send("Hello", 0.0)
    ready.receive(protocol.ReasoningDelta(1, "Let me", 100.0))
    ready.receive(finished(1, "", at=300.0, reasoning="Let me"))
    assert thinking_of(ready.conversation.messages[1]) == ("Let me", "done", 200.0)


@pytest.mark.parametrize("end", ["failed", "lost"])
def test_thinking_that_breaks_off_by_an_error_stays(ready, end):
    ready.send("Hello", 0.0)
    ready.receive(protocol.ReasoningDelta(1, "Let", 100.0))
    ready.receive(protocol.ReasoningDelta(1, " me", 300.0))
    if end == "failed":
        ready.receive(protocol.Failed(1, "MemoryError", "no more", 0.0))
    else:
        ready.engine_lost("RuntimeError", "gone")
    assert states(ready)[1] == ("assistant", "error", "")
    assert thinking_of(ready.conversation.messages[1]) == ("Let me", "cut", 200.0)


def test_a_call_for_a_tool_is_kept_apart(ready):
    ready.send("Hello", 100.0)
    ready.receive(protocol.ReasoningDelta(1, "Hm", 150.0))
    ready.receive(protocol.ToolCall(1, None, None, "unknown tool 'f'", '{"name": "f"}', 250.0))
    answer = ready.conversation.answer
    assert (ready.status, thinking_of(answer)) == ("Answering", ("Hm", "done", 100.0))
    (call,) = answer.calls
    assert (call.problem, call.raw, call.state) == ("unknown tool 'f'", '{"name": "f"}', "invalid")
    ready.receive(finished(1, "", reasoning="Hm"))
    assert answer.text == ""


def test_an_answer_that_is_only_a_call_stays_when_it_is_stopped(ready):
    ready.send("Hello", 100.0)
    ready.receive(protocol.ToolCall(1, "f", "{}", None, '{"name": "f"}', 250.0))
    ready.receive(finished(1, "", "cancelled"))
    assert states(ready)[1] == ("assistant", "cancelled", "")
    assert ready.conversation.messages[1].stats["ttft_ms"] == 150.0


def test_an_answer_without_words_stays_if_the_worker_keeps_it(ready):
    ready.send("One", 0.0)
    show(ready, told("m0", "user", "One"), told("m1", "assistant", ""))
    ready.receive(finished(1, ""))
    assert states(ready) == [("user", "done", "One"), ("assistant", "done", "")]


@pytest.mark.parametrize("text", ["", "  \n "])
def test_nothing_is_sent_when_there_is_nothing_to_say(ready, text):
    assert ready.send(text, 0.0) is None
    assert ready.state == "ready"


def test_nothing_is_sent_before_the_model_is_there_or_while_it_answers(session):
    assert session.send("Hello", 0.0) is None
    session.receive(protocol.Ready("m", "numpy", 1, 0.0))
    session.send("Hello", 0.0)
    assert session.send("Again", 0.0) is None


def test_a_stopped_answer_stays_and_is_marked(ready):
    ready.send("Hello", 0.0)
    ready.receive(protocol.Delta(1, "Hi", 0.0))
    assert ready.stop() == protocol.Cancel(1)
    assert ready.state == "busy"
    ready.receive(finished(1, "Hi", "cancelled"))
    assert states(ready)[1] == ("assistant", "cancelled", "Hi")
    assert ready.state == "ready"


def test_stopping_before_the_first_word_takes_the_message_back_to_the_composer(ready):
    ready.send("Hello", 0.0)
    ready.stop()
    ready.receive(finished(1, "", "cancelled"))
    assert states(ready) == []
    assert (ready.take_draft(), ready.take_draft()) == ("Hello", "")


def test_late_words_of_a_stopped_answer_are_dropped(ready):
    ready.send("One", 0.0)
    ready.receive(protocol.Delta(1, "U", 0.0))
    ready.stop()
    ready.receive(finished(1, "U", "cancelled"))
    ready.receive(protocol.Delta(1, "no", 0.0))
    ready.send("Two", 0.0)
    for late in (protocol.Delta(1, "late", 0.0), finished(1, "late"), protocol.Failed(1, "E", "late", 0.0)):
        ready.receive(late)
    assert states(ready)[1:] == [
        ("assistant", "cancelled", "U"),
        ("user", "done", "Two"),
        ("assistant", "streaming", ""),
    ]
    assert (ready.state, ready.notice) == ("busy", None)


def test_a_new_chat_waits_until_the_old_answer_has_stopped(ready):
    """Otherwise the next message would meet an engine that is still busy."""
    ready.send("One", 0.0)
    assert ready.new_chat() == protocol.NewChat()
    assert (states(ready), ready.state) == ([], "busy")
    assert ready.send("Two", 0.0) is None
    ready.receive(protocol.Delta(1, "late", 0.0))
    ready.receive(finished(1, "late", "cancelled"))
    assert (states(ready), ready.state, ready.take_draft()) == ([], "ready", "")
    assert ready.send("Two", 0.0).id == 2


def test_a_new_chat_without_an_answer_waits_for_nothing(ready):
    converse(ready, "One", "Uno")
    assert ready.new_chat() == protocol.NewChat()
    assert (states(ready), ready.state) == ([], "ready")


def test_a_message_that_fails_goes_back_to_the_composer_and_the_notice_has_the_errors_words(ready):
    ready.send("Too long", 0.0)
    ready.receive(protocol.Failed(1, "ContextOverflowError", "prompt: too long", 0.0))
    assert (states(ready), ready.take_draft(), ready.state) == ([], "Too long", "ready")
    assert ready.notice == ("prompt: too long", "ContextOverflowError", "")


def test_an_answer_that_fails_midway_stays_and_is_marked(ready):
    ready.send("Hello", 0.0)
    ready.receive(protocol.Delta(1, "Hi", 0.0))
    ready.receive(protocol.Failed(1, "MemoryError", "no more", 0.0))
    assert states(ready)[1] == ("assistant", "error", "Hi")
    assert (ready.take_draft(), ready.state) == ("", "ready")


def test_a_model_that_cannot_be_loaded_can_be_asked_for_again(session):
    session.load()
    session.receive(protocol.Failed(0, "DeliveryError", "no source delivered it", 0.0))
    assert (session.state, session.notice.action) == ("error", "retry")
    assert session.retry() == protocol.Load("M", "P", "auto", None, None, None)
    assert (session.state, session.notice) == ("fetching", None)


def test_a_worker_that_never_started_needs_a_reload(session):
    session.receive(protocol.Failed(0, "ModuleNotFoundError", "No module named 'pyruntime'", 0.0))
    assert (session.state, session.notice.action) == ("error", "reload")


def test_a_lost_engine_keeps_what_it_said_and_what_was_typed(ready):
    converse(ready, "One", "Uno")
    ready.send("Two", 0.0)
    ready.engine_lost("RuntimeError", "gone")
    assert (states(ready)[:2], ready.take_draft()) == ([("user", "done", "One"), ("assistant", "done", "Uno")], "Two")
    assert (ready.state, ready.notice.action) == ("error", "reload")


def test_a_remark_of_the_worker_is_shown_and_nothing_else_changes(ready):
    ready.receive(protocol.Remark("Using the stored model list", 0.0))
    assert (ready.state, ready.notice) == ("ready", ("Using the stored model list", "", ""))
    ready.dismiss()
    assert ready.notice is None


def test_a_message_that_is_not_for_the_page_is_refused(ready):
    with pytest.raises(protocol.ProtocolError, match="Cancel: not a message to the page"):
        ready.receive(protocol.Cancel(1))


@pytest.mark.parametrize(
    ("error", "action"), [("DeliveryError", "retry"), ("UnsupportedError", ""), ("ParameterError", "")]
)
def test_trying_again_is_offered_where_it_can_help_and_the_reason_stays(session, error, action):
    session.load()
    session.receive(protocol.Failed(0, error, "why", 5.0))
    assert (session.state, session.notice.action) == ("error", action)
    session.dismiss()
    assert session.notice.text == "why"


# ------------------------------------------------------------------------------------------- what the worker tells of


def test_a_conversation_of_an_earlier_visit_is_shown_before_the_model_is_there(session):
    stats = dict.fromkeys(("prompt_tokens", "cached_tokens", "new_tokens", "left_out"), 1)
    stats |= dict.fromkeys(("ttft_ms", "prefill_tps", "decode_tps"), None) | {"stop_reason": "length"}
    call = {"id": "call00001", "name": None, "arguments": None, "problem": "incomplete", "raw": "{"}
    show(
        session,
        told("m0", "user", "Hello"),
        told("m1", "assistant", "Hi", reasoning="Hm", calls=[call], stats=stats),
        told("m2", "user", "More"),
        told("m3", "assistant", "Mo", state="interrupted"),
    )
    assert session.state == "starting"
    assert [(m.id, m.role, m.state) for m in session.conversation.messages][2:] == [
        ("m2", "user", "done"),
        ("m3", "assistant", "interrupted"),
    ]
    answer = session.conversation.messages[1]
    assert thinking_of(answer) == ("Hm", "done", None)
    assert ([(one.problem, one.raw) for one in answer.calls], answer.stats) == ([("incomplete", "{")], stats)
    assert session.conversation.left_out == 1
    assert session.load().conversation == "c1"


def test_what_is_sent_is_shown_at_once_and_is_the_same_message_when_the_worker_tells_of_it(ready):
    first = list(converse(ready, "One", "Uno"))
    ready.send("Two", 0.0)
    question, answer = ready.conversation.messages[2:]
    show(ready, told("m2", "user", "Two"), first=2)
    ready.receive(protocol.Delta(1, "D", 0.0))
    show(ready, told("m2", "user", "Two"), told("m3", "assistant", "Dos"), first=2)
    ready.receive(finished(1, "Dos"))
    for message, same in zip(ready.conversation.messages, [*first, question, answer], strict=True):
        assert message is same
    assert (question.id, answer.id, answer.text, answer.state) == ("m2", "m3", "Dos", "done")


def test_an_edit_takes_the_place_of_the_question_and_of_all_behind_it(ready):
    messages = converse(ready, "One", "Uno", "Two", "Dos")
    assert ready.edit(messages[2], "2", 0.0) == protocol.Edit(1, "m2", "2", SETTINGS)
    assert states(ready)[2:] == [("user", "done", "2"), ("assistant", "streaming", "")]
    show(ready, told("n2", "user", "2", ["m2", "n2"]), told("n3", "assistant", "II"), first=2)
    ready.receive(finished(1, "II"))
    assert states(ready)[2:] == [("user", "done", "2"), ("assistant", "done", "II")]
    edited = ready.conversation.messages[2]
    assert ready.select(edited, -1) == protocol.Select("m2")
    assert ready.select(edited, 1) is None


def test_a_new_attempt_takes_the_place_of_the_answer(ready):
    messages = converse(ready, "One", "Uno", "Two", "Dos")
    assert ready.regenerate(messages[1], 0.0) == protocol.Regenerate(1, "m1", SETTINGS)
    assert states(ready) == [("user", "done", "One"), ("assistant", "streaming", "")]


@pytest.mark.parametrize("wish", ["edit", "regenerate", "go_on"])
def test_what_was_replaced_comes_back_when_nothing_has_come_in_its_place(ready, wish):
    entries = [told("m0", "user", "One"), told("m1", "assistant", "Uno", state="cancelled"), told("m2", "user", "Two")]
    entries.append(told("m3", "assistant", "Dos"))
    show(ready, *entries)
    messages = ready.conversation.messages
    if wish == "edit":
        ready.edit(messages[0], "Eins", 0.0)
        show(ready, told("n0", "user", "Eins", ["m0", "n0"]))
        show(ready, *entries)
    else:
        getattr(ready, wish)(messages[1], 0.0)
        show(ready, *entries[1:], first=1)
    ready.receive(finished(1, "", "cancelled"))
    assert [message.id for message in ready.conversation.messages] == ["m0", "m1", "m2", "m3"]
    assert [state for _, state, _ in states(ready)] == ["done", "cancelled", "done", "done"]
    assert ready.take_draft() == ("Eins" if wish == "edit" else "")


def test_a_continued_answer_begins_with_what_it_goes_on_from(ready):
    show(ready, told("m0", "user", "One"), told("m1", "assistant", "Un", reasoning="Hm", state="interrupted"))
    old = ready.conversation.messages[1]
    assert ready.go_on(old, 100.0) == protocol.Continue(1, "m1", SETTINGS)
    answer = ready.conversation.answer
    assert (answer.text, answer.reasoning, answer.empty) == ("Un", "Hm", True)
    ready.receive(protocol.Delta(1, "o", 150.0))
    assert (answer.text, answer.empty) == ("Uno", False)
    show(ready, told("n1", "assistant", "Uno", ["m1", "n1"], reasoning="Hm"), first=1)
    ready.receive(finished(1, "o"))
    assert states(ready)[1] == ("assistant", "done", "Uno")
    assert (answer.stats["ttft_ms"], answer.branches) == (50.0, ["m1", "n1"])


@pytest.mark.parametrize(
    ("more", "may"),
    [
        ({"state": "cancelled"}, True),
        ({"state": "interrupted"}, True),
        ({"state": "error"}, True),
        ({"state": "done"}, False),
        ({"state": "cancelled", "text": ""}, False),
    ],
)
def test_only_an_answer_that_was_cut_off_can_be_continued(ready, more, may):
    show(ready, told("m0", "user", "One"), {**told("m1", "assistant", "Un"), **more})
    assert (ready.go_on(ready.conversation.messages[1], 0.0) is not None) == may


def test_an_answer_that_ended_by_its_length_can_be_continued(ready):
    ready.send("One", 0.0)
    show(ready, told("m0", "user", "One"), told("m1", "assistant", "Uno"))
    ready.receive(finished(1, "Uno", "length"))
    assert ready.conversation.messages[1].may_go_on


def test_no_wish_but_stop_and_new_chat_is_heard_while_an_answer_is_written(ready):
    messages = list(converse(ready, "One", "Uno"))
    ready.send("Two", 0.0)
    for wish in (
        ready.send("Three", 0.0),
        ready.edit(messages[0], "x", 0.0),
        ready.regenerate(messages[1], 0.0),
        ready.select(messages[1], 1),
    ):
        assert wish is None
    assert ready.notice.text == "An answer is being written. Wait for it to finish, or stop it first."
    ready.receive(finished(1, ""))
    assert ready.notice is None


def test_what_is_still_said_of_a_conversation_that_was_left_is_not_shown(ready):
    converse(ready, "One", "Uno")
    ready.send("Two", 0.0)
    ready.new_chat()
    show(ready, told("m2", "user", "Two"), first=2)
    assert states(ready) == []
    show(ready, conversation="c2")
    assert ready.conversation.key == "c2"


def test_what_is_left_out_of_the_prompt_is_known_while_it_is_answered_and_afterwards(ready):
    converse(ready, "One", "Uno", "Two", "Dos")
    ready.send("Three", 0.0)
    ready.receive(protocol.Fitted(1, 2, 0.0))
    assert ready.conversation.left_out == 2
    ready.receive(protocol.Fitted(9, 4, 0.0))
    assert ready.conversation.left_out == 2
