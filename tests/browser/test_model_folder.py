"""A model in a folder of safetensors, from `serve.py --model` to an answer in the page, and back from the store."""

from __future__ import annotations

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor

import pytest
from playwright.sync_api import expect

from pyruntime.engine import Engine
from pyruntime.events import Finished
from pyruntime.sampling import SamplingParams
from tests.browser.chat_page import ChatPage
from tests.safetensors_writer import safetensors_bytes
from tests.tiny_folder import SHARDS, sharded, tensors, tiny_folder, write_folder
from tooling.seed import seed_for_model

QUESTION = "Hello"
TOKENS = 12

DAMAGE = """(size) => new Promise((resolve, reject) => {
    const request = indexedDB.open("tinypylm-models");
    request.onerror = reject;
    request.onsuccess = () => {
        const writing = request.result.transaction("chunks", "readwrite");
        const chunks = writing.objectStore("chunks");
        chunks.openCursor().onsuccess = ({ target: { result: cursor } }) => {
            if (!cursor) return;
            if (cursor.value.size === size) cursor.update({ ...cursor.value, blob: new Blob([new Uint8Array(size)]) });
            cursor.continue();
        };
        writing.oncomplete = () => resolve(request.result.close());
    };
})"""


def natively(folder):
    """The greedy answer to the question, computed here."""

    async def run():
        engine = await Engine.load(folder, executor="numpy")
        params = SamplingParams(temperature=0, max_tokens=TOKENS)
        return [event async for event in engine.chat([{"role": "user", "content": QUESTION}], params)][-1]

    with ThreadPoolExecutor() as pool:  # Playwright keeps a loop running in this thread
        finished = pool.submit(lambda: asyncio.run(run())).result()
    assert isinstance(finished, Finished)
    return finished.text


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with its weights in two files, and the answer that its model gives."""
    path = write_folder(tmp_path_factory.mktemp("model") / "tiny", sharded())
    return path, natively(path)


def test_a_folder_is_served_fetched_file_by_file_and_answers_and_a_reload_reads_it_from_the_store(
    page, problems, server, folder
):
    path, expected = folder
    running = server(model=seed_for_model(path))
    address = f"{running.url}?temperature=0&max-tokens={TOKENS}&executor=numpy"
    chat = ChatPage(page).open(address)
    assert page.locator("#model").inner_text() == "tiny · numpy · 256 tokens of context"
    chat.record_posts()
    chat.ask(QUESTION)
    expect(chat.answer).to_have_attribute("data-state", "done")
    assert chat.posted("Finished")[-1]["text"] == expected
    fetched = [request.path.rpartition("/")[2] for request in running.requests if "/seed/files/" in request.path]
    assert sorted(fetched) == sorted(set(sharded()) - {"README.md"})

    running.requests.clear()
    page.reload()
    chat.wait_for("ready")
    chat.start_anew()
    chat.record_posts()
    chat.ask(QUESTION)
    assert chat.posted("Finished")[-1]["text"] == expected
    assert not [request.path for request in running.requests if "/seed/files/" in request.path]
    assert problems == []


def test_a_damaged_file_among_several_is_named_and_fetched_again_alone(page, problems, server, folder):
    path, expected = folder
    running = server(model=seed_for_model(path))
    chat = ChatPage(page).open(f"{running.url}?temperature=0&max-tokens={TOKENS}&executor=numpy")
    page.evaluate(DAMAGE, len(sharded()[SHARDS[1]]))
    running.requests.clear()
    page.reload()
    chat.wait_for("error")
    expect(chat.notice).to_contain_text(f"{SHARDS[1]}: the stored copy is damaged (chunk 0)")
    chat.notice.get_by_role("button", name="Try again").click()
    chat.wait_for("ready")
    fetched = [request.path.rpartition("/")[2] for request in running.requests if "/seed/files/" in request.path]
    assert fetched == [SHARDS[1]]
    chat.record_posts()
    chat.ask(QUESTION)
    assert chat.posted("Finished")[-1]["text"] == expected
    assert problems == []


def test_the_kernels_in_the_page_read_a_folder_in_half_precision(page, problems, server, tmp_path):
    stored = safetensors_bytes(tensors("BF16"))
    path = write_folder(tmp_path / "half", tiny_folder(model__safetensors=stored))
    chat = ChatPage(page).open(
        f"{server(model=seed_for_model(path)).url}?temperature=0&max-tokens={TOKENS}&executor=wasm"
    )
    assert page.locator("#model").inner_text() == "half · wasm, BF16 weights in 8 bits · 256 tokens of context"
    chat.ask(QUESTION)
    expect(chat.answer).to_have_attribute("data-state", "done")
    assert int(chat.answer.get_attribute("data-new-tokens")) > 0
    assert problems == []


def test_what_is_wrong_with_a_folder_is_told_by_file_and_field(page, server, tmp_path):
    settings = json.loads(tiny_folder()["config.json"]) | {"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}}
    path = write_folder(tmp_path / "odd", tiny_folder(config__json=json.dumps(settings).encode()))
    chat = ChatPage(page).open(server(model=seed_for_model(path)).url, until="error")
    words = "config.json: rope_scaling.rope_type: 'dynamic' is not supported (allowed: default, linear, llama3, yarn)"
    expect(chat.notice).to_contain_text(words)
