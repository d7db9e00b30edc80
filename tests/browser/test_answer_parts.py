"""Thinking and calls for tools, seen from outside: shown apart, closed until they are opened, and never as the answer."""

from __future__ import annotations

import contextlib
import json
import re

import pytest
from playwright.sync_api import expect

from tests.browser.chat_page import ChatPage
from tests.tiny_model import tiny_gguf
from tooling.seed import seed_for_file

THOUGHT = "First <b>this</b>,\n  then **that** 🤔"
# A template after whose prompt the model is inside its thinking.
THINKING_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{% if m.reasoning_content %}<think>\n{{ m.reasoning_content }}\n</think>\n{% endif %}{{ m.content }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n<think>\n{% endif %}"
)


def test_thinking_stands_closed_above_the_answer_and_is_no_part_of_it(parrot):
    assert parrot.ask(f"/think {THOUGHT}|Hello") == "Hello"
    expect(parrot.answer).to_have_attribute("data-state", "done")
    summary = parrot.thinking.locator("summary")
    expect(summary).to_have_text(re.compile(r"^Thought for \d+ ms$"))
    plain = parrot.thinking.locator(".plain")
    expect(plain).to_be_hidden()
    assert parrot.thinking.evaluate("e => e.nextElementSibling.dataset.testid") == "message-text"
    summary.click()
    expect(plain).to_be_visible()
    assert plain.inner_text() == THOUGHT
    assert plain.evaluate("e => e.childElementCount") == 0, "it is shown as text, whatever it holds"


def test_the_page_says_that_the_model_thinks_and_shows_it_to_who_opens_it(parrot):
    parrot.say("/think Hm")
    expect(parrot.status).to_have_text("Thinking")
    expect(parrot.thinking.locator("summary")).to_have_text("Thinking…")
    expect(parrot.answer).to_have_attribute("data-state", "streaming")
    parrot.thinking.locator("summary").press("Enter")
    expect(parrot.thinking.locator(".plain")).to_have_text(re.compile(r"^Hm\.{5,}$"))
    expect(parrot.thinking).to_have_attribute("open", "")
    parrot.stop.click()
    parrot.wait_for("ready")


def test_an_answer_that_was_stopped_while_thinking_keeps_what_it_thought_and_is_marked(parrot):
    parrot.say("/think Hm")
    expect(parrot.thinking).to_be_visible()
    parrot.stop.click()
    parrot.wait_for("ready")
    expect(parrot.answer).to_have_attribute("data-state", "cancelled")
    expect(parrot.thinking.locator("summary")).to_have_text(re.compile(r"^Thought for .*, cut off$"))
    thought = parrot.thinking.locator(".plain").text_content()
    assert thought == parrot.posted("Finished")[-1]["reasoning"]
    assert thought.startswith("Hm")
    expect(parrot.answer).to_contain_text("Stopped")
    assert parrot.answer_text().inner_text() == ""
    expect(parrot.answer.get_by_test_id("copy")).to_have_count(0)
    assert parrot.ask("Hello again") == "Hello again"


def test_the_first_token_of_an_answer_is_the_first_of_its_thinking(parrot):
    parrot.ask("/think Hm, let me see|Hello")
    first = parrot.posted("ReasoningDelta")
    first = next(piece["at"] for piece in first if piece["id"] == parrot.posted("Finished")[-1]["id"])
    parrot.page.wait_for_function("performance.getEntriesByName('tinypylm:first-paint').length")
    marks = parrot.marks()
    assert marks["first-token"] + parrot.page.evaluate("performance.timeOrigin") == pytest.approx(first, abs=0.1)
    ttft = float(parrot.answer.get_attribute("data-ttft-ms"))
    assert ttft == pytest.approx(marks["first-token"] - marks["send"], abs=0.5)
    assert marks["first-token"] < marks["first-paint"]


def test_copy_takes_the_answer_without_its_thinking(parrot):
    parrot.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    parrot.ask("/think Hm|Some **bold** text")
    parrot.answer.get_by_test_id("copy").click()
    expect(parrot.answer.get_by_test_id("copy")).to_have_text("Copied")
    assert parrot.page.evaluate("navigator.clipboard.readText()") == "Some **bold** text"


def test_the_model_is_sent_its_thinking_apart_from_its_words(parrot):
    parrot.ask("/think Hm 🤔|Hello")
    parrot.ask('/call {"name": "f"}|Let me look')
    parrot.ask("/history")
    history = json.loads(parrot.answer_text().locator("code").text_content())
    assert history[1] == {"role": "assistant", "content": "Hello", "reasoning_content": "Hm 🤔"}
    assert history[3] == {"role": "assistant", "content": "Let me look"}


def test_a_call_that_is_not_valid_is_shown_as_such_and_never_as_the_answer(parrot):
    raw = '{"name": "f", "arguments": {"x": "<img src=x onerror=alert(1)>"}}'
    assert parrot.ask(f"/call {raw}|Let me look") == "Let me look"
    call = parrot.answer.get_by_test_id("tool-call")
    expect(call).to_have_attribute("data-state", "invalid")
    expect(call.locator("summary")).to_have_text("Invalid tool call: unknown tool 'f'")
    assert "arguments" not in parrot.answer.inner_text(), "closed until the reader opens it"
    call.locator("summary").click()
    assert call.locator(".plain").inner_text() == raw
    assert call.locator(".plain").evaluate("e => e.childElementCount") == 0
    assert parrot.answer_text().inner_text() == "Let me look"


def test_every_character_arrives_as_the_model_wrote_it(parrot):
    """Emoji are two halves for JavaScript."""
    text = "👩‍👩‍👧 🇩🇪 1️⃣ é 你好 \U0001f600"
    assert parrot.ask(f"/flood {text}") == text
    assert parrot.messages("user").get_by_test_id("message-text").inner_text() == f"/flood {text}"


def test_characters_that_cannot_cross_are_shown_as_such_and_lose_no_others(parrot):
    """A zero would end a text on its way to the page, and a lone half of a pair would become three characters."""
    write = "(composer, text) => { composer.value = text; composer.dispatchEvent(new Event('input')) }"
    parrot.composer.evaluate(f"composer => ({write})(composer, '/think q\\0w|a\\0b \\ud83d c')")
    parrot.composer.press("Enter")
    expect(parrot.answer_text()).to_have_text("a\ufffdb \ufffd c")
    expect(parrot.thinking.locator(".plain")).to_have_text("q\ufffdw")
    assert parrot.posted("Finished")[-1]["text"] == "a\0b \ufffd c", "the conversation keeps the zero"
    shown = parrot.messages("user").get_by_test_id("message-text")
    expect(shown).to_have_text("/think q\ufffdw|a\ufffdb \ufffd c")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_thinking_and_calls_have_contrast(parrot, scheme):
    """WCAG 2.2 AA: 4.5 to 1 for text of this size."""
    parrot.page.emulate_media(color_scheme=scheme)
    parrot.ask("/think Some thought|Hello")
    parrot.thinking.locator("summary").click()
    parrot.ask("/call raw text|Hello")
    parrot.answer.locator("summary").click()
    ratios = parrot.contrasts()
    assert {"Some thought", "raw text", "Invalid tool call: unknown tool 'f'"} <= set(ratios)
    assert {words: ratio for words, ratio in ratios.items() if ratio < 4.5} == {}
    parrot.page.emulate_media(color_scheme=None)


def test_long_words_of_thinking_do_not_widen_the_page(parrot):
    parrot.page.set_viewport_size({"width": 320, "height": 700})
    parrot.ask("/think " + "x" * 300 + "|Hello")
    parrot.thinking.locator("summary").click()
    assert parrot.page.evaluate("document.documentElement.scrollWidth") <= 320
    parrot.page.set_viewport_size({"width": 1280, "height": 720})


def test_a_real_models_thinking_reaches_the_page(page, problems, server, tmp_path):
    model = tmp_path / "thinker.gguf"
    model.write_bytes(tiny_gguf(tokenizer__chat_template=THINKING_TEMPLATE))
    chat = ChatPage(page).open(f"{server(model=seed_for_file(model)).url}?temperature=0&max-tokens=4")
    assert page.locator("#model").inner_text() == "thinker · wasm, F32 weights in 8 bits · 256 tokens of context"
    assert chat.ask("Hello") == ""
    expect(chat.answer).to_have_attribute("data-state", "done")
    expect(chat.answer).to_have_attribute("data-stop-reason", "length")
    expect(chat.thinking.locator("summary")).to_have_text(re.compile(r"^Thought for .*, cut off$"))
    assert chat.thinking.locator(".plain").text_content()
    assert float(chat.answer.get_attribute("data-ttft-ms")) > 0
    chat.ask("And now?")  # the template is given the thinking, and writes it
    assert int(chat.answer.get_attribute("data-cached-tokens")) > 20


def test_the_browser_is_asked_once_to_keep_the_model(browser, parrot_session):
    with contextlib.closing(browser.new_context()) as context:
        context.add_init_script(
            "window.asked = 0; navigator.storage.persist = async () => { asked++; throw new Error('no') }"
        )
        page = context.new_page()
        chat = ChatPage(page).open(parrot_session[0].page.url)
        page.wait_for_function("asked === 1")
        chat.ask("Hello")
        chat.start_anew()
        assert page.evaluate("asked") == 1


def test_a_browser_that_keeps_nothing_is_not_asked(context, problems, page, parrot_session):
    """On addresses that are no secure context there is nobody to ask."""
    context.add_init_script("delete Navigator.prototype.storage")
    chat = ChatPage(page).open(parrot_session[0].page.url)
    assert page.evaluate("'storage' in navigator") is False
    assert chat.ask("Hello") == "Hello"
    assert problems == []
