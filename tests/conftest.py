"""Fixtures for the whole suite: places, the built site, the default model, servers, and a browser page."""

from __future__ import annotations

import os

# Before numpy is imported: two BLAS threads that spin for each small product make the suite ten times slower as soon as
# anything else runs on the two cores (measured: 100-156 s against 10 s for the model's parity tests).
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import contextlib
from dataclasses import dataclass, field
from pathlib import Path

import hypothesis
import pytest

from tooling import cache, chromium, npm
from tooling.pins import read_pins
from tooling.server import Request, Server
from tooling.site import build_site

# How long an example takes depends on what else the machine does: no test may fail by the clock.
hypothesis.settings.register_profile("without a clock", deadline=None)
hypothesis.settings.load_profile("without a clock")

_BROWSER_ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


def pytest_collection_modifyitems(items):
    """Browser tests last: Playwright keeps an event loop running in this thread, beside which `asyncio.run` refuses."""
    items.sort(key=lambda item: "browser" in getattr(item, "fixturenames", ()))


@pytest.fixture(scope="session")
def repo_root():
    """The repository's folder."""
    return Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def shared(repo_root):
    """The folder of shared cases beside the repository; tests that need it are skipped where it is absent."""
    folder = repo_root.parent / "shared"
    if not folder.is_dir():
        pytest.skip("there is no shared folder beside the repository")
    return folder


@pytest.fixture(scope="session")
def site():
    """The folder of the built site."""
    return build_site()


@pytest.fixture(scope="session")
def default_model():
    """The path of the default model's GGUF file."""
    model = read_pins().model
    return cache.obtain([model])[model.name]


@pytest.fixture(scope="session")
def node_modules():
    """The folder with the page's npm packages, MicroPython for Node among them."""
    npm.obtain(read_pins().npm)
    return npm.node_modules()


@dataclass
class RunningServer:
    """A server that runs for the length of a test: its address, and what was asked of it so far."""

    url: str
    requests: list[Request] = field(default_factory=list)

    def bytes_sent(self, part):
        """Bytes of the answers to requests whose path contains `part`."""
        return sum(request.size for request in self.requests if part in request.path)


@pytest.fixture
def server(request):
    """A function that serves a site: `server(site=…, isolation=True, model=None)` returns a RunningServer.

    Without `site` the built one is served. Every server has a port, and so an origin, of its own.
    """
    with contextlib.ExitStack() as stack:

        def start(*, site=None, isolation=True, model=None):
            requests: list[Request] = []
            folder = site or request.getfixturevalue("site")
            running = Server(folder, isolation=isolation, model=model, on_request=requests.append).running()
            return RunningServer(stack.enter_context(running).url, requests)

        yield start


@pytest.fixture(scope="session")
def chromium_path():
    """The system's Chromium."""
    return chromium.find_or_install()


@pytest.fixture(scope="session")
def browser(chromium_path):
    """A running Chromium, driven through Playwright's synchronous interface."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=chromium_path, args=_BROWSER_ARGUMENTS)
        yield started
        started.close()


@pytest.fixture
def context(browser):
    """A fresh browser context: nothing stored, nothing cached."""
    with contextlib.closing(browser.new_context()) as fresh:
        yield fresh


@pytest.fixture
def problems():
    """What the page complained about. A test that expects complaints checks them and clears the list; others fail on them."""
    found: list[str] = []
    yield found
    assert not found, "the page reported errors"


@pytest.fixture
def page(context, problems):
    """A fresh page in a fresh context; console errors and uncaught exceptions go to `problems`."""
    opened = context.new_page()
    opened.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
    opened.on("pageerror", lambda error: problems.append(str(error)))
    return opened
