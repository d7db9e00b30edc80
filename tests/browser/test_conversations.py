"""Conversations on the page, with a parrot for a model: branches, continuing, reloads and tabs."""

from __future__ import annotations

import contextlib

import pytest
from playwright.sync_api import expect

from tests.browser.chat_page import READY_WITHIN_MS, ChatPage, edit, texts, wait_until_kept


def test_an_edit_turns_the_bubble_into_a_text_field_and_escape_leaves_all_as_it_was(parrot):
    parrot.ask("one")
    question = parrot.messages("user").first
    question.get_by_role("button", name="Edit").click()
    field = question.get_by_role("textbox", name="Edit message")
    expect(field).to_be_focused()
    assert field.input_value() == "one"
    field.press("Shift+Enter")
    field.press("Escape")
    expect(field).to_have_count(0)
    expect(question.get_by_test_id("edit")).to_be_focused()
    assert texts(parrot) == ["one", "one"]


def test_an_edit_is_a_branch_and_the_old_one_is_reached_with_the_keyboard(parrot):
    parrot.ask("one")
    parrot.ask("two")
    edit(parrot, 0, "three")
    parrot.wait_for("ready")
    expect(parrot.composer).to_be_focused()
    assert texts(parrot) == ["three", "three"]
    question = parrot.messages("user").first
    expect(question.get_by_test_id("branch")).to_have_text("2 of 2")
    behind, before = (question.get_by_role("button", name=f"{which} version") for which in ("Next", "Previous"))
    expect(behind).to_be_disabled()
    opacity = "e => Number(getComputedStyle(e).opacity)"
    assert behind.evaluate(opacity) < before.evaluate(opacity) == 1  # and it can be seen
    before.press("Enter")
    expect(parrot.messages()).to_have_count(4)
    assert texts(parrot) == ["one", "one", "two", "two"]
    expect(parrot.messages("user").first.get_by_test_id("branch")).to_have_text("1 of 2")
    expect(parrot.messages("user").first.get_by_test_id("branch-next")).to_be_focused()


def test_each_new_attempt_is_an_answer_beside_the_others(parrot):
    parrot.ask("/count")
    for _ in range(2):
        parrot.answer.get_by_test_id("regenerate").click()
        parrot.wait_for("ready")
    expect(parrot.answer.get_by_test_id("branch")).to_have_text("3 of 3")
    last = int(parrot.answer_text().inner_text())
    parrot.answer.get_by_test_id("branch-prev").click()
    expect(parrot.answer_text()).to_have_text(str(last - 1))
    expect(parrot.answer.get_by_test_id("branch")).to_have_text("2 of 3")


def test_what_changes_the_conversation_is_out_of_reach_while_an_answer_is_written(parrot):
    parrot.ask("one")
    parrot.say("/slow two")
    expect(parrot.answer_text()).to_have_text("two")
    for name in ("edit", "regenerate"):
        expect(parrot.page.get_by_test_id(name).first).to_be_hidden()
    parrot.stop.click()
    parrot.wait_for("ready")
    expect(parrot.page.get_by_test_id("edit").first).to_be_visible()


def test_a_stopped_answer_goes_on_where_it_ended(parrot):
    parrot.say("/slow Hello")
    expect(parrot.answer_text()).to_have_text("Hello")
    parrot.stop.click()
    parrot.wait_for("ready")
    parrot.answer.get_by_test_id("continue").click()
    expect(parrot.answer_text()).to_have_text("Hello and on")
    expect(parrot.answer).to_have_attribute("data-state", "streaming")
    parrot.stop.click()
    parrot.wait_for("ready")
    expect(parrot.answer_text()).to_have_text("Hello and on")
    expect(parrot.answer.get_by_test_id("branch")).to_have_text("2 of 2")
    expect(parrot.messages()).to_have_count(2)


def test_a_message_sent_while_an_answer_is_written_is_refused_in_words_and_kept(parrot):
    parrot.say("/slow Hello")
    expect(parrot.answer_text()).to_have_text("Hello")
    parrot.say("next")
    expect(parrot.notice).to_contain_text("An answer is being written. Wait for it to finish, or stop it first.")
    assert parrot.composer.input_value() == "next"
    parrot.stop.click()
    parrot.wait_for("ready")
    expect(parrot.notice).to_be_hidden()
    expect(parrot.messages()).to_have_count(2)


def test_an_edit_that_fails_leaves_the_old_branch_and_gives_the_words_back(parrot):
    parrot.ask("one")
    edit(parrot, 0, "/fail ")
    expect(parrot.notice).to_contain_text("ContextOverflowError")
    assert texts(parrot) == ["one", "one"]
    assert parrot.composer.input_value() == "/fail "


@pytest.fixture
def open_parrot(browser, parrot_session):
    """A function that opens the parrot's page in a new tab of one fresh browser profile."""
    with contextlib.closing(browser.new_context()) as context:
        yield lambda until="ready": ChatPage(context.new_page()).open(parrot_session[0].page.url, until=until)


def test_a_reload_shows_the_conversation_before_the_model_is_there(open_parrot):
    chat = open_parrot()
    chat.ask("/think Hm|one")
    edit(chat, 0, "two **bold**")
    chat.wait_for("ready")
    wait_until_kept(chat, "two **bold**")
    chat.page.reload()
    expect(chat.messages()).to_have_count(2, timeout=READY_WITHIN_MS)  # Python has to start
    expect(chat.answer_text().locator("strong")).to_have_text("bold")
    chat.wait_for("ready")
    expect(chat.answer.get_by_test_id("stats")).to_be_visible()
    chat.messages("user").first.get_by_test_id("branch-prev").click()
    expect(chat.thinking.locator("summary")).to_have_text("Thought")
    assert chat.ask("three") == "three"


def test_an_answer_cut_off_by_a_reload_is_marked_and_can_be_continued(open_parrot):
    chat = open_parrot()
    chat.say("/drip Hello")
    wait_until_kept(chat, '"interrupted"')
    chat.page.reload()
    chat.wait_for("ready")
    expect(chat.answer).to_have_attribute("data-state", "interrupted")
    expect(chat.answer).to_contain_text("Interrupted")
    kept = chat.answer_text().inner_text()
    assert kept.startswith("Hello")
    chat.answer.get_by_test_id("continue").click()
    expect(chat.answer_text()).to_contain_text(f"{kept} and on")
    chat.stop.click()
    chat.wait_for("ready")


def test_after_a_new_chat_and_a_reload_the_old_conversation_does_not_come_back(open_parrot):
    chat = open_parrot()
    chat.ask("one")
    chat.new_chat.click()
    expect(chat.messages()).to_have_count(0)
    chat.page.reload()
    chat.wait_for("ready")
    expect(chat.messages()).to_have_count(0)
    chat.ask("two")
    wait_until_kept(chat, '"two"')
    wait_until_kept(chat, '"one"')


def test_two_tabs_that_write_the_same_conversation_lose_nothing(open_parrot):
    first = open_parrot()
    first.ask("one")
    wait_until_kept(first, '"one"')
    second = open_parrot()
    assert texts(second) == ["one", "one"]
    second.ask("from the second")
    first.ask("from the first")
    wait_until_kept(first, '"from the first"')
    wait_until_kept(first, '"from the second"')
    expect(first.messages("user").last.get_by_test_id("branch")).to_have_text("1 of 2")
    first.messages("user").last.get_by_test_id("branch-next").click()
    expect(first.answer_text()).to_have_text("from the second")
