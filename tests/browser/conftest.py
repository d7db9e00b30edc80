"""Fixtures of the browser tests: the real app, the app with a parrot for an engine, and Python in the site's Pyodide.

Starting Pyodide takes seconds, so pages are shared where tests can leave them as they found them.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from tests.browser.chat_page import ChatPage
from tests.browser.pyodide_harness import copy_site, open_harness
from tooling.server import Server

HERE = Path(__file__).parent


def append(path, source):
    """Put a text behind that of a file of a copied site."""
    whole = path.read_text(encoding="utf-8") + "\n\n" + source.read_text(encoding="utf-8")
    path.unlink()  # it may be a hard link
    path.write_text(whole, encoding="utf-8")


class Watched:
    """A page that keeps what it complained about."""

    def __init__(self, context):
        self.page = context.new_page()
        self.problems = []
        self.page.on("console", lambda said: self.problems.append(said.text) if said.type == "error" else None)
        self.page.on("pageerror", lambda error: self.problems.append(str(error)))


@contextlib.contextmanager
def watched_chat(browser, url, *, before="", **options):
    """(ChatPage, problems) of a page that is ready; `before` is JavaScript that runs before the page's own."""
    with contextlib.closing(browser.new_context(**options)) as context:
        context.add_init_script(before)
        watched = Watched(context)
        chat = ChatPage(watched.page).open(url)
        chat.record_posts()
        yield chat, watched.problems


@pytest.fixture(scope="session")
def real_session(browser, site):
    """The built site with the real model, loaded once: (ChatPage, problems, server requests)."""
    requests = []
    with (
        Server(site, on_request=requests.append).running() as server,
        watched_chat(browser, f"{server.url}?temperature=0&executor=numpy") as (chat, problems),
    ):
        yield chat, problems, requests


@pytest.fixture
def real(real_session):
    """The real app, ready, with an empty conversation."""
    chat, problems, _ = real_session
    problems.clear()
    yield chat.start_anew()
    assert problems == []


@pytest.fixture(scope="session")
def parrot_site(site, tmp_path_factory):
    """The site with a worker that repeats what it is told; no model."""
    target = copy_site(site, tmp_path_factory.mktemp("parrot") / "site")
    append(target / "worker.py", HERE / "parrot_worker.py")
    return target


@pytest.fixture(scope="session")
def parrot_session(browser, parrot_site):
    with Server(parrot_site).running() as server, watched_chat(browser, server.url) as (chat, problems):
        yield chat, problems


@pytest.fixture
def parrot(parrot_session):
    """The app with a parrot for an engine, ready, with an empty conversation."""
    chat, problems = parrot_session
    problems.clear()
    yield chat.start_anew()
    assert problems == []


@pytest.fixture(scope="session")
def run_in_pyodide(browser, site, tmp_path_factory):
    """The `Harness`, one for all tests."""
    with open_harness(browser, site, tmp_path_factory.mktemp("harness") / "site") as harness:
        yield harness
