"""The page computes with the kernels: by itself, with as many threads as there are cores; Stop ends a computation at once."""

from __future__ import annotations

import shutil
import zipfile
from hashlib import sha256

import pytest
from playwright.sync_api import expect

from pyruntime.model import kernel_abi
from tests.browser.chat_page import ChatPage
from tests.browser.conftest import watched_chat
from tests.browser.pyodide_harness import copy_site
from tests.tiny_model import tiny_gguf
from tooling.seed import seed_for_file
from tooling.server import Server

PARIS = "What is the capital of France?"
LONG = "Tell me a long story about a dragon."
# Thousands of tokens, seconds to read.
VERY_LONG = "Which of these words is not like the others? " + "word and more " * 1000

# `stopWord` is what the worker handed out; while `holdsCancel`, messages that say Stop stay in `held`; `beforeMessage` is
# called with what the worker posts before the page's own code sees it.
SPY = """
window.held = [];
const post = MessagePort.prototype.postMessage;
MessagePort.prototype.postMessage = function (message, ...rest) {
    if (window.holdsCancel && JSON.stringify(message).includes('Cancel')) held.push(() => post.call(this, message, ...rest));
    else post.call(this, message, ...rest);
};
window.Worker = class extends Worker {
    constructor(...given) {
        super(...given);
        this.addEventListener('message', ({ data }) => {
            if (data?.stopWord) window.stopWord = data.stopWord;
            window.beforeMessage?.(data);
        });
    }
};
"""


@pytest.fixture(scope="module")
def fast_session(browser, site):
    """The built site with the real model and all threads, loaded once: (ChatPage, problems)."""
    with Server(site).running() as server, watched_chat(browser, f"{server.url}?temperature=0", before=SPY) as session:
        yield session


@pytest.fixture
def fast(fast_session):
    """The real app on the kernels, ready, with an empty conversation."""
    chat, problems = fast_session
    problems.clear()
    yield chat.start_anew()
    chat.page.evaluate("window.holdsCancel = false; held.length = 0")
    assert problems == []


def helpers(chat):
    """The workers beside the engine's own."""
    return len(chat.page.workers) - 1


def test_by_itself_the_page_takes_the_kernels_and_a_thread_for_each_core(fast):
    expect(fast.page.locator("#model")).to_contain_text("· wasm ·")
    cores = min(fast.page.evaluate("navigator.hardwareConcurrency"), 8)
    assert helpers(fast) == cores - 1
    # They wait inside the kernels: the control block counts them.
    word = kernel_abi.control_word("job_sleepers")
    fast.page.evaluate("window.words = new Int32Array(stopWord.buffer, stopWord.byteOffset, 64)")
    fast.page.wait_for_function(f"Atomics.load(words, {word}) === {cores - 1}")
    expect(fast.notice).to_be_hidden()
    assert "Paris" in fast.ask(PARIS)
    assert fast.answer.get_attribute("data-state") == "done"


def test_one_thread_computes_where_the_address_says_so(page, problems, server):
    page.add_init_script(SPY)
    chat = ChatPage(page).open(f"{server().url}?temperature=0&threads=1")
    expect(page.locator("#model")).to_contain_text("· wasm ·")
    assert helpers(chat) == 0
    assert page.evaluate("stopWord instanceof Int32Array")
    assert "Paris" in chat.ask(PARIS)
    assert problems == []


def test_numpy_computes_where_the_address_says_so(real):
    expect(real.page.locator("#model")).to_contain_text("· numpy ·")
    assert helpers(real) == 0
    assert "Paris" in real.ask(PARIS)


# ---------------------------------------------------------------------------------------------------------------- stop


def wait_for_posted(chat, kind, more=""):
    """Until the worker has posted a message of a kind about the answer being written."""
    chat.page.wait_for_function(
        "([kind, last]) => posted.some(m => m.type === kind && m.id > last)", arg=[kind, last_finished(chat)]
    )


def last_finished(chat):
    return max([message["id"] for message in chat.posted("Finished")], default=0)


def stop_without_telling(chat):
    """Click Stop while its message is held back: what ends the answer then is the stop word."""
    chat.page.evaluate("window.holdsCancel = true")
    chat.stop.click()
    chat.wait_for("ready")
    assert chat.page.evaluate("held.length") == 1
    chat.page.evaluate("window.holdsCancel = false; held.splice(0).forEach(send => send())")
    finished = chat.posted("Finished")[-1]
    assert finished["reason"] == "cancelled"
    return finished


def after_stop(chat, kind):
    """How many messages of a kind the worker posted after Stop was clicked."""
    clicked = chat.page.evaluate("stopSent")
    return sum(message["at"] > clicked for message in chat.posted(kind))


def check_it_answers(chat):
    """The next question is answered as if nothing had been, and nothing more came of the answers before."""
    stopped, before = last_finished(chat), len(chat.posted())
    chat.ask(PARIS)
    posted = chat.posted()[before:]
    assert min(message["id"] for message in posted if "id" in message) > stopped
    assert (posted[-1]["type"], posted[-1]["reason"]) == ("Finished", "stop")
    assert "Paris" in posted[-1]["text"]


def test_the_stop_word_alone_ends_a_long_prompt(fast):
    fast.say(VERY_LONG)
    wait_for_posted(fast, "Prefill")
    finished = stop_without_telling(fast)
    told = [message for message in fast.posted("Prefill") if message["id"] == finished["id"]]
    assert told[-1]["done"] < told[-1]["total"]
    assert after_stop(fast, "Prefill") <= 1
    expect(fast.messages()).to_have_count(0)
    assert fast.composer.input_value() == VERY_LONG
    check_it_answers(fast)


def test_the_stop_word_alone_ends_an_answer(fast):
    fast.say(LONG)
    wait_for_posted(fast, "Delta")
    stop_without_telling(fast)
    assert fast.deltas_after_stop() <= 1
    expect(fast.answer).to_have_attribute("data-state", "cancelled")
    check_it_answers(fast)


def test_a_new_chat_ends_what_is_being_computed_the_same_way(fast):
    fast.say(VERY_LONG)
    wait_for_posted(fast, "Prefill")
    fast.page.evaluate("window.holdsCancel = true")
    fast.new_chat.click()
    fast.wait_for("ready")
    assert fast.posted("Finished")[-1]["reason"] == "cancelled"
    check_it_answers(fast)


def test_stop_in_the_moment_in_which_an_answer_ends_does_not_stop_the_next(fast):
    """The worker is done, the page has not heard of it: the word is written, and meets nothing."""
    fast.page.evaluate(
        """() => { window.beforeMessage = (data) => {
            if (typeof data !== 'string' || JSON.parse(data).at(-1).type !== 'Finished') return;
            window.beforeMessage = null;
            const store = Atomics.store;  // the word itself may be taken at once, by what is computed ahead
            window.written = 0;
            Atomics.store = (word, place, value) => { written += value; return store(word, place, value); };
            document.querySelector('[data-testid=stop]').click();
            Atomics.store = store;
        } }"""
    )
    assert "Paris" in fast.ask(PARIS)
    assert fast.page.evaluate("written") == 1
    check_it_answers(fast)


def test_stop_in_the_moment_of_sending_ends_the_answer_before_its_first_word(fast):
    """The word is written before the engine begins, which clears it; the message that follows does the rest."""
    fast.composer.fill(LONG)
    fast.page.evaluate("for (const part of ['send', 'stop']) document.querySelector(`[data-testid=${part}]`).click()")
    fast.wait_for("ready")
    finished = fast.posted("Finished")[-1]
    assert (finished["reason"], finished["new_tokens"]) == ("cancelled", 0)
    assert fast.composer.input_value() == LONG
    check_it_answers(fast)


def test_stop_when_nothing_runs_does_nothing(fast):
    assert "Paris" in fast.ask(PARIS)
    expect(fast.stop).to_be_hidden()
    fast.page.keyboard.press("Escape")
    assert fast.page.evaluate("Atomics.load(stopWord, 0)") == 0
    check_it_answers(fast)


# ------------------------------------------------------------------------------------------------ without the kernels


@pytest.fixture
def serve_tiny(server, tmp_path):
    """A function that serves a site with a tiny model for the default one; returns the address."""

    def serve(site=None, **changes):
        path = tmp_path / "tiny.gguf"
        path.write_bytes(tiny_gguf(**changes))
        return server(site=site, model=seed_for_file(path)).url

    return serve


@pytest.fixture
def site_without_kernels(site, tmp_path):
    """A site whose wheel of pyruntime has no WebAssembly modules."""
    copy = copy_site(site, tmp_path / "site")
    (wheel,) = (copy / "pyodide").glob("pyruntime-*-cp314-*.whl")  # the page's; the other is for elsewhere
    lock = copy / "pyodide" / "pyodide-lock.json"
    old = wheel.read_bytes()
    wheel.unlink()
    shutil.copy(site / "pyodide" / wheel.name, tmp_path / "whole.whl")
    with zipfile.ZipFile(tmp_path / "whole.whl") as whole, zipfile.ZipFile(wheel, "w") as without:
        for entry in whole.infolist():
            if not entry.filename.endswith(".wasm"):
                without.writestr(entry, whole.read(entry))
    text = lock.read_text().replace(sha256(old).hexdigest(), sha256(wheel.read_bytes()).hexdigest())
    lock.unlink()
    lock.write_text(text)
    return copy


def test_where_no_kernels_run_numpy_computes_and_the_page_says_so(page, problems, serve_tiny, site_without_kernels):
    chat = ChatPage(page).open(f"{serve_tiny(site_without_kernels)}?max-tokens=5")
    expect(page.locator("#model")).to_contain_text("· numpy ·")
    expect(chat.notice).to_contain_text(
        "Computing with numpy, which is many times slower: "
        "none of the kernels' WebAssembly modules runs in this browser and computes rightly"
    )
    chat.ask("Hello")
    assert chat.answer.get_attribute("data-state") == "done"
    assert problems == []


def test_a_model_that_is_refused_after_it_was_loaded_leaves_no_helper_behind(page, serve_tiny):
    started = []
    page.on("worker", lambda worker: started.append(worker))  # noqa: PLW0108 - Playwright marks what it is given
    chat = ChatPage(page).open(f"{serve_tiny(tokenizer__chat_template=None)}?threads=3", until="error")
    assert len(started) == 3
    for worker in started[1:]:
        if worker in page.workers:
            with worker.expect_event("close"):
                pass
    assert helpers(chat) == 0
