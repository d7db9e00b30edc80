"""The road as a person walks it: the built site, the real model, a real browser."""

from __future__ import annotations

import os
import re
from itertools import pairwise
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import expect

from tests.browser.chat_page import ChatPage

PARIS = "What is the capital of France? Answer in one word."
LONG = "Write a long story about a dragon."


def check_same_origin(requests, url):
    """Every address that was asked for is of the page's own origin."""
    origin = url.rstrip("/")
    foreign = [address for address in requests if not address.removeprefix("blob:").startswith(f"{origin}/")]
    foreign = [address for address in foreign if not address.startswith("data:")]
    assert foreign == []


@pytest.fixture
def requested(context):
    """Every address that the context's pages and their workers ask for."""
    addresses = []
    context.on("request", lambda request: addresses.append(request.url))
    return addresses


def test_the_model_answers_paris_word_by_word(real):
    assert "Paris" in real.ask(PARIS)
    answer = real.answer
    assert answer.get_attribute("data-state") == "done"
    deltas = real.posted("Delta")[-int(answer.get_attribute("data-new-tokens")) :]
    finished = real.posted("Finished")[-1]
    assert len(deltas) == int(answer.get_attribute("data-new-tokens"))
    assert {delta["id"] for delta in deltas} == {finished["id"]}, "as many pieces as visible tokens"
    assert "".join(delta["text"] for delta in deltas) == finished["text"]


def test_an_answer_streams_over_the_whole_decode_and_not_in_a_burst(real):
    real.say(LONG)
    expect(real.answer_text()).to_have_text(re.compile(r"(\S+\s+){20}"), timeout=30_000)
    real.stop.click()
    real.wait_for("ready")
    finished = real.posted("Finished")[-1]
    deltas = [message for message in real.posted("Delta") if message["id"] == finished["id"]]
    assert len(deltas) == finished["new_tokens"]
    for clock in ("at", "arrived"):
        times = [delta[clock] for delta in deltas]
        length = finished["at"] - deltas[0]["at"]
        assert times[-1] - times[0] > 0.8 * length
        bunched = sum(later - earlier < 2 for earlier, later in pairwise(times))
        assert bunched < len(times) / 4, f"{bunched} of {len(times)} pieces came in bursts, by {clock}"


def test_stop_ends_the_answer_within_one_token_and_the_next_question_is_answered(real):
    real.say(LONG)
    expect(real.answer_text()).not_to_be_empty(timeout=30_000)
    real.stop.click()
    real.wait_for("ready")
    assert real.answer.get_attribute("data-state") == "cancelled"
    assert real.answer.get_attribute("data-stop-reason") == "cancelled"
    assert real.deltas_after_stop() <= 1
    kept = real.answer_text().inner_text()
    assert kept
    assert "Paris" in real.ask(PARIS)
    assert real.messages("assistant").first.get_by_test_id("message-text").inner_text() == kept


def test_an_answer_tells_its_figures_and_they_agree_with_the_marks(real):
    real.ask("Name a colour.")
    first = {
        name: real.answer.get_attribute(f"data-{name}") for name in ("prompt-tokens", "cached-tokens", "new-tokens")
    }
    ttft, prefill, decode = (
        float(real.answer.get_attribute(f"data-{name}")) for name in ("ttft-ms", "prefill-tps", "decode-tps")
    )
    marks = real.marks()
    order = ["start", "python-ready", "model-ready", "send", "prompt-ready", "prefill-done", "first-token", "done"]
    assert [marks[name] for name in order] == sorted(marks[name] for name in order)
    assert marks["first-paint"] > marks["first-token"]
    computed, new = int(first["prompt-tokens"]) - int(first["cached-tokens"]), int(first["new-tokens"])
    assert ttft == pytest.approx(marks["first-token"] - marks["send"], abs=0.5)
    assert prefill == pytest.approx(1000 * computed / (marks["prefill-done"] - marks["prompt-ready"]), rel=0.2)
    assert decode == pytest.approx(1000 * (new - 1) / (marks["done"] - marks["first-token"]), rel=0.2)
    assert real.answer.get_by_test_id("stats").inner_text().startswith(f"{new} token")

    real.ask("And another one.")
    cached = int(real.answer.get_attribute("data-cached-tokens"))
    assert int(first["prompt-tokens"]) <= cached < int(real.answer.get_attribute("data-prompt-tokens"))


def test_a_reload_needs_no_byte_of_the_model_again(real_session):
    chat, problems, requests = real_session
    fetched = sum(request.size for request in requests if "/seed/files/" in request.path)
    assert fetched == 98_362_432, "the model was fetched once, on the first visit"
    tables = [request.path for request in requests if "/tokenizers/" in request.path]
    assert len(tables) == 2, "the list of compiled tables, and those of the model"
    chat.page.reload()
    chat.wait_for("ready")
    chat.record_posts()
    assert "Paris" in chat.ask(PARIS)
    assert sum(request.size for request in requests if "/seed/files/" in request.path) == fetched
    assert [request.path for request in requests if "/tokenizers/" in request.path] == tables
    assert problems == []


def test_a_first_visit_says_what_it_does_and_asks_nobody_else(page, problems, requested, server):
    page.add_init_script(
        "addEventListener('securitypolicyviolation', e => console.error(`policy: ${e.violatedDirective} ${e.blockedURI}`));"
        "window.said = []; addEventListener('DOMContentLoaded', () => { const note = () => said.push("
        "[document.documentElement.dataset.appState, document.querySelector('[data-testid=status]').textContent]); note();"
        "new MutationObserver(note).observe(document.documentElement, "
        "{subtree: true, childList: true, characterData: true, attributes: true}) })"
    )
    running = server()
    chat = ChatPage(page).open(f"{running.url}?temperature=0")
    assert "Paris" in chat.ask(PARIS)

    said = page.evaluate("window.said")
    states = [state for index, (state, _) in enumerate(said) if index == 0 or said[index - 1][0] != state]
    assert states == ["starting", "fetching", "loading", "ready", "busy", "ready"]
    words = "\n".join(dict.fromkeys(text for _, text in said))
    assert words.startswith("Starting Python\nLooking up the model\nFetching the model")
    assert re.search(r"^Fetching the model: \d+ of 98 MB, \d+ MB/s$", words, re.MULTILINE)
    assert re.search(r"^Opening SmolLM2-135M-Instruct \(Q4_1\): \d+ of \d+ MB$", words, re.MULTILINE)

    assert page.evaluate("crossOriginIsolated") is True
    check_same_origin(requested, running.url)
    asked = {urlsplit(address).path for address in requested if address.startswith("http")}
    assert {request.path for request in running.requests} == asked, "the server and the browser tell the same"
    assert problems == []


def test_without_isolation_the_chat_works_the_same(page, problems, requested, server):
    running = server(isolation=False)
    chat = ChatPage(page).open(f"{running.url}?temperature=0")
    chat.record_posts()
    assert page.evaluate("crossOriginIsolated") is False
    expect(page.locator("#model")).to_contain_text("· wasm ·")
    assert len(page.workers) == 1, "the engine's own: without shared memory nobody can help it"
    assert "Paris" in chat.ask(PARIS)
    chat.say(LONG)
    expect(chat.answer_text()).not_to_be_empty(timeout=30_000)
    chat.stop.click()
    chat.wait_for("ready")
    assert chat.answer.get_attribute("data-state") == "cancelled"
    assert chat.deltas_after_stop() <= 1
    check_same_origin(requested, running.url)
    assert problems == []


def test_the_screenshot_of_the_readme_is_made_of_a_real_conversation(page, server, repo_root, tmp_path):
    """Written into the repository when UPDATE_SCREENSHOT is set: `UPDATE_SCREENSHOT=1 python tests -k screenshot`."""
    folder = repo_root / "docs" if os.environ.get("UPDATE_SCREENSHOT") else tmp_path
    page.set_viewport_size({"width": 960, "height": 720})
    chat = ChatPage(page).open(f"{server().url}?temperature=0")
    chat.ask(PARIS)
    chat.ask("Write a Python function that returns the square of a number.")
    page.mouse.move(0, 0)
    page.screenshot(path=folder / "screenshot.png", animations="disabled")
    assert 10_000 < (folder / "screenshot.png").stat().st_size < 300_000
