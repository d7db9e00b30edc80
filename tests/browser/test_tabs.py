"""Two tabs of one browser: the model is fetched once, and where memory is short, loaded once at a time."""

from __future__ import annotations

import contextlib
import re

import pytest
from playwright.sync_api import Error, expect

from tests.browser.chat_page import READY_WITHIN_MS, ChatPage
from tests.browser.conftest import Watched
from tests.browser.pyodide_harness import copy_site
from tests.tiny_model import tiny_gguf
from tooling.seed import seed_for_model

# What the worker's Python does first.
OVERRIDE = """
from pyodide.code import run_js
run_js("Object.defineProperty(Object.getPrototypeOf(navigator), '{name}', {{ get: () => {value} }}); null")
"""


def site_where(site, target, **values):
    """A copy of the site, in whose worker the browser says other things of itself: names of `navigator`."""
    worker = copy_site(site, target) / "worker.py"
    source = worker.read_text(encoding="utf-8")
    worker.unlink()  # it may be a hard link
    worker.write_text("".join(OVERRIDE.format(name=n, value=v) for n, v in values.items()) + source, encoding="utf-8")
    return target


@pytest.fixture
def tab(context, problems):
    """A function that opens one more tab."""

    def open_tab(url, until):
        watched = Watched(context)
        watched.problems = problems
        return ChatPage(watched.page).open(url, until=until)

    return open_tab


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """The seed of a model whose weights and cache take about a megabyte."""
    path = tmp_path_factory.mktemp("model") / "tiny.gguf"
    path.write_bytes(tiny_gguf())
    return seed_for_model(path)


@pytest.fixture(scope="module")
def small_device(site, tmp_path_factory):
    """The site on a device whose memory is enough for one engine of the tiny model and no more."""
    return site_where(site, tmp_path_factory.mktemp("small") / "site", deviceMemory=2 / 1024)


def test_two_tabs_on_a_first_visit_fetch_the_model_once(tab, context, server, tiny):
    running, held = server(model=tiny), []

    def hold(route):
        held.append(route)

    context.route("**/seed/files/**", hold)
    with context.expect_event("request", lambda request: "/seed/files/" in request.url):
        first = tab(f"{running.url}?max-tokens=8", until=None)
    second = tab(f"{running.url}?max-tokens=8", until=None)
    expect(second.status).to_have_text("Waiting for another tab", timeout=READY_WITHIN_MS)
    expect(second.notice).to_contain_text("Another tab is fetching the model. This one goes on when it is there")
    held[0].continue_()
    for chat in (first, second):
        chat.wait_for("ready")
        expect(chat.notice).to_be_hidden()
        chat.ask("Hello")
    assert len([request for request in running.requests if "/seed/files/" in request.path]) == 1


def test_a_tab_that_is_closed_while_it_fetches_leaves_that_to_the_other(tab, context, server, tiny):
    running = server(model=tiny)
    context.route("**/seed/files/**", lambda route: None)  # nothing comes
    with context.expect_event("request", lambda request: "/seed/files/" in request.url):
        first = tab(f"{running.url}?max-tokens=8", until=None)
    second = tab(f"{running.url}?max-tokens=8", until=None)
    expect(second.status).to_have_text("Waiting for another tab", timeout=READY_WITHIN_MS)
    context.unroute("**/seed/files/**")
    first.page.close()
    second.wait_for("ready")
    expect(second.notice).to_be_hidden()
    second.ask("Hello")


def test_the_memory_of_a_tab_that_crashed_is_free_again(tab, context, server, small_device, tiny):
    url = f"{server(site=small_device, model=tiny).url}?max-tokens=8"
    first = tab(url, until="ready")
    second = tab(url, until="loading")
    expect(second.status).to_have_text("Waiting for another tab", timeout=READY_WITHIN_MS)
    with first.page.expect_event("crash"), contextlib.suppress(Error):  # nobody is left to answer
        first.page.goto("chrome://crash")
    second.wait_for("ready")
    expect(second.notice).to_be_hidden()


def test_where_memory_is_short_the_second_tab_says_so_and_goes_on_when_the_first_is_closed(
    tab, server, small_device, tiny
):
    url = f"{server(site=small_device, model=tiny).url}?max-tokens=8"
    first = tab(url, until="ready")
    first.ask("Hello")
    second = tab(url, until="loading")
    expect(second.notice).to_contain_text("Close another tab of this app, and this one goes on by itself")
    words = r"The model needs \d MB of memory, and models in other tabs hold \d MB\. Together they may take 1 MB of the 2 MB"
    expect(second.notice).to_contain_text(re.compile(words))
    expect(second.status).to_have_text("Waiting for another tab")
    expect(second.messages()).to_have_count(2)  # the conversation is there all the while
    first.ask("Still there?")
    first.page.close()
    second.wait_for("ready")
    expect(second.notice).to_be_hidden()
    second.ask("And now?")
    second.page.reload()  # nothing of its own stands in its way
    second.wait_for("ready")


def test_without_locks_every_tab_goes_on(tab, server, site, tmp_path, tiny):
    url = f"{server(site=site_where(site, tmp_path / 'site', locks='undefined'), model=tiny).url}?max-tokens=8"
    for chat in [tab(url, until="ready"), tab(url, until="ready")]:
        chat.ask("Hello")
