"""Calls for tools in the worker's conversation: what is offered, what the page is told and asked, and what is kept."""

from __future__ import annotations

import asyncio

import protocol
import pytest

from pyruntime.chat.tree import Call, Node, Tree
from pyruntime.chat.tree_io import to_json
from pyruntime.conversation.shelf import MemoryTexts
from pyruntime.conversation.tool_round import DENIED
from pyruntime.errors import ParameterError
from pyruntime.tools import Tool
from tests.conversation_lab import open_model, prompts
from tests.tiny_model import CALL, TEMPLATE, UNCALL
from tests.worker_lab import SETTINGS, Page, visit

SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}


async def _echo(arguments):
    return arguments["text"]


async def _fail(arguments):
    raise OSError("no network")


def tool(name="echo", run=_echo, *, asks=False):
    return Tool(name, "Says it. And more for the model.", SCHEMA, run, needs_approval=asks)


def call(name="echo", text="hi"):
    return [CALL, f'{{"name": "{name}", "arguments": {{"text": "{text}"}}}}', UNCALL]


def kinds(page, *, since=0):
    return [type(message).__name__ for message in page.posted[since:]]


def allow_all(page, allowed=True):
    """Answer every question that the page is asked, as soon as it is."""
    take = page.chat._post

    def taken(message):
        take(message)
        if isinstance(message, protocol.ApprovalNeeded):
            page.decide(message.call, allowed)

    page.chat._post = taken


def test_the_page_is_told_which_tools_there_are_and_what_the_model_can_do():
    page = visit(lambda page: asyncio.sleep(0), tools=[tool(), tool("risky", asks=True)])
    (abilities,) = page.of_kind(protocol.Abilities)
    assert abilities.tools == [
        {"name": "echo", "description": "Says it.", "needs_approval": False},
        {"name": "risky", "description": "Says it.", "needs_approval": True},
    ]
    assert (abilities.can_call, abilities.thinks) == (True, True)
    plain = visit(lambda page: asyncio.sleep(0), model=open_model(tokenizer__chat_template=TEMPLATE))
    (abilities,) = plain.of_kind(protocol.Abilities)
    assert (abilities.can_call, abilities.thinks) == (False, None)


def test_only_what_a_request_offers_reaches_the_model_and_what_is_not_there_is_refused():
    async def scenario(page):
        page.settings = SETTINGS
        await page.send("One")
        page.settings = {**SETTINGS, "tools": ["b"]}
        await page.send("Two")
        page.settings = {**SETTINGS, "tools": ["c"]}
        with pytest.raises(ParameterError, match=r"tools: 'c' is not allowed \(allowed: a, b\)"):
            await page.send("Three")
        first, second = prompts(page.executor, page.engine.model)
        assert "<|im_start|>tools" not in first
        assert '"name": "b"' in second
        assert '"name": "a"' not in second

    visit(scenario, "Uno", "Dos", tools=[tool("a"), tool("b")])


@pytest.mark.parametrize(("thinking", "end"), [(None, "assistant\n"), (True, "assistant\n"), (False, "</think>\n\n")])
def test_the_template_is_told_about_thinking_what_the_page_says_and_nothing_otherwise(thinking, end):
    async def scenario(page):
        page.settings = {**SETTINGS, "thinking": thinking}
        await page.send("One")
        assert prompts(page.executor, page.engine.model)[0].endswith(end)

    visit(scenario, "Uno")


def test_a_request_with_a_call_has_two_answers_and_the_result_between_them():
    async def scenario(page):
        since = len(page.posted)
        await page.send("One")
        told = [kind for kind in kinds(page, since=since) if kind not in ("Delta", "Prefill", "PromptReady", "Fitted")]
        assert told == [
            "Shown",
            "ToolCall",
            "Shown",
            "Step",
            "ToolStarted",
            "Shown",
            "ToolEnded",
            "Step",
            "Shown",
            "Finished",
        ]
        assert [step.to for step in page.of_kind(protocol.Step)] == ["tools", "answer"]
        assert [(m["role"], m["text"], m["state"]) for m in page.messages] == [
            ("user", "One", "done"),
            ("assistant", "Hm.", "done"),
            ("tool", "hi", "done"),
            ("assistant", "Uno", "done"),
        ]
        (asked,) = page.messages[1]["calls"]
        assert (asked["name"], asked["arguments"]) == ("echo", '{\n  "text": "hi"\n}')
        assert asked["id"] == page.messages[2]["call_id"] == page.of_kind(protocol.ToolStarted)[0].call
        assert page.messages[1]["stats"]["stop_reason"] == "stop"
        assert page.last.text == "Uno"

    visit(scenario, ["Hm.", *call()], "Uno", tools=[tool()])


@pytest.mark.parametrize(("allowed", "result"), [(True, ("hi", "done")), (False, (DENIED, "cancelled"))])
def test_a_call_waits_until_the_page_has_said_yes_or_no(allowed, result):
    async def scenario(page):
        answering = asyncio.ensure_future(page.send("One"))
        while not page.of_kind(protocol.ApprovalNeeded):
            await asyncio.sleep(0)
        waiting = page.last.call
        page.decide("call99999", allowed)
        page.chat.decide(99, waiting, allowed=allowed)
        for _ in range(20):
            await asyncio.sleep(0)
        assert kinds(page)[-1] == "ApprovalNeeded", "it goes on for nobody else's answer"
        page.decide(waiting, allowed)
        page.decide(waiting, not allowed)
        await answering
        assert (page.messages[2]["text"], page.messages[2]["state"]) == result
        assert [ended.state for ended in page.of_kind(protocol.ToolEnded)] == [result[1]]
        assert len(page.of_kind(protocol.ToolStarted)) == allowed
        page.decide(waiting, allowed)

    visit(scenario, call(), "Uno", tools=[tool(asks=True)])


def test_of_two_calls_the_one_that_needs_no_answer_ends_while_the_other_waits():
    async def scenario(page):
        answering = asyncio.ensure_future(page.send("One"))
        while not page.of_kind(protocol.ToolEnded):
            await asyncio.sleep(0)
        (ended,) = page.of_kind(protocol.ToolEnded)
        first, second = page.messages[1]["calls"]
        assert ended.call == second["id"]
        page.decide(first["id"])
        await answering
        assert page.texts() == ["One", "", "first", "second", "Uno"]

    visit(scenario, [*call("risky", "first"), *call("echo", "second")], "Uno", tools=[tool(), tool("risky", asks=True)])


def test_a_result_is_tried_again_as_a_branch_beside_it():
    async def scenario(page):
        await page.send("One")
        assert (page.messages[2]["text"], page.messages[2]["state"]) == ("OSError: no network", "error")
        failed = page.messages[2]["id"]
        since = len(page.posted)
        await page.retry(2)
        assert kinds(page, since=since)[0] == "Step"
        assert page.messages[2]["branches"] == [failed, page.messages[2]["id"]]
        assert page.texts()[3] == "Dos"
        page.chat.select(failed)
        assert page.texts()[3] == "Uno"

    visit(scenario, call(), "Uno", "Dos", tools=[tool(run=_fail)])


def test_a_call_whose_tool_is_not_offered_any_more_cannot_be_tried_again_and_nothing_changes():
    async def scenario(page):
        await page.send("One")
        before = page.texts()
        page.settings = SETTINGS
        with pytest.raises(ParameterError, match="unknown tool 'echo'"):
            await page.retry(2)
        assert page.texts() == before

    visit(scenario, call(), "Uno", tools=[tool()])


def test_stop_while_a_call_waits_keeps_the_answer_and_the_model_never_sees_a_call_without_a_result():
    async def scenario(page):
        page.on(protocol.ApprovalNeeded, page.stop)
        await page.send("One")
        assert (page.last.reason, page.texts()) == ("cancelled", ["One", "Hm."])
        await page.send("Two")
        assert "<call>" not in prompts(page.executor, page.engine.model)[-1]
        assert page.texts() == ["One", "Hm.", "Two", "Dos"]

    visit(scenario, ["Hm.", *call()], "Dos", tools=[tool(asks=True)])


def test_a_new_chat_while_a_call_waits_leaves_it_behind():
    async def scenario(page):
        page.on(protocol.ApprovalNeeded, page.chat.new_chat)
        await page.send("One")
        assert (page.messages, page.last.reason) == ([], "cancelled")

    visit(scenario, call(), tools=[tool(asks=True)])


def test_a_reload_while_a_call_waits_finds_the_answer_whole_and_the_call_without_a_result():
    async def scenario(page):
        answering = asyncio.ensure_future(page.send("One"))
        while not page.of_kind(protocol.ApprovalNeeded):
            await asyncio.sleep(0)
        await page.settle()
        later = await Page("Dos", store=page.store).open()
        assert later.messages == page.messages
        assert [(m["role"], m["state"], len(m["calls"])) for m in later.messages] == [
            ("user", "done", 0),
            ("assistant", "done", 1),
        ]
        await later.send("Two")
        assert "<call>" not in prompts(later.executor, later.engine.model)[-1]
        page.stop()
        await answering

    visit(scenario, call(), tools=[tool(asks=True)])


def test_the_page_is_told_when_a_model_does_not_stop_asking():
    async def scenario(page):
        allow_all(page)
        await page.send("One")
        assert [message.rounds for message in page.of_kind(protocol.ToolRoundsExhausted)] == [8]
        assert page.last.reason == "stop"
        assert page.messages[-1]["calls"]

    visit(scenario, *[call()] * 9, tools=[tool(asks=True)])


# ---------------------------------------------------------------------------------------------------- the system prompt


def test_the_system_prompt_belongs_to_the_conversation_and_is_kept_with_it():
    async def scenario(page):
        await page.send("One")
        page.chat.set_system("Be brief.")
        assert page.last == protocol.System("Be brief.", 0.0)
        await page.send("Two")
        assert "<|im_start|>system\nBe brief.<|im_end|>" in prompts(page.executor, page.engine.model)[-1]
        assert page.texts() == ["One", "Uno", "Two", "Dos"]
        await page.settle()
        later = await Page(store=page.store).open()
        assert [message.text for message in later.of_kind(protocol.System)] == ["Be brief."]
        later.chat.new_chat()
        assert later.of_kind(protocol.System)[-1].text == ""

    visit(scenario, "Uno", "Dos")


def test_a_system_prompt_is_kept_before_there_is_a_message_and_taken_away_by_an_empty_one():
    async def scenario(page):
        page.chat.set_system("Be brief.")
        await page.settle()
        later = await Page("Uno", store=page.store).open()
        assert later.of_kind(protocol.System)[-1].text == "Be brief."
        later.chat.set_system("")
        await later.send("One")
        assert "system" not in prompts(later.executor, later.engine.model)[-1]
        await later.settle()
        assert (await Page(store=page.store).open()).of_kind(protocol.System) == []

    visit(scenario)


def test_the_system_prompt_does_not_change_under_an_answer_or_before_there_is_a_conversation():
    async def scenario(page):
        page.on(protocol.Delta, lambda: page.chat.set_system("Be brief."))
        await page.send("One")
        assert page.of_kind(protocol.System) == []
        early = Page()
        early.chat.set_system("Be brief.")
        assert early.posted == []

    visit(scenario, "Uno")


def test_what_cannot_be_seen_of_arguments_or_turns_them_round_is_escaped():
    async def scenario(page):
        await page.send("Use it")
        arguments = page.messages[1]["calls"][0]["arguments"]
        assert arguments == '{\n  "text": "a\\u202eb\\u2028\\u200b\\udb40\\udc41 ü 字 👨\u200d👩"\n}'
        assert page.messages[2]["text"] == "a\u202eb\u2028\u200b\U000e0041 ü 字 👨\u200d👩"

    text = "a\\u202eb\\u2028\\u200b\\udb40\\udc41 ü 字 👨\\u200d👩"
    visit(scenario, call(text=text), "So", tools=[tool()])


def test_a_stop_wins_over_the_permission_that_comes_right_behind_it():
    ran = []

    async def run(arguments):
        ran.append(arguments)
        return "ran"

    async def scenario(page):
        answering = asyncio.ensure_future(page.send("One"))
        while not page.of_kind(protocol.ApprovalNeeded):
            await asyncio.sleep(0)
        page.stop()
        page.decide(page.last.call)
        await answering
        await asyncio.sleep(0)
        assert ran == []
        assert page.texts() == ["One", ""]

    visit(scenario, call(), "So", tools=[tool(run=run, asks=True)])


def test_a_call_has_an_id_that_no_call_of_a_conversation_from_elsewhere_has():
    async def run():
        store, old = MemoryTexts(), Call("call00002", "echo", '{"text": "old"}', "raw")
        tree = Tree().ask("m0", "One", 1).add(Node("m1", "m0", "assistant", (), 1, calls=(old,)))
        await store.change("c1", lambda _: to_json(tree))
        page = await Page(call() + call(), "So", store=store, tools=[tool()]).open()
        await page.send("Two")
        assert [one["id"] for message in page.messages for one in message["calls"]] == [
            "call00002",
            "call00001",
            "call00003",
        ]

    asyncio.run(run())
