"""The settings dialog: system prompt, tools, thinking; how it is reached, and what stays over a reload."""

from __future__ import annotations

import contextlib
import json

import pytest
from playwright.sync_api import expect

from tests.browser.chat_page import ChatPage
from tests.browser.test_conversations import wait_until_kept


@pytest.fixture
def chat(browser, parrot_session):
    """The parrot's page in a fresh browser profile: settings outlive a conversation."""
    with contextlib.closing(browser.new_context()) as context:
        opened = ChatPage(context.new_page()).open(parrot_session[0].page.url)
        opened.record_posts()
        yield opened


def told(chat):
    """The tools and the words about thinking that the model was given."""
    return json.loads(chat.ask("/told"))


def history(chat):
    chat.ask("/history")
    return json.loads(chat.answer_text().locator("code").text_content())


def test_the_dialog_has_a_name_closes_with_escape_and_gives_the_keyboard_back(chat):
    dialog = chat.page.get_by_role("dialog", name="Settings")
    expect(dialog).to_be_hidden()
    chat.settings.press("Enter")
    expect(dialog).to_be_visible()
    assert chat.page.evaluate("document.activeElement.closest('dialog') !== null")
    expect(dialog.get_by_role("textbox", name="System prompt")).to_be_editable()
    for name in ("calculator", "current_time", "risky"):
        expect(dialog.get_by_role("group", name="Tools").get_by_role("checkbox", name=name)).not_to_be_checked()
    expect(dialog.get_by_role("checkbox", name="Let the model think before it answers")).to_be_checked()
    chat.page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    expect(chat.settings).to_be_focused()
    chat.settings.click()
    dialog.get_by_role("button", name="Close").click()
    expect(dialog).to_be_hidden()
    expect(chat.settings).to_be_focused()


def test_every_setting_is_reached_with_the_keyboard_alone(chat):
    chat.settings.press("Enter")
    reached = []
    for _ in range(16):
        reached.append(chat.page.evaluate("document.activeElement.dataset.testid"))
        chat.page.keyboard.press("Tab")
    assert {"system-prompt", "tool-switch", "thinking-switch", "settings-close"} <= set(reached)


def test_tools_are_off_until_somebody_switches_them_on_and_each_says_what_it_does(chat):
    assert told(chat) == [[], {}]
    chat.settings.click()
    clock = chat.page.get_by_role("checkbox", name="current_time")
    expect(chat.page.get_by_text("Tells the current date, weekday and time of day where the user is.")).to_be_visible()
    risky = chat.page.locator("label", has_text="risky")
    expect(risky).to_contain_text("You are asked before each call.")
    clock.press("Space")
    expect(clock).to_be_checked()
    chat.page.keyboard.press("Escape")
    assert told(chat) == [["current_time"], {}]
    chat.set_tools()
    assert told(chat) == [[], {}]


def test_thinking_is_switched_off_and_on(chat):
    chat.settings.click()
    switch = chat.page.get_by_test_id("thinking-switch")
    switch.uncheck()
    chat.page.keyboard.press("Escape")
    assert told(chat) == [[], {"enable_thinking": False}]
    chat.settings.click()
    switch.check()
    chat.page.keyboard.press("Escape")
    assert told(chat) == [[], {"enable_thinking": True}]


@pytest.mark.parametrize("way", ["Escape", "Close"])
def test_the_system_prompt_counts_from_the_next_message_on_and_the_history_stays(chat, way):
    chat.ask("one")
    chat.settings.click()
    chat.page.get_by_test_id("system-prompt").fill('Be "brief". 😀')
    if way == "Escape":
        chat.page.keyboard.press("Escape")
    else:
        chat.page.get_by_test_id("settings-close").click()
    expect(chat.messages()).to_have_count(2)
    assert history(chat)[:3] == [
        {"role": "system", "content": 'Be "brief". 😀'},
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": "one"},
    ]
    chat.settings.click()
    assert chat.page.get_by_test_id("system-prompt").input_value() == 'Be "brief". 😀'
    chat.page.get_by_test_id("system-prompt").fill("")
    chat.page.keyboard.press("Escape")
    assert history(chat)[0] == {"role": "user", "content": "one"}


def test_settings_are_there_again_after_a_reload_and_the_system_prompt_goes_with_its_conversation(chat):
    chat.set_tools("risky")
    chat.settings.click()
    chat.page.get_by_test_id("thinking-switch").uncheck()
    chat.page.get_by_test_id("system-prompt").fill("Be brief.")
    chat.page.keyboard.press("Escape")
    wait_until_kept(chat, "Be brief.")
    chat.page.reload()
    chat.wait_for("ready")
    assert told(chat) == [["risky"], {"enable_thinking": False}]
    assert history(chat)[0] == {"role": "system", "content": "Be brief."}
    chat.start_anew()
    assert history(chat)[0]["role"] == "user"
    chat.settings.click()
    assert chat.page.get_by_test_id("system-prompt").input_value() == ""
    expect(chat.page.get_by_role("checkbox", name="risky")).to_be_checked()


def test_while_an_answer_is_written_the_system_prompt_stays_as_it_is_and_escape_closes_the_dialog_only(chat):
    chat.say("/slow Hello")
    expect(chat.answer_text()).to_have_text("Hello")
    chat.settings.click()
    prompt = chat.page.get_by_test_id("system-prompt")
    expect(prompt).not_to_be_editable()
    expect(
        chat.page.get_by_text("It can be changed when the model is ready and no answer is being written.")
    ).to_be_visible()
    chat.page.keyboard.press("Escape")
    expect(chat.page.get_by_role("dialog")).to_be_hidden()
    assert chat.state == "busy"
    chat.stop.click()
    chat.wait_for("ready")


def test_a_browser_that_keeps_nothing_has_settings_for_the_visit(browser, parrot_session):
    with contextlib.closing(browser.new_context()) as context:
        context.add_init_script(
            "for (const name of ['localStorage', 'sessionStorage']) Object.defineProperty(window, name, "
            "{ get() { throw new DOMException('no', 'SecurityError') } })"
        )
        chat = ChatPage(context.new_page()).open(parrot_session[0].page.url)
        chat.set_tools("risky")
        assert told(chat)[0] == ["risky"]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [320, 1280])
def test_the_dialog_has_contrast_and_fits_the_screen(chat, scheme, width):
    """WCAG 2.2 AA: 4.5 to 1 for text of this size."""
    chat.page.emulate_media(color_scheme=scheme)
    chat.page.set_viewport_size({"width": width, "height": 600})
    assert chat.page.evaluate("document.documentElement.scrollWidth") <= width
    box = chat.settings.bounding_box()
    assert box["x"] + box["width"] <= width
    chat.settings.click()
    prompt = chat.page.get_by_test_id("system-prompt")
    assert prompt.evaluate("e => e.clientHeight / parseFloat(getComputedStyle(e).lineHeight)") > 3  # room for lines
    ratios = chat.contrasts()
    assert {"System prompt", "Tools", "Thinking", "risky", "Close"} <= set(ratios)
    assert {words: ratio for words, ratio in ratios.items() if ratio < 4.5} == {}
    dialog = chat.page.get_by_role("dialog")
    box = dialog.bounding_box()
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= width
    assert dialog.evaluate("e => e.scrollWidth <= e.clientWidth")
    chat.page.get_by_test_id("settings-close").scroll_into_view_if_needed()
    chat.page.get_by_test_id("settings-close").click()


def test_a_model_that_cannot_call_is_offered_no_tools_and_the_settings_say_why(real):
    real.settings.click()
    expect(real.page.get_by_test_id("about-tools")).to_have_text(
        "This model's chat template has no way of asking for tools, so it is offered none."
    )
    expect(real.page.get_by_test_id("tool-switch")).to_have_count(0)
    expect(real.page.get_by_test_id("thinking-switch")).to_be_hidden()
    real.page.keyboard.press("Escape")
