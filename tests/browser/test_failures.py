"""What can go wrong on the way to the model: each is told in words, the draft is kept, and what can be retried is."""

from __future__ import annotations

import hashlib
import json

import pytest
from playwright.sync_api import expect

from tests.browser.chat_page import ChatPage
from tests.tiny_model import tiny_gguf

DRAFT = "Typed while waiting"


@pytest.fixture(scope="module")
def tiny():
    """The bytes of a model that loads at once."""
    return tiny_gguf()


def manifest_of(data):
    file = {
        "path": "tiny.gguf",
        "size": len(data),
        "sha256": hashlib.sha256(data).hexdigest(),
        "chunk_size": 8 << 20,
        "chunk_sha256": [hashlib.sha256(data).hexdigest()],
        "sources": ["tiny.gguf"],
    }
    manifest = {"seed": 1, "name": "tiny", "title": "Tiny", "license": "MIT", "revision": "1", "files": [file]}
    return json.dumps(manifest)


@pytest.fixture(scope="module")
def origin(site):
    """A server of the built site for the module's pages."""
    from tooling.server import Server

    with Server(site).running() as server:
        yield server.url


@pytest.fixture
def chat(page, problems):
    """A chat page whose console may complain: browsers report every failed request there."""
    yield ChatPage(page)
    problems.clear()


def open_with_draft(chat, url):
    """Open the page, type at once, and wait until something went wrong."""
    chat.page.goto(url)
    chat.composer.fill(DRAFT)
    chat.wait_for("error")
    expect(chat.notice).to_be_visible()
    assert chat.composer.input_value() == DRAFT
    return chat.notice.inner_text()


def test_a_missing_manifest_is_told_and_can_be_asked_for_again(chat, context, origin, tiny):
    context.route("**/seed/default.json", lambda route: route.fulfill(status=404, body="not here"))
    words = open_with_draft(chat, origin)
    assert words.startswith(f"DeliveryError {origin}seed/default.json: the server answered HTTP 404")

    context.unroute("**/seed/default.json")
    context.route("**/seed/default.json", lambda route: route.fulfill(body=manifest_of(tiny)))
    context.route("**/seed/tiny.gguf", lambda route: route.fulfill(body=tiny))
    chat.notice.get_by_role("button", name="Try again").click()
    chat.wait_for("ready")
    expect(chat.notice).to_be_hidden()
    assert chat.composer.input_value() == DRAFT
    expect(chat.send).to_be_enabled()


def test_html_in_the_place_of_the_manifest_is_refused_by_name(chat, context, origin):
    page = "<!doctype html><title>Log in</title>"
    context.route("**/seed/default.json", lambda route: route.fulfill(body=page, content_type="text/html"))
    words = open_with_draft(chat, origin)
    assert "/seed/default.json: " in words
    assert "web page" in words


def test_one_wrong_byte_of_the_model_is_refused_by_its_hash(chat, context, origin, tiny):
    wrong = bytes([*tiny[:-1], tiny[-1] ^ 1])
    context.route("**/seed/default.json", lambda route: route.fulfill(body=manifest_of(tiny)))
    context.route("**/seed/tiny.gguf", lambda route: route.fulfill(body=wrong))
    words = open_with_draft(chat, origin)
    assert "tiny.gguf" in words
    assert hashlib.sha256(wrong).hexdigest() in words

    context.unroute("**/seed/tiny.gguf")
    context.route("**/seed/tiny.gguf", lambda route: route.fulfill(body=tiny))
    chat.notice.get_by_role("button", name="Try again").click()
    chat.wait_for("ready")


def test_a_file_that_is_no_model_is_refused_in_the_formats_words(chat, context, origin):
    data = b"GGUF" + bytes(1000)
    context.route("**/seed/default.json", lambda route: route.fulfill(body=manifest_of(data)))
    context.route("**/seed/tiny.gguf", lambda route: route.fulfill(body=data))
    words = open_with_draft(chat, origin)
    assert words.startswith(("FormatError tiny.gguf: ", "UnsupportedError tiny.gguf: "))


def test_what_the_engine_does_not_allow_is_told_in_its_words(chat, context, origin, tiny):
    context.route("**/seed/default.json", lambda route: route.fulfill(body=manifest_of(tiny)))
    context.route("**/seed/tiny.gguf", lambda route: route.fulfill(body=tiny))
    words = open_with_draft(chat, f"{origin}?context=100000")
    assert words.startswith("ParameterError context: 100000 is not allowed (allowed: an integer in [2, 256]")


def test_a_message_that_does_not_fit_comes_back_with_the_numbers(chat, context, origin, tiny):
    context.route("**/seed/default.json", lambda route: route.fulfill(body=manifest_of(tiny)))
    context.route("**/seed/tiny.gguf", lambda route: route.fulfill(body=tiny))
    chat.open(f"{origin}?context=64")
    long = "word " * 40
    chat.say(long)
    expect(chat.notice).to_contain_text("ContextOverflowError prompt: too long: it needs 2")
    chat.wait_for("ready")
    assert chat.composer.input_value() == long
    expect(chat.messages()).to_have_count(0)


def test_parameters_that_are_not_allowed_are_named_and_the_page_goes_on(page, parrot_session, problems):
    chat, _ = parrot_session
    url = chat.page.url
    other = ChatPage(page).open(f"{url}?temperature=hot&seed=-1&executor=native&context=64")
    words = other.notice.inner_text()
    assert "temperature: 'hot' is not allowed (allowed: a number in [0, 100]). The default is used instead." in words
    assert "seed: '-1' is not allowed" in words
    assert "executor: 'native' is not allowed (allowed: auto, wasm, numpy)" in words
    assert page.locator("#model").inner_text() == "parrot · auto · 64 tokens of context"
    assert other.ask("Hello") == "Hello"
    expect(other.notice).to_be_hidden()
    assert problems == []


DAMAGE = """(make) => new Promise((resolve, reject) => {
    const request = indexedDB.open("tinypylm-models");
    request.onerror = reject;
    request.onsuccess = () => {
        const writing = request.result.transaction("chunks", "readwrite"), chunks = writing.objectStore("chunks");
        chunks.openCursor().onsuccess = ({ target: { result: cursor } }) => {
            const record = cursor.value, size = record.blob.size;
            record.blob = new Blob([new Uint8Array(make === "shorter" ? size - 1 : size)]);
            cursor.update(record);
        };
        writing.oncomplete = () => resolve(request.result.close());
    };
})"""


def serve_tiny(context, data):
    """Answer for the default model with the tiny one; returns the list that its requests are noted in."""
    asked = []
    context.route("**/seed/default.json", lambda route: route.fulfill(body=manifest_of(data)))
    context.route("**/seed/tiny.gguf", lambda route: (asked.append(route.request.url), route.fulfill(body=data))[1])
    return asked


def test_a_stored_model_whose_bytes_changed_is_told_and_fetched_again(chat, context, origin, tiny):
    asked = serve_tiny(context, tiny)
    chat.page.goto(origin)
    chat.wait_for("ready")
    chat.page.evaluate(DAMAGE, "zeros")
    chat.page.reload()
    chat.wait_for("error")
    expect(chat.notice).to_contain_text("tiny.gguf: the stored copy is damaged (chunk 0)")
    chat.notice.get_by_role("button", name="Try again").click()
    chat.wait_for("ready")
    assert len(asked) == 2


def test_a_stored_model_that_lost_bytes_heals_by_itself(chat, context, origin, tiny):
    asked = serve_tiny(context, tiny)
    chat.page.goto(origin)
    chat.wait_for("ready")
    chat.page.evaluate(DAMAGE, "shorter")
    chat.page.reload()
    chat.wait_for("ready")
    assert len(asked) == 2


def test_a_model_without_a_chat_template_says_at_once_that_it_cannot_chat(chat, context, origin):
    serve_tiny(context, tiny_gguf(tokenizer__chat_template=None))
    words = open_with_draft(chat, origin)
    assert "tiny.gguf: chat template: the model has no chat template, so it cannot chat" in words


def test_a_manifest_of_another_origin_is_refused_and_never_asked_for(page, parrot_session, context):
    chat, _ = parrot_session
    asked = []
    context.on("request", lambda request: asked.append(request.url))
    other = ChatPage(page).open(f"{chat.page.url}?manifest=https://elsewhere.example/seed.json", until="error")
    words = other.notice.inner_text()
    assert words.startswith("manifest: 'https://elsewhere.example/seed.json' is not on this site")
    assert "Nothing was fetched from it" in words
    page.wait_for_function("document.querySelector('script[name=engine]').xworker?.ready")
    page.evaluate("document.querySelector('script[name=engine]').xworker.ready.then(() => {})")
    assert other.state == "error"
    assert not [address for address in asked if address.startswith("https://elsewhere")]


BROKEN_START = [
    ("**/pyscript/core.js", "/pyscript/core.js could not be loaded"),
    ("**/micropython/micropython.wasm", "failed"),
    ("**/ui/session.py", "/ui/session.py"),
    ("**/lib/marked.esm.js", "/lib/marked.esm.js"),
    ("**/worker.py", "worker.py"),
    ("**/pyodide/shim.mjs", "/pyodide/shim.mjs"),
    ("**/pyodide/pyruntime-*.whl", "ModuleNotFoundError No module named 'pyruntime'"),
]


@pytest.mark.parametrize(("missing", "words"), BROKEN_START, ids=[missing for missing, _ in BROKEN_START])
def test_a_part_that_does_not_arrive_is_told_and_no_other_origin_is_asked(chat, context, origin, missing, words):
    """PyScript looks for interpreters on a public CDN when its own start fails, unless the page names them."""
    asked = []
    context.on("request", lambda request: asked.append(request.url))
    context.route(missing, lambda route: route.fulfill(status=404, body="not here"))
    assert words in open_with_draft(chat, origin)
    foreign = [address for address in asked if not address.removeprefix("blob:").startswith(origin)]
    assert [address for address in foreign if not address.startswith("data:")] == []
