"""The worker's side of a conversation, without a browser: requests of the page, what it is told, and what is kept."""

from __future__ import annotations

import asyncio

import protocol
import pytest

from pyruntime.chat.tree import Node, Tree, text_content
from pyruntime.chat.tree_io import to_json
from pyruntime.conversation.shelf import MemoryTexts, Shelf
from pyruntime.errors import BusyError, ContextOverflowError, DeliveryError
from tests.worker_lab import Page, visit


def test_the_page_is_told_of_the_question_when_the_request_begins_and_of_the_answer_before_its_end():
    async def scenario(page):
        await page.send("One")
        kinds = [type(message).__name__ for message in page.posted]
        assert kinds[:5] == ["Shown", "Abilities", "Shown", "Fitted", "PromptReady"]
        assert kinds[-2:] == ["Shown", "Finished"]
        question, answer = page.messages
        assert (question["text"], answer["text"], answer["state"]) == ("One", "Uno", "done")
        assert answer["stats"]["new_tokens"] == page.last.new_tokens == 3
        await page.send("Two")
        assert [message.first for message in page.posted if isinstance(message, protocol.Shown)] == [0, 0, 1, 2, 3]

    visit(scenario, "Uno", "Dos")


def test_edits_and_new_attempts_are_branches_that_can_be_selected():
    async def scenario(page):
        await page.send("One")
        await page.send("Two")
        await page.edit(0, "1")
        assert page.texts() == ["1", "I"]
        old, new = page.messages[0]["branches"]
        assert new == page.messages[0]["id"]
        page.chat.select(old)
        assert page.texts() == ["One", "Uno", "Two", "Dos"]
        await page.regenerate(1)
        assert page.texts() == ["One", "Ein"]
        assert len(page.messages[1]["branches"]) == 2
        page.chat.select("nobody")
        assert page.texts() == ["One", "Ein"]

    visit(scenario, "Uno", "Dos", "I", "Ein")


def test_an_answer_that_was_stopped_goes_on_as_a_branch_with_its_whole_text():
    async def scenario(page):
        page.on(protocol.Delta, page.stop)
        await page.send("One")
        assert (page.texts()[1], page.messages[1]["state"]) == ("U", "cancelled")
        assert page.last.reason == "cancelled"
        await page.go_on(1)
        assert (page.texts()[1], page.messages[1]["state"]) == ("Uno", "done")
        assert len(page.messages[1]["branches"]) == 2

    visit(scenario, "Uno", "no")


@pytest.mark.parametrize("turns", range(8))
def test_stop_takes_effect_however_soon_after_the_question_it_comes(turns):
    async def scenario(page):
        answering = asyncio.ensure_future(page.send("One"))
        for _ in range(turns):
            await asyncio.sleep(0)
        page.stop()
        await answering
        assert sum(isinstance(message, protocol.Delta) for message in page.posted) <= turns
        assert page.last.reason == "cancelled"
        if not any(isinstance(message, protocol.Delta) for message in page.posted):
            assert page.messages == []

    visit(scenario, "a" * 50)


def test_stop_of_an_older_answer_does_not_end_the_present_one():
    async def scenario(page):
        await page.send("One")
        page.on(protocol.Delta, lambda: page.chat.cancel(1))
        await page.send("Two")
        assert page.texts()[-1] == "Dos"

    visit(scenario, "Uno", "Dos")


def test_a_question_without_a_word_of_an_answer_is_taken_back_and_nothing_of_it_is_kept():
    async def scenario(page):
        page.on(protocol.PromptReady, page.stop)
        await page.send("One")
        assert (page.messages, page.last.reason) == ([], "cancelled")
        await page.settle()
        assert (await Page(store=page.store).open()).messages == []

    visit(scenario, "Uno")


@pytest.mark.parametrize("wish", ["regenerate", "go_on"])
def test_a_new_attempt_that_is_stopped_before_its_first_word_leaves_the_old_answer(wish):
    async def scenario(page):
        await page.send("One")
        page.on(protocol.PromptReady, page.stop)
        await getattr(page, wish)(1)
        assert page.texts() == ["One", "Uno"]
        assert len(page.messages[1]["branches"]) == 1

    visit(scenario, "Uno", "x")


def test_a_message_that_does_not_fit_changes_nothing_and_the_error_has_the_numbers():
    async def scenario(page):
        await page.send("One")
        with pytest.raises(ContextOverflowError, match=r"it needs \d+ tokens and the context has 128"):
            await page.send("x" * 200)
        assert page.texts() == ["One", "Uno"]

    visit(scenario, "Uno", context=128)


def test_the_page_is_told_how_many_messages_were_left_out():
    async def scenario(page):
        await page.send("x" * 60)
        await page.send("y" * 60)
        fitted = [message.left_out for message in page.posted if isinstance(message, protocol.Fitted)]
        assert fitted == [0, 2]
        assert page.last.left_out == page.messages[-1]["stats"]["left_out"] == 2

    visit(scenario, "Uno", "Dos", context=160)


def test_a_second_request_is_refused_and_the_first_goes_on():
    async def scenario(page):
        first = asyncio.ensure_future(page.send("One"))
        await asyncio.sleep(0)
        with pytest.raises(BusyError):
            await page.send("Two")
        await first
        assert page.texts() == ["One", "Uno"]

    visit(scenario, "Uno")


def test_a_request_without_an_engine_is_refused():
    async def run():
        page = Page()
        await page.chat.restore(None)
        with pytest.raises(BusyError, match="the model is not there yet"):
            await page.send("One")

    asyncio.run(run())


# --------------------------------------------------------------------------------------------------------- keeping


def test_a_conversation_is_shown_again_before_there_is_an_engine():
    async def scenario(page):
        await page.send("One")
        await page.settle()
        later = Page(store=page.store)
        await later.chat.restore(None)
        assert later.messages == page.messages

    visit(scenario, "Uno")


def test_an_answer_that_a_reload_cut_off_is_interrupted_and_goes_on():
    async def scenario(page):
        seen = []

        def reload():
            page.clock += 1000
            seen.append(True)

        page.on(protocol.Delta, reload)
        answering = asyncio.ensure_future(page.send("One"))
        while not seen:
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        later = await Page("nd so on", store=page.store).open()
        assert later.messages[1]["state"] == "interrupted"
        assert later.texts()[1] == "a"
        await later.go_on(1)
        assert later.texts() == ["One", "and so on"]
        page.stop()
        await answering

    visit(scenario, "a" * 50)


def test_while_an_answer_is_written_it_is_kept_once_a_second_and_no_more_often():
    class Counting(MemoryTexts):
        writes = 0

        async def change(self, key, make):
            self.writes += 1
            await super().change(key, make)

    async def scenario(page):
        take = page._take

        def tick(message):
            page.clock += 100 if isinstance(message, protocol.Delta) else 0
            take(message)

        page.chat._post = tick
        await page.send("One")
        await page.settle()
        assert 1 + 4 <= page.store.writes <= 2 + 5 + 1  # the question, the seconds, the answer

    visit(scenario, "a" * 50, store=Counting())


def test_two_pages_that_write_the_same_conversation_lose_nothing():
    async def scenario(page):
        await page.send("One")
        await page.settle()
        other = await Page("Zwei", "Drei", store=page.store).open()
        await asyncio.gather(page.send("Two"), other.send("2"))
        await page.settle()
        await other.settle()
        await other.send("3")
        await other.settle()
        await page.edit(2, "Three")
        await page.settle()
        kept = await Shelf(page.store).read(await page.store.latest())
        texts = {node.text for node in kept.nodes.values()}
        assert texts == {"One", "Uno", "Two", "Dos", "2", "Zwei", "3", "Drei", "Three", "Tres"}
        assert page.texts() == ["One", "Uno", "Three", "Tres"], "what is shown is one's own choice"
        assert len(page.messages[2]["branches"]) == 3

    visit(scenario, "Uno", "Dos", "Tres")


def test_a_new_chat_is_another_conversation_and_the_old_one_stays():
    async def scenario(page):
        await page.send("One")
        old = page.posted[-2].conversation
        page.chat.new_chat()
        assert page.messages == []
        await page.send("Two")
        await page.settle()
        assert page.texts() == ["Two", "Dos"]
        latest = await Page(store=page.store).open()
        assert latest.texts() == ["Two", "Dos"]
        earlier = await Page(store=page.store).open(old)
        assert earlier.texts() == ["One", "Uno"]

    visit(scenario, "Uno", "Dos")


def test_a_new_chat_stops_the_answer_and_keeps_what_came_of_it():
    async def scenario(page):
        page.on(protocol.Delta, page.chat.new_chat)
        await page.send("One")
        assert (page.messages, page.last.reason) == ([], "cancelled")
        old = page.posted[0].conversation
        await page.settle()
        assert (await Page(store=page.store).open(old)).texts() == ["One", "U"]

    visit(scenario, "Uno")


def test_an_empty_conversation_is_not_kept():
    page = visit(lambda page: asyncio.sleep(0, page.chat.new_chat()))
    assert asyncio.run(page.store.latest()) is None


def test_a_conversation_that_cannot_be_kept_is_told_and_goes_on():
    class Full(MemoryTexts):
        async def change(self, key, make):
            raise DeliveryError("browser storage: no more room. Free some")

    async def scenario(page):
        await page.send("One")
        assert page.texts() == ["One", "Uno"]
        await page.settle()
        assert page.last.text == "This conversation is not kept on the device. browser storage: no more room. Free some"

    visit(scenario, "Uno", store=Full())


def test_a_stored_text_that_is_no_conversation_is_told_and_left_alone():
    async def run():
        store = MemoryTexts()
        await store.change("c1", lambda _: "{}")
        page = await Page("Uno", store=store).open()
        assert page.posted[0].text.startswith("The last conversation cannot be shown. c1: format: ")
        await page.send("One")
        await page.settle()
        assert await store.get("c1") == "{}"
        assert await store.latest() != "c1"

    asyncio.run(run())


def test_the_shelf_keeps_what_others_wrote_until_the_tree_has_it():
    async def run():
        store = MemoryTexts()
        mine, theirs = Shelf(store), Shelf(store)
        first = Tree().add(Node("m0", None, "user", text_content("One"), 1))
        await mine.write("c", first)
        await theirs.write("c", (await theirs.read("c")).ask("t1", "Two", 2))
        for name in ("n1", "n2"):
            joined = await mine.write("c", first.ask(name, "Three", 3))
            assert set(joined.nodes) == {"m0", "t1", name}
        assert set((await theirs.read("c")).nodes) == {"m0", "t1", "n2"}

    asyncio.run(run())


def test_a_stored_conversation_with_figures_that_cannot_be_is_shown_without_them():
    async def run():
        store, usage = MemoryTexts(), {"prompt_tokens": 3, "new_tokens": -5, "left_out": 10**40}
        answer = Node("m1", "m0", "assistant", (), 1, usage=usage, timings={"ttft_ms": 1e301, "decode_tps": -1.0})
        tree = Tree().ask("m0", "One", 1).add(answer)
        await store.change("c1", lambda _: to_json(tree))
        page = await Page("Uno", store=store).open()
        counts = {"prompt_tokens": 3, "cached_tokens": 0, "new_tokens": 0, "left_out": 0}
        rates = {"ttft_ms": None, "prefill_tps": None, "decode_tps": None}
        assert page.messages[1]["stats"] == {**counts, **rates, "stop_reason": ""}

    asyncio.run(run())
