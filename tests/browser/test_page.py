"""What the page does with text, keys and failures, seen from outside; the engine is a parrot."""

from __future__ import annotations

import contextlib
import re

import pytest
from playwright.sync_api import expect

from tests.browser.chat_page import ChatPage

HOSTILE = r"""<script>window.pwned = 1</script>
<img src=x onerror="window.pwned = 1"> <svg onload="window.pwned = 1"></svg> <b onclick="window.pwned = 1">bold</b>

<iframe src="https://elsewhere.example"></iframe> <form action="https://elsewhere.example"><input name=a></form>

<style>* { display: none }</style> <math><mtext></mtext></math> <a href="javascript:window.pwned = 1">raw</a>

[a](javascript:window.pwned=1) [b](data:text/html,x) [c](JaVaScRiPt:window.pwned=1) [d](vbscript:x) [e](//elsewhere.example/x)
![pixel](https://elsewhere.example/pixel.png "x") <https://ok.example> [fine](https://ok.example/path)

```html" onmouseover="window.pwned=1
<script>window.pwned = 1</script>
```

$\color{red}{x} \href{javascript:window.pwned=1}{x}$ \(\htmlData{a=b}{x}\) $$\includegraphics{https://elsewhere.example/y.png}$$
"""

MARKDOWN = r"""# Title

Some *stress*, **more**, `code` and ~~less~~; a [link](https://ok.example).

1. one
2. two

| left | right |
|:-----|------:|
| a    | b     |

```python
def double(x: int) -> int:
    return 2 * x
```

The square: $x^2$, and $$\int_0^1 x\,dx = \frac12$$ It costs $5 and $6.
"""

# Pixels of the conversation below what is in sight.
GAP = "() => { const s = document.getElementById('scroller'); return s.scrollHeight - s.scrollTop - s.clientHeight }"
LIVE = "script, img, svg, iframe, form, input, style, object, embed, link, base, meta, video, audio"


def test_what_a_model_writes_never_becomes_live_html(parrot):
    asked = []
    parrot.page.on("request", lambda request: asked.append(request.url))
    parrot.ask(HOSTILE)
    text = parrot.answer_text()
    expect(text.locator("pre code")).not_to_have_count(0)
    assert parrot.page.evaluate("window.pwned") is None
    # KaTeX draws some signs as SVG, and its MathML has a style attribute; neither comes from the model's HTML.
    assert text.locator(LIVE).count() == 0
    attributes = text.evaluate("e => [...e.querySelectorAll('*')].flatMap(x => x.getAttributeNames())")
    assert not [name for name in attributes if name.startswith("on")]
    links = text.locator("a[href]")
    assert links.evaluate_all("links => links.map(a => a.getAttribute('href'))") == [
        "https://ok.example",
        "https://ok.example/path",
    ]
    assert set(links.evaluate_all("links => links.map(a => a.target + ' ' + a.rel)")) == {"_blank noopener noreferrer"}
    for shown in ("<script>window.pwned = 1</script>", "<b onclick=", "![pixel](https://elsewhere.example/pixel.png"):
        assert shown in text.inner_text(), "raw HTML is shown as the text it is"
    assert not [address for address in asked if "elsewhere" in address]


def test_hostile_text_is_as_harmless_while_it_streams(parrot):
    parrot.record_posts()
    parrot.page.evaluate(
        "window.seen = []; window.watch = new MutationObserver(() => seen.push("
        f"document.querySelectorAll('#messages :is({LIVE})').length));"
        "watch.observe(document.getElementById('messages'), {subtree: true, childList: true})"
    )
    parrot.ask(f"/flood {HOSTILE}")
    assert max(parrot.page.evaluate("watch.disconnect(); seen")) == 0
    assert parrot.page.evaluate("window.pwned") is None


def test_what_a_user_writes_is_shown_as_it_is(parrot):
    parrot.ask(HOSTILE)
    shown = parrot.messages("user").get_by_test_id("message-text")
    assert shown.evaluate("e => e.textContent") == HOSTILE
    assert shown.evaluate("e => e.childElementCount") == 0


def test_an_answer_is_rendered_as_markdown_with_colours_and_formulas(parrot):
    parrot.ask(MARKDOWN)
    text = parrot.answer_text()
    expect(text.locator("h1")).to_have_text("Title")
    expect(text.locator("ol li")).to_have_text(["one", "two"])
    assert text.locator("td").nth(1).get_attribute("align") == "right"
    expect(text.locator("code.language-python .hljs-keyword").first).to_have_text("def")
    expect(text.locator(".katex")).to_have_count(2)
    expect(text.locator(".katex-display")).to_have_count(1)
    expect(text).to_contain_text("It costs $5 and $6.")


def test_a_streamed_answer_ends_as_the_same_html_as_one_that_came_at_once(parrot):
    parrot.ask(MARKDOWN)
    expect(parrot.answer_text().locator(".katex")).to_have_count(2)
    at_once = parrot.answer_text().inner_html()
    parrot.start_anew().ask(f"/flood {MARKDOWN}")
    expect(parrot.answer_text().locator(".katex")).to_have_count(2)
    assert parrot.answer_text().inner_html() == at_once


def test_text_of_a_formula_that_is_none_stays_as_it_was_written(parrot):
    parrot.ask(r"An \(unknown \nosuchcommand{x}\) and $\frac{1$ stay.")
    parrot.page.wait_for_function("document.querySelectorAll('.formula').length === 2")
    expect(parrot.answer_text()).to_have_text(r"An \(unknown \nosuchcommand{x}\) and $\frac{1$ stay.")


def test_enter_sends_and_shift_enter_begins_a_line(parrot):
    parrot.composer.fill("one")
    parrot.composer.press("Shift+Enter")
    parrot.composer.press_sequentially("two")
    expect(parrot.messages()).to_have_count(0)
    parrot.composer.press("Enter")
    expect(parrot.messages("user").get_by_test_id("message-text")).to_have_text("one\ntwo", use_inner_text=True)
    assert parrot.composer.input_value() == ""
    expect(parrot.composer).to_be_focused()


@pytest.mark.parametrize("event", ["{key: 'Enter', isComposing: true}", "{key: 'Enter', keyCode: 229}"])
def test_enter_of_an_input_method_does_not_send(parrot, event):
    parrot.composer.fill("かな")
    parrot.composer.evaluate(f"e => e.dispatchEvent(new KeyboardEvent('keydown', {{bubbles: true, ...{event}}}))")
    expect(parrot.messages()).to_have_count(0)
    assert parrot.composer.input_value() == "かな"


def test_the_send_button_is_there_for_a_message_and_no_other_time(parrot):
    expect(parrot.send).to_be_disabled()
    parrot.composer.fill("  ")
    expect(parrot.send).to_be_disabled()
    parrot.composer.fill("Hello")
    expect(parrot.send).to_be_enabled()
    expect(parrot.stop).to_be_hidden()
    parrot.send.click()
    expect(parrot.answer_text()).to_have_text("Hello")


def test_escape_stops_and_what_was_said_stays(parrot):
    parrot.say("/slow Hello")
    expect(parrot.answer_text()).to_have_text("Hello")
    expect(parrot.send).to_be_hidden()
    expect(parrot.stop).to_be_visible()
    parrot.page.keyboard.press("Escape")
    parrot.wait_for("ready")
    expect(parrot.answer).to_have_attribute("data-state", "cancelled")
    expect(parrot.answer_text()).to_have_text("Hello")
    expect(parrot.answer).to_contain_text("Stopped")


def test_a_message_can_be_typed_while_an_answer_runs_and_is_not_sent_by_it(parrot):
    parrot.say("/slow Hello")
    parrot.composer.fill("next")
    parrot.composer.press("Enter")
    expect(parrot.messages("user")).to_have_count(1)
    assert parrot.composer.input_value() == "next"
    parrot.stop.click()
    parrot.wait_for("ready")
    assert parrot.composer.input_value() == "next"


def test_stopping_before_the_first_word_gives_the_message_back(parrot):
    parrot.say("/wait for nothing")
    expect(parrot.answer).to_have_attribute("data-state", "streaming")
    parrot.composer.fill("newer")
    parrot.stop.click()
    parrot.wait_for("ready")
    expect(parrot.messages()).to_have_count(0)
    assert parrot.composer.input_value() == "/wait for nothing\nnewer"


def test_a_message_that_fails_comes_back_and_the_chat_goes_on(parrot):
    parrot.say("/fail ")
    expect(parrot.notice).to_contain_text(
        "ContextOverflowError prompt: too long: it needs 6 tokens and the context has 8. Shorten it"
    )
    expect(parrot.messages()).to_have_count(0)
    assert parrot.composer.input_value() == "/fail "
    assert parrot.ask("Hello") == "Hello"
    expect(parrot.notice).to_be_hidden()


def test_an_answer_that_breaks_off_stays_and_is_marked(parrot):
    parrot.say("/fail half a word")
    expect(parrot.notice).to_be_visible()
    expect(parrot.answer).to_have_attribute("data-state", "error")
    expect(parrot.answer_text()).to_have_text("half a word")
    assert parrot.composer.input_value() == ""


def test_a_new_chat_drops_the_answer_that_was_being_written(parrot):
    parrot.say("/slow Hello")
    expect(parrot.answer_text()).to_have_text("Hello")
    parrot.new_chat.click()
    parrot.wait_for("ready")
    expect(parrot.messages()).to_have_count(0)
    assert parrot.ask("Hello again") == "Hello again"
    expect(parrot.messages()).to_have_count(2)


def test_late_pieces_of_an_old_answer_are_dropped(parrot):
    parrot.ask("first")
    old = parrot.posted("Finished")[-1]["id"]
    parrot.say("/slow second")
    expect(parrot.answer_text()).to_have_text("second")
    parrot.receive({"type": "Delta", "id": old, "text": "late"})
    parrot.stop.click()
    parrot.wait_for("ready")
    assert [text.inner_text() for text in parrot.page.get_by_test_id("message-text").all()] == [
        "first",
        "first",
        "/slow second",
        "second",
    ]


def test_copy_puts_the_answers_source_on_the_clipboard(parrot):
    parrot.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    parrot.ask("Some **bold** text")
    button = parrot.answer.get_by_test_id("copy")
    button.click()
    expect(button).to_have_text("Copied")
    assert parrot.page.evaluate("navigator.clipboard.readText()") == "Some **bold** text"


def test_what_has_settled_of_a_streaming_answer_is_not_rendered_again(parrot):
    parrot.say("/slow first block\n\nsecond block, which goes on")
    expect(parrot.answer_text()).to_contain_text("second block")
    parrot.page.evaluate("window.settled = document.querySelector('.settled p')")
    expect(parrot.answer_text()).to_contain_text("goes on")
    assert parrot.page.evaluate("settled.isConnected && settled.textContent") == "first block"
    parrot.stop.click()
    parrot.wait_for("ready")


def test_showing_a_growing_block_leaves_most_of_the_time_to_others(parrot):
    """The longer a frame took, the longer the next one waits."""
    parrot.page.evaluate(
        "() => { window.shown = []; const frame = requestAnimationFrame.bind(window);"
        "window.requestAnimationFrame = show => frame(time => {"
        " const began = performance.now(); show(time); shown.push([began, performance.now()]) }) }"
    )
    parrot.composer.fill("/drip ```python\n" + "x = compute(y, z)  # some comment\n" * 1500)
    parrot.composer.press("Enter")
    parrot.page.wait_for_function("shown.filter(([began, ended]) => ended - began > 5).length > 10")
    parrot.stop.click()
    parrot.wait_for("ready")
    frames = [(began, ended) for began, ended in parrot.page.evaluate("shown") if ended - began > 5]
    busy = sum(ended - began for began, ended in frames[:-1])
    assert busy < 0.4 * (frames[-1][0] - frames[0][0])


def test_the_page_follows_an_answer_unless_the_reader_has_scrolled_away(parrot):
    parrot.ask("line\n\n" * 100)
    assert parrot.page.evaluate(GAP) < 2
    parrot.page.evaluate("document.getElementById('scroller').scrollTop = 0")
    parrot.say("/slow x")
    expect(parrot.answer_text()).to_have_text("x")
    assert parrot.page.evaluate(GAP) < 2, "one's own message is scrolled to"
    parrot.page.evaluate("document.getElementById('scroller').scrollTop = 0")
    parrot.stop.click()
    parrot.wait_for("ready")
    assert parrot.page.evaluate("document.getElementById('scroller').scrollTop") == 0


def test_the_page_is_there_before_any_script_has_run(browser, site, server):
    with contextlib.closing(browser.new_context(java_script_enabled=False)) as context:
        page = context.new_page()
        page.goto(server(site=site).url)
        chat = ChatPage(page)
        expect(page.get_by_role("heading", name="TinyPyLM")).to_be_visible()
        expect(chat.status).to_have_text("Starting Python")
        expect(chat.composer).to_be_editable()
        expect(chat.send).to_be_disabled()
        assert page.locator("html").get_attribute("data-app-state") == "starting"


def test_what_was_typed_survives_a_reload(page, problems, parrot_session):
    chat = ChatPage(page).open(parrot_session[0].page.url)
    chat.composer.fill("not sent yet")
    page.reload()
    chat.wait_for("ready")
    assert chat.composer.input_value() == "not sent yet"
    expect(chat.send).to_be_enabled()
    assert problems == []


def test_screen_readers_find_names_roles_and_a_quiet_log(parrot):
    page = parrot.page
    expect(page.get_by_role("textbox", name="Message")).to_be_editable()
    expect(page.get_by_role("button", name="Send")).to_be_visible()
    expect(page.get_by_role("button", name="New chat")).to_be_visible()
    expect(page.get_by_role("status")).to_have_text("Ready")
    log = page.get_by_role("log", name="Conversation")
    expect(log).to_have_attribute("aria-live", "polite")
    parrot.say("/slow Hello")
    expect(parrot.answer).to_have_attribute("aria-busy", "true")  # read out when it is whole, not piece by piece
    expect(page.get_by_role("button", name="Stop")).to_be_visible()
    expect(parrot.answer_text()).to_have_text("Hello")  # before that, Escape would take the question back
    parrot.page.keyboard.press("Escape")
    parrot.wait_for("ready")
    expect(parrot.answer).not_to_have_attribute("aria-busy", re.compile(".*"))
    expect(page.get_by_role("article", name="Assistant")).to_have_count(1)
    parrot.say("/fail ")
    expect(page.get_by_role("alert")).to_contain_text("too long")


def test_the_keyboard_alone_reaches_everything(parrot):
    parrot.ask("Hello")
    reached = set()
    parrot.composer.focus()
    parrot.composer.fill("x")
    for _ in range(8):
        parrot.page.keyboard.press("Tab")
        reached.add(parrot.page.evaluate("document.activeElement.dataset.testid"))
    assert {"send", "copy", "new-chat"} <= reached


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_contrast_in_both_colour_schemes(parrot, scheme):
    """WCAG 2.2 AA: 4.5 to 1 for text of this size."""
    parrot.page.emulate_media(color_scheme=scheme)
    parrot.ask("Hello [link](https://ok.example) `code`")
    parrot.say("/fail ")
    expect(parrot.notice).to_be_visible()
    ratios = parrot.contrasts()
    assert len(ratios) > 8
    assert {words: ratio for words, ratio in ratios.items() if ratio < 4.5} == {}
    parrot.page.emulate_media(color_scheme=None)


@pytest.mark.parametrize("width", [320, 1280])
def test_nothing_is_cut_off_on_narrow_and_wide_screens(parrot, width):
    parrot.page.set_viewport_size({"width": width, "height": 700})
    parrot.ask("A long-word-" + "x" * 300 + "\n\n```\n" + "y" * 300 + "\n```\n\n|" + "cell|" * 30 + "\n|" + "-|" * 30)
    assert parrot.page.evaluate("document.documentElement.scrollWidth") <= width
    for part in (parrot.composer, parrot.send, parrot.new_chat):
        box = part.bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= width
    parrot.page.set_viewport_size({"width": 1280, "height": 720})


def test_the_end_stays_in_sight_when_a_keyboard_or_a_long_draft_takes_room(parrot):
    """The last lines were behind the composer, and the page no longer followed an answer."""
    near_end = f"() => ({GAP})() < 2"
    parrot.ask("word\n\n" * 60)
    parrot.page.set_viewport_size({"width": 400, "height": 700})
    parrot.page.wait_for_function(near_end)
    parrot.page.set_viewport_size({"width": 400, "height": 380})
    parrot.page.wait_for_function(near_end)
    parrot.composer.fill("line\n" * 8)
    parrot.page.wait_for_function(near_end)
    parrot.composer.fill("")
    parrot.page.evaluate(
        "new Promise((done) => { const s = document.getElementById('scroller');"
        " s.addEventListener('scroll', () => requestAnimationFrame(done), { once: true }); s.scrollTop = 100 })"
    )
    parrot.page.set_viewport_size({"width": 400, "height": 300})
    parrot.page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    assert parrot.page.evaluate("document.getElementById('scroller').scrollTop") == 100, "who reads above stays there"
    parrot.page.set_viewport_size({"width": 1280, "height": 720})


@pytest.mark.parametrize("width", [320, 560, 1280])
def test_what_computes_is_told_to_its_end_on_every_screen(parrot, width):
    """Beside two buttons the end of the line was cut off on every screen, and of the name a letter was left on a phone."""
    parrot.page.set_viewport_size({"width": width, "height": 700})
    model = parrot.page.locator("#model")
    told = model.inner_text()
    model.evaluate(
        "e => { e.textContent = 'SmolLM2-135M-Instruct (Q4_1) · wasm, Q6_K weights in 8 bits · 4096 tokens of context' }"
    )
    assert model.evaluate("e => e.scrollWidth <= e.clientWidth && e.scrollHeight <= e.clientHeight")
    assert model.bounding_box()["height"] < 60  # a few lines, not a column of letters
    model.evaluate("(e, told) => { e.textContent = told }", told)
    parrot.page.set_viewport_size({"width": 1280, "height": 720})


def test_nothing_moves_by_itself_while_an_answer_streams(parrot):
    """A pulsing caret had the whole page drawn sixty times a second, at the cost of the threads that compute."""
    parrot.say("/slow Hello")
    expect(parrot.answer_text()).to_have_text("Hello")
    assert parrot.page.evaluate("document.getAnimations().length") == 0
    parrot.stop.click()
    parrot.wait_for("ready")
