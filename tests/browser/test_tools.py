"""Calls for tools on the page: cards, questions, results, rounds. A parrot asks for tools and all else is the real worker; at
the end, a model whose weights make it ask, on the real engine.
"""

from __future__ import annotations

import contextlib
import json
import re

import pytest
from playwright.sync_api import expect

from tests.browser.chat_page import ChatPage
from tests.browser.pyodide_harness import copy_site
from tests.browser.test_conversations import wait_until_kept
from tests.speaking_model import speaking_gguf
from tooling.seed import seed_for_file

TOOLS = ("calculator", "current_time", "risky", "flaky", "forever")
HOSTILE = '<img src=x onerror="window.pwned = 1"> **bold** </call><|im_end|>'


@pytest.fixture
def tools(parrot):
    """The parrot's page with every tool offered, and with none behind the test."""
    parrot.set_tools(*TOOLS)
    yield parrot
    parrot.set_tools()


def card_states(chat):
    return [card.get_attribute("data-state") for card in chat.calls.all()]


def wait_for_question(chat, count=1):
    expect(chat.page.get_by_test_id("allow")).to_have_count(count)


def test_an_allowed_call_is_run_and_the_model_answers_again_in_the_same_request(tools):
    tools.say("/use risky hello")
    wait_for_question(tools)
    expect(tools.status).to_have_text("May risky be run? The answer waits for you")
    expect(tools.stop).to_be_visible()
    assert card_states(tools) == ["waiting"]
    card = tools.calls.first
    expect(card).to_contain_text("risky Waiting for you")
    assert json.loads(card.get_by_test_id("tool-arguments").inner_text()) == {"text": "hello"}
    tools.page.get_by_role("button", name="Allow risky", exact=True).click()
    tools.wait_for("ready")
    assert card_states(tools) == ["done"]
    expect(card).to_contain_text("risky Done")
    assert [message.get_attribute("data-role") for message in tools.messages().all()] == [
        "user",
        "assistant",
        "tool",
        "assistant",
    ]
    expect(tools.results).to_have_text(["hello"])
    expect(tools.messages("assistant").first.get_by_test_id("message-text")).to_have_text("Round 1.")
    expect(tools.answer_text()).to_have_text("They gave: hello")
    for answer in tools.messages("assistant").all():
        expect(answer).to_have_attribute("data-state", "done")
        expect(answer.get_by_test_id("stats")).to_be_visible()
    assert "RAW" not in tools.page.locator("#messages").text_content()


def test_a_call_that_is_not_allowed_is_not_run_and_the_model_is_told(tools):
    tools.say("/use risky hello")
    wait_for_question(tools)
    tools.page.get_by_role("button", name="Don’t allow risky").click()
    tools.wait_for("ready")
    assert card_states(tools) == ["denied"]
    expect(tools.calls.first).to_contain_text("Not allowed")
    result = tools.messages("tool")
    expect(result).to_have_attribute("data-state", "cancelled")
    expect(result).to_contain_text("Not allowed")
    expect(tools.answer_text()).to_have_text("They gave: The user did not allow this call.")


def test_a_tool_that_needs_no_approval_runs_by_itself_and_really(tools):
    asked = len(tools.posted("ApprovalNeeded"))
    tools.ask("/use calculator 6*7 and calculator 1/0")
    expect(tools.results.first).to_have_text("42")
    assert card_states(tools) == ["done", "failed"]
    assert len(tools.posted("ApprovalNeeded")) == asked


def test_the_clock_knows_the_users_own_time(browser, parrot_session):
    with contextlib.closing(browser.new_context(timezone_id="Asia/Kolkata")) as context:
        chat = ChatPage(context.new_page()).open(parrot_session[0].page.url)
        chat.set_tools("current_time")
        chat.ask("/use current_time")
        told = json.loads(chat.results.first.inner_text())
    assert told["utc_offset"] == "+0530"
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", told["date"])


def test_a_call_that_fails_says_why_and_running_it_again_makes_a_branch_beside_the_result(tools):
    tools.ask("/use flaky hello")
    if tools.messages("tool").get_attribute("data-state") == "done":  # it fails every other time
        tools.start_anew().ask("/use flaky hello")
    result = tools.messages("tool")
    expect(result).to_have_attribute("data-state", "error")
    expect(result).to_contain_text("Failed")
    expect(tools.results).to_have_text(["OSError: no network"])
    assert card_states(tools) == ["failed"]
    result.get_by_test_id("retry").click()
    tools.wait_for("ready")
    expect(tools.results).to_have_text(["hello"])
    assert card_states(tools) == ["done"]
    expect(tools.answer_text()).to_have_text("They gave: hello")
    expect(result.get_by_test_id("branch")).to_have_text("2 of 2")
    result.get_by_test_id("branch-prev").press("Enter")
    expect(tools.results).to_have_text(["OSError: no network"])
    expect(tools.answer_text()).to_have_text("They gave: OSError: no network")
    assert card_states(tools) == ["failed"]
    expect(result.get_by_test_id("branch-next")).to_be_focused()


def test_a_call_that_is_run_again_is_asked_about_again_and_stop_leaves_the_old_result(tools):
    tools.say("/use risky hello")
    wait_for_question(tools)
    tools.page.get_by_test_id("deny").click()
    tools.wait_for("ready")
    tools.messages("tool").get_by_test_id("retry").click()
    wait_for_question(tools)
    expect(tools.messages()).to_have_count(2)
    tools.stop.click()
    tools.wait_for("ready")
    expect(tools.messages()).to_have_count(4)
    assert card_states(tools) == ["denied"]
    expect(tools.messages("tool").get_by_test_id("branch")).to_have_count(0)


def test_calls_of_one_answer_stand_side_by_side_and_each_is_decided_by_itself(tools):
    tools.say("/use risky one and calculator 1/0 and risky two")
    wait_for_question(tools, 2)
    expect(tools.status).to_have_text("May 2 tools be run? The answer waits for you")
    expect(tools.calls.nth(1)).to_have_attribute("data-state", "failed")  # it waited for nobody
    tools.calls.nth(2).get_by_test_id("allow").click()
    expect(tools.calls.nth(2)).to_have_attribute("data-state", "done")
    expect(tools.calls.first.get_by_test_id("allow")).to_be_focused()
    tools.page.keyboard.press("Tab")
    expect(tools.calls.first.get_by_test_id("deny")).to_be_focused()
    tools.page.keyboard.press("Enter")
    tools.wait_for("ready")
    expect(tools.composer).to_be_focused()
    assert card_states(tools) == ["denied", "failed", "done"]
    assert [message.get_attribute("data-state") for message in tools.messages("tool").all()] == [
        "cancelled",
        "error",
        "done",
    ]


def test_a_request_may_have_several_rounds(tools):
    tools.say("/use risky one then risky two")
    for place in range(2):
        expect(tools.calls).to_have_count(place + 1)
        wait_for_question(tools)
        tools.page.get_by_test_id("allow").click()
    tools.wait_for("ready")
    texts = [text.inner_text() for text in tools.messages("assistant").get_by_test_id("message-text").all()]
    assert texts == ["Round 1.", "Round 2.", "They gave: one, two"]
    expect(tools.results).to_have_text(["one", "two"])
    assert "done" in tools.marks(), "each mark is made once in a request"


def test_a_model_that_does_not_stop_asking_is_stopped_and_that_is_told(tools):
    tools.ask("/use " + " then ".join(["current_time"] * 9))
    expect(tools.notice).to_contain_text("The model asked for tools 8 times in a row")
    assert card_states(tools) == ["done"] * 8 + ["unrun"]
    expect(tools.calls.last).to_contain_text("Not run")


@pytest.mark.parametrize("command", ["/use risky hello", "/use forever hello"])
def test_stop_ends_a_request_whose_call_waits_or_runs_and_the_model_never_sees_that_call(tools, command):
    tools.say(command)
    expect(tools.calls.first).to_have_attribute("data-state", re.compile("waiting|running"))
    tools.page.keyboard.press("Escape")
    tools.wait_for("ready")
    assert card_states(tools) == ["unrun"]
    expect(tools.page.get_by_test_id("allow")).to_have_count(0)
    expect(tools.messages()).to_have_count(2)
    tools.ask("/history")
    history = json.loads(tools.answer_text().locator("code").text_content())
    assert history[1] == {"role": "assistant", "content": "Round 1."}


def test_a_new_chat_leaves_a_call_that_waits_behind(tools):
    tools.say("/use risky hello")
    wait_for_question(tools)
    tools.start_anew()
    assert tools.ask("Hello") == "Hello"


def test_a_reload_while_a_call_waits_shows_the_answer_and_that_the_call_was_not_run(browser, parrot_session):
    with contextlib.closing(browser.new_context()) as context:
        chat = ChatPage(context.new_page()).open(parrot_session[0].page.url)
        chat.set_tools("risky")
        chat.say("/use risky hello")
        wait_for_question(chat)
        wait_until_kept(chat, "call00001")
        chat.page.reload()
        chat.wait_for("ready")
        assert card_states(chat) == ["unrun"]
        expect(chat.page.get_by_test_id("allow")).to_have_count(0)
        chat.answer.get_by_test_id("regenerate").click()
        wait_for_question(chat)
        chat.page.get_by_test_id("allow").click()
        chat.wait_for("ready")
        expect(chat.results).to_have_text(["hello"])
        wait_until_kept(chat, "They gave: hello")
        chat.page.reload()
        chat.wait_for("ready")
        assert card_states(chat) == ["done"]
        expect(chat.results).to_have_text(["hello"])
        chat.messages("tool").get_by_test_id("retry").click()
        wait_for_question(chat)


def test_arguments_and_results_are_text_whatever_they_hold(tools):
    tools.say(f"/use risky {HOSTILE}")
    wait_for_question(tools)
    arguments = tools.calls.first.get_by_test_id("tool-arguments")
    assert json.loads(arguments.text_content()) == {"text": HOSTILE}
    tools.page.get_by_test_id("allow").click()
    tools.wait_for("ready")
    for place in (arguments, tools.results.first):
        assert place.evaluate("e => e.childElementCount") == 0
    assert tools.results.first.text_content() == HOSTILE
    assert tools.page.evaluate("window.pwned") is None


def test_a_long_result_is_closed_until_it_is_opened(tools):
    tools.say("/use risky " + "x" * 400)
    wait_for_question(tools)
    tools.page.get_by_test_id("allow").click()
    tools.wait_for("ready")
    expect(tools.results).to_be_hidden()
    tools.messages("tool").locator("summary").press("Enter")
    expect(tools.results).to_have_text(["x" * 400])


def test_focus_stays_in_the_composer_when_a_call_begins_to_wait(tools):
    """Who is typing must not allow anything by the way."""
    tools.say("/use risky hello")
    tools.composer.fill("next")
    wait_for_question(tools)
    expect(tools.composer).to_be_focused()
    tools.page.keyboard.press("Enter")
    expect(tools.calls.first).to_have_attribute("data-state", "waiting")
    tools.stop.click()
    tools.wait_for("ready")


def test_cards_have_names_for_screen_readers_and_the_status_asks(tools):
    tools.say("/use risky hello")
    group = tools.page.get_by_role("group", name="Call of risky")
    expect(group.get_by_role("button")).to_have_text(["Allow", "Don’t allow"])
    expect(tools.page.get_by_role("status")).to_have_text("May risky be run? The answer waits for you")
    expect(tools.messages("assistant").first).not_to_have_attribute("aria-busy", "true")
    tools.stop.click()
    tools.wait_for("ready")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_cards_have_contrast_and_fit_a_narrow_screen(tools, scheme):
    """WCAG 2.2 AA: 4.5 to 1 for text of this size."""
    tools.page.emulate_media(color_scheme=scheme)
    tools.page.set_viewport_size({"width": 320, "height": 700})
    long = "x" * 120
    tools.say(f"/use risky {long} and calculator {long} and risky b")
    wait_for_question(tools, 2)
    ratios = tools.contrasts()
    assert {"Waiting for you", "Failed", "Don’t allow"} <= set(ratios)
    assert {words: ratio for words, ratio in ratios.items() if ratio < 4.5} == {}
    assert tools.page.evaluate("document.documentElement.scrollWidth") <= 320
    for choice in ("allow", "deny"):
        tools.page.get_by_test_id(choice).first.click()
    tools.wait_for("ready")
    ratios = tools.contrasts()
    assert {"Done", "Not allowed", "Result of risky", "Retry"} <= set(ratios)
    assert {words: ratio for words, ratio in ratios.items() if ratio < 4.5} == {}
    tools.page.set_viewport_size({"width": 1280, "height": 720})
    tools.page.emulate_media(color_scheme=None)


# ---------------------------------------------------------------------------------------------- with nothing in its place

ASKS_FIRST = """
import dataclasses

TOOLS["calculator"] = dataclasses.replace(TOOLS["calculator"], needs_approval=True)
"""


@pytest.fixture(scope="module")
def asking_site(site, tmp_path_factory):
    """The built site with a calculator that asks before each call."""
    target = copy_site(site, tmp_path_factory.mktemp("asking") / "site")
    worker = target / "worker.py"
    source = worker.read_text(encoding="utf-8")
    worker.unlink()  # it may be a hard link
    worker.write_text(source + ASKS_FIRST, encoding="utf-8")
    return target


def open_speaker(page, server, tmp_path, call, **options):
    """The page with a model that makes this call, and then says "So it is."; the calculator is offered."""
    path = tmp_path / "speaker.gguf"
    path.write_bytes(speaking_gguf(call, "So it is."))
    running = server(model=seed_for_file(path), **options)
    chat = ChatPage(page).open(f"{running.url}?temperature=0&executor=wasm")
    return chat.set_tools("calculator")


def calculation(expression):
    return json.dumps({"name": "calculator", "arguments": {"expression": expression}})


def test_case_9_a_real_model_asks_and_its_call_is_allowed_denied_and_tried_again(
    page, problems, server, asking_site, tmp_path
):
    chat = open_speaker(page, server, tmp_path, calculation("6*7"), site=asking_site)
    chat.say("What is six times seven?")
    wait_for_question(chat)
    expect(chat.messages("assistant").get_by_test_id("message-text")).to_have_text([""])
    arguments = chat.calls.first.get_by_test_id("tool-arguments").inner_text()
    assert json.loads(arguments) == {"expression": "6*7"}
    chat.page.get_by_test_id("allow").click()
    chat.wait_for("ready")
    expect(chat.results).to_have_text(["42"])
    expect(chat.answer_text()).to_have_text("So it is.")
    asked, answered = (int(answer.get_attribute("data-prompt-tokens")) for answer in chat.messages("assistant").all())
    assert answered > asked + len(calculation("6*7")), "the model has read its call and the result"
    assert int(chat.answer.get_attribute("data-cached-tokens")) >= asked - 1

    chat.messages("tool").get_by_test_id("retry").click()
    wait_for_question(chat)
    chat.page.get_by_test_id("deny").click()
    chat.wait_for("ready")
    expect(chat.results).to_have_text(["The user did not allow this call."])
    assert card_states(chat) == ["denied"]
    chat.messages("tool").get_by_test_id("retry").click()
    wait_for_question(chat)
    chat.page.get_by_test_id("allow").click()
    chat.wait_for("ready")
    expect(chat.results).to_have_text(["42"])
    expect(chat.messages("tool").get_by_test_id("branch")).to_have_text("3 of 3")
    assert "6*7" not in chat.answer_text().inner_text()
    assert problems == []


def test_case_9_a_real_models_call_that_fails_is_told_to_it_and_fails_again(page, problems, server, tmp_path):
    chat = open_speaker(page, server, tmp_path, calculation("1/0"))
    chat.ask("What is one divided by zero?")
    assert card_states(chat) == ["failed"]
    expect(chat.results.first).to_contain_text("expression")
    expect(chat.answer_text()).to_have_text("So it is.")
    chat.messages("tool").get_by_test_id("retry").click()
    chat.wait_for("ready")
    assert card_states(chat) == ["failed"]
    expect(chat.messages("tool").get_by_test_id("branch")).to_have_text("2 of 2")
    assert problems == []


@pytest.mark.parametrize(
    ("call", "problem"),
    [
        ('{"name": "calculator", "arguments": {"expression": "6*7"}', "invalid JSON"),
        ('{"name": "rm", "arguments": {}}', "unknown tool 'rm'"),
    ],
)
def test_case_9_a_real_models_malformed_call_is_shown_as_such_and_is_no_answer(
    page, problems, server, tmp_path, call, problem
):
    chat = open_speaker(page, server, tmp_path, call)
    assert chat.ask("What is six times seven?") == ""
    assert card_states(chat) == ["invalid"]
    expect(chat.calls.locator("summary")).to_contain_text(f"Invalid tool call: {problem}")
    expect(chat.messages()).to_have_count(2)
    first = int(chat.answer.get_attribute("data-prompt-tokens"))
    chat.ask("And now?")
    new = len("user\nAnd now?\nassistant\n") + 8
    assert int(chat.answer.get_attribute("data-prompt-tokens")) < first + new, "the model is not shown it again"
    assert problems == []
