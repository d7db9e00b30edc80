"""Tools on the page, without a page: calls and how it stands with them, rounds of a request, decisions, settings."""

from __future__ import annotations

import protocol
import pytest
from ui import wording
from ui.options import Options
from ui.session import Session
from ui.settings import Settings

CALLS = [
    {"id": "c1", "name": "echo", "arguments": '{"text": "a"}', "problem": None, "raw": "RAW a"},
    {"id": "c2", "name": "risky", "arguments": '{"text": "b"}', "problem": None, "raw": "RAW b"},
]
TOOLS = [
    {"name": "echo", "description": "Says it.", "needs_approval": False},
    {"name": "risky", "description": "Says it.", "needs_approval": True},
]


def told(id, role, text="", branches=None, **more):
    """A message as the worker tells of it."""
    entry = {"id": id, "role": role, "text": text, "reasoning": "", "calls": [], "stats": None, "state": "done"}
    return {**entry, "call_id": None, "branches": branches or [id], **more}


ASKED = told("m0", "user", "?")
ANSWER = told("m1", "assistant", "Hm.", calls=CALLS)
RESULTS = [told("m2", "tool", "a", call_id="c1"), told("m3", "tool", "no", call_id="c2", state="cancelled")]
LAST = told("m4", "assistant", "So.")


@pytest.fixture
def session():
    made = Session(Options("M", "P", "auto", None, None, {}), settings='{"tools": ["risky", "gone", "echo"]}')
    made.load()
    made.receive(protocol.Abilities(TOOLS, True, None, 0.0))
    made.receive(protocol.Ready("m", "numpy", 4096, 0.0))
    return made


def show(session, *entries, first=0):
    session.receive(protocol.Shown("c1", first, list(entries), 0.0))


def call_states(session):
    return [call.state for message in session.conversation.messages for call in message.calls]


def shown(session):
    return [(message.role, message.state, message.text) for message in session.conversation.messages]


def begin_calls(session):
    """A request whose first answer has just asked for two tools."""
    session.send("?", 0.0)
    show(session, ASKED)
    session.receive(protocol.Delta(1, "H", 100.0))
    for call in CALLS:
        session.receive(protocol.ToolCall(1, call["name"], call["arguments"], None, call["raw"], 150.0))
    show(session, ANSWER, first=1)
    session.receive(protocol.Step(1, "tools", 200.0))


def end(session, id, reason="stop"):
    session.receive(protocol.Finished(id, reason, "", "", 1, 0, 1, 0, None, None, 500.0))


def test_a_request_with_calls_shows_both_answers_and_the_results_between_them(session):
    begin_calls(session)
    assert (session.status, call_states(session)) == ("Running tools", ["asked", "asked"])
    assert shown(session) == [("user", "done", "?"), ("assistant", "done", "Hm.")]
    first = session.conversation.messages[1]
    session.receive(protocol.ToolStarted(1, "c1", 210.0))
    session.receive(protocol.ApprovalNeeded(1, "c2", 210.0))
    assert call_states(session) == ["running", "waiting"]
    assert session.status == "May risky be run? The answer waits for you"
    show(session, RESULTS[0], first=2)
    session.receive(protocol.ToolEnded(1, "c1", "done", 220.0))
    session.receive(protocol.ToolEnded(1, "c2", "cancelled", 230.0))
    show(session, RESULTS[1], first=3)
    session.receive(protocol.Step(1, "answer", 300.0))
    assert (session.status, session.state) == ("Reading the results", "busy")
    session.receive(protocol.Prefill(1, 4, 8, 310.0))
    assert (session.status, session.detail) == ("Reading the results", "4 of 8 tokens")
    session.receive(protocol.Delta(1, "So.", 350.0))
    assert shown(session)[-1] == ("assistant", "streaming", "So.")
    show(session, LAST, first=4)
    end(session, 1)
    assert [role for role, _, _ in shown(session)] == ["user", "assistant", "tool", "tool", "assistant"]
    assert call_states(session) == ["done", "denied"]
    assert session.conversation.messages[1] is first
    assert [message.result_of.name for message in session.conversation.messages[2:4]] == ["echo", "risky"]
    assert session.conversation.messages[-1].stats["ttft_ms"] == 50.0, "since the results were there"
    assert session.state == "ready"


def test_the_first_answer_of_a_request_has_the_figures_that_the_worker_tells(session):
    stats = dict.fromkeys(("prompt_tokens", "cached_tokens", "new_tokens", "left_out"), 1)
    stats |= dict.fromkeys(("ttft_ms", "prefill_tps", "decode_tps"), 2.0) | {"stop_reason": "stop"}
    session.send("?", 0.0)
    show(session, ASKED, {**ANSWER, "stats": stats})
    assert session.conversation.answer.stats is None
    session.receive(protocol.Step(1, "tools", 200.0))
    assert session.conversation.messages[1].stats == stats


def test_a_call_is_decided_once_and_only_while_it_waits(session):
    begin_calls(session)
    first, second = session.conversation.messages[1].calls
    assert session.decide(first, allowed=True) is None
    for call in (first, second):
        session.receive(protocol.ApprovalNeeded(1, call.id, 0.0))
    assert session.status == "May 2 tools be run? The answer waits for you"
    assert session.decide(first, allowed=True) == protocol.Approve(1, "c1")
    assert session.status == "May risky be run? The answer waits for you"
    assert session.decide(first, allowed=False) is None
    assert session.decide(second, allowed=False) == protocol.Deny(1, "c2")
    assert call_states(session) == ["asked", "asked"]


def test_stop_while_a_call_waits_ends_the_request_and_the_call_was_not_run(session):
    begin_calls(session)
    session.receive(protocol.ApprovalNeeded(1, "c1", 0.0))
    assert session.stop() == protocol.Cancel(1)
    end(session, 1, "cancelled")
    assert (session.state, call_states(session)) == ("ready", ["unrun", "unrun"])
    assert shown(session) == [("user", "done", "?"), ("assistant", "done", "Hm.")]
    assert session.take_draft() == ""


def test_stop_before_the_second_answer_has_a_word_leaves_the_results(session):
    begin_calls(session)
    show(session, *RESULTS, first=2)
    session.receive(protocol.Step(1, "answer", 0.0))
    session.stop()
    end(session, 1, "cancelled")
    assert [role for role, _, _ in shown(session)] == ["user", "assistant", "tool", "tool"]
    assert session.take_draft() == ""


def test_a_conversation_of_an_earlier_visit_tells_how_its_calls_ended(session):
    malformed = {"id": "c3", "name": None, "arguments": None, "problem": "incomplete", "raw": "{"}
    failed = told("m3", "tool", "no", call_id="c2", state="error")
    show(session, ASKED, told("m1", "assistant", calls=[*CALLS, malformed]), RESULTS[0], failed)
    assert call_states(session) == ["done", "failed", "invalid"]
    show(session, ASKED, ANSWER)
    assert call_states(session) == ["unrun", "unrun"], "a reload came while they waited"


def test_a_call_that_the_worker_tells_otherwise_is_shown_as_it_tells(session):
    begin_calls(session)
    refused = {"id": "c2", "name": None, "arguments": None, "problem": "more than 63 calls", "raw": "RAW b"}
    known = session.conversation.messages[1].calls[0]
    show(session, {**ANSWER, "calls": [CALLS[0], refused]}, first=1)
    calls = session.conversation.messages[1].calls
    assert (calls[0], calls[1].problem) == (known, "more than 63 calls")


def test_running_a_call_again_takes_the_place_of_its_result_and_of_all_behind_it(session):
    show(session, ASKED, ANSWER, *RESULTS, LAST)
    messages = session.conversation.messages
    assert session.run_again(messages[2], 0.0) == protocol.Retry(1, "m2", session._wanted)
    assert shown(session) == [("user", "done", "?"), ("assistant", "done", "Hm.")]
    session.receive(protocol.Step(1, "tools", 0.0))
    session.receive(protocol.ToolStarted(1, "c1", 0.0))
    assert call_states(session)[0] == "running"
    again = told("n2", "tool", "a2", ["m2", "n2"], call_id="c1")
    show(session, again, told("n3", "tool", "no", call_id="c2", state="cancelled"), first=2)
    session.receive(protocol.Step(1, "answer", 0.0))
    end(session, 1)
    retried = session.conversation.messages[2]
    assert (retried.text, retried.branches) == ("a2", ["m2", "n2"])
    assert session.select(retried, -1) == protocol.Select("m2")


def test_a_call_that_cannot_be_run_again_leaves_what_was_there(session):
    entries = [ASKED, ANSWER, *RESULTS, LAST]
    show(session, *entries)
    session.run_again(session.conversation.messages[2], 0.0)
    show(session, *entries[2:], first=2)
    session.receive(protocol.Failed(1, "ParameterError", "unknown tool 'echo'", 0.0))
    assert [message.id for message in session.conversation.messages] == ["m0", "m1", "m2", "m3", "m4"]
    assert call_states(session) == ["done", "denied"]
    assert (session.state, session.notice.text) == ("ready", "unknown tool 'echo'")


def test_what_is_said_of_calls_of_another_request_changes_nothing(session):
    begin_calls(session)
    session.new_chat()
    for late in (
        protocol.ApprovalNeeded(1, "c1", 0.0),
        protocol.Step(1, "answer", 0.0),
        protocol.ToolRoundsExhausted(1, 8, 0.0),
    ):
        session.receive(late)
    assert (shown(session), session.status, session.notice) == ([], "Stopping", None)


def test_a_model_that_does_not_stop_asking_is_told_of(session):
    begin_calls(session)
    session.receive(protocol.ToolRoundsExhausted(1, 8, 0.0))
    end(session, 1)
    assert session.notice.text.startswith("The model asked for tools 8 times in a row")
    assert call_states(session) == ["unrun", "unrun"]


# ------------------------------------------------------------------------------------------------------------- settings


def test_tools_that_are_on_and_there_are_offered_in_the_order_in_which_they_are_told(session):
    assert session.send("?", 0.0).settings == {"sampling": {}, "tools": ["echo", "risky"], "thinking": None}


def test_a_model_that_cannot_call_is_offered_nothing_and_the_choice_stays(session):
    session.receive(protocol.Abilities(TOOLS, False, None, 0.0))
    assert session.settings.offered == []
    assert session.settings.is_on("echo")
    assert wording.tools(False) == "This model's chat template has no way of asking for tools, so it is offered none."
    session.receive(protocol.Abilities(TOOLS, True, None, 0.0))
    assert session.settings.offered == ["echo", "risky"]


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "null", '{"tools": "echo", "thinking": 1}', '{"tools": [1, null]}', '"x"']
)
def test_kept_settings_that_are_none_count_as_none(text):
    settings = Settings(text)
    settings.learn(protocol.Abilities(TOOLS, True, True, 0.0))
    assert (settings.offered, settings.thinking, settings.thinks) == ([], None, True)


def test_settings_come_back_as_they_were():
    settings = Settings()
    for name in ("echo", "risky", "echo"):
        settings.set_tool(name, True)
    settings.set_tool("risky", False)
    settings.set_thinking(False)
    later = Settings(settings.text)
    later.learn(protocol.Abilities(TOOLS, True, True, 0.0))
    assert (later.offered, later.thinking, later.text) == (["echo"], False, settings.text)


@pytest.mark.parametrize("default", [True, False])
def test_a_model_is_told_about_thinking_only_what_the_user_chose(default):
    settings = Settings()
    settings.learn(protocol.Abilities([], True, default, 0.0))
    assert (settings.can_think, settings.thinks, settings.thinking) == (True, default, None)
    settings.set_thinking(not default)
    assert (settings.thinks, settings.thinking) == (not default, not default)
    settings.learn(protocol.Abilities([], True, None, 0.0))
    assert (settings.can_think, settings.thinking) == (False, None)


def test_the_system_prompt_is_the_conversations_and_can_be_set_while_nothing_is_written(session):
    assert session.set_system("") is None
    assert session.set_system("Be brief.") == protocol.SetSystem("Be brief.")
    assert session.set_system("Be brief.") is None
    session.receive(protocol.System("Other", 0.0))
    assert session.system == "Other"
    session.send("?", 0.0)
    assert not session.can_set_system
    assert session.set_system("More") is None
    assert session.system == "Other"


def test_a_tool_that_asks_first_says_so():
    assert [wording.tool(one) for one in TOOLS] == ["Says it.", "Says it. You are asked before each call."]


def test_behind_a_stop_a_call_can_no_longer_be_allowed(session):
    begin_calls(session)
    session.receive(protocol.ApprovalNeeded(1, "c2", 210.0))
    waiting = session.conversation.messages[1].calls[1]
    assert session.stop() == protocol.Cancel(1)
    assert (waiting.state, session.status) == ("asked", "Stopping")
    assert session.decide(waiting, allowed=True) is None
    assert session.status == "Stopping"


def test_of_two_calls_of_one_id_that_of_an_earlier_answer_never_waits(session):
    earlier = told("m1", "assistant", "Hm.", calls=[{**CALLS[1], "arguments": '{"text": "harmless"}', "raw": "RAW"}])
    show(session, ASKED, earlier)
    session.send("?", 0.0)
    show(session, told("m5", "user", "?"), told("m6", "assistant", calls=CALLS[1:]), first=2)
    session.receive(protocol.Step(1, "tools", 200.0))
    session.receive(protocol.ApprovalNeeded(1, "c2", 210.0))
    assert call_states(session) == ["unrun", "waiting"]
