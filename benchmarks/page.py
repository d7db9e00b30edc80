"""The page under measurement: the built site, served from this process, in a Chromium with a profile of its own.

The site is the real one; only its engine worker has a few lines more (`page_probe.py`), by which a benchmark can have the
cache emptied and ask where time goes. Answers come the way a user gets them: typed, sent, streamed into the document.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin

from benchmarks import machine
from pyruntime.opening import OpenedModel, open_model
from tests.browser.pyodide_harness import copy_site
from tooling import cache
from tooling.chromium import find_or_install
from tooling.console import ToolingError
from tooling.pins import read_pins
from tooling.seed import Seed, seed_for_file
from tooling.server import Request, Server
from tooling.site import build_site

if TYPE_CHECKING:
    from playwright.sync_api import BrowserContext, Page

CHROMIUM_ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
READY_WITHIN_MS = 180_000

_PROBE = Path(__file__).parent / "page_probe.py"

# The whole answer in one call: whoever asks from outside again and again takes part in what is measured.
_ASK = """async (text) => {
    const root = document.documentElement;
    const part = (name) => document.querySelector(`[data-testid="${name}"]`);
    const ended = new Promise((resolve) => {
        let begun = false;
        new MutationObserver((_, observer) => {
            begun ||= root.dataset.appState === 'busy';
            if (!begun || root.dataset.appState === 'busy') return;
            observer.disconnect();
            resolve();
        }).observe(root, { attributeFilter: ['data-app-state'] });
    });
    part('composer').value = text;
    part('composer').dispatchEvent(new Event('input', { bubbles: true }));
    part('send').click();
    await ended;
    for (let frames = 0; frames < 10; frames++) await new Promise(requestAnimationFrame);
    const marks = {};
    for (const { name, startTime } of performance.getEntriesByType('mark'))
        if (name.startsWith('tinypylm:')) marks[name.slice('tinypylm:'.length)] = startTime;
    const answer = [...document.querySelectorAll('[data-testid="message"][data-role="assistant"]')].at(-1);
    const notice = part('notice').textContent;
    return { marks, attributes: { ...answer?.dataset }, notice };
}"""
_PROBE_CALL = "(text) => document.querySelector('script[name=engine]').xworker.sync.probe(text)"


@dataclass(frozen=True)
class Variant:
    """One way to run the page.

    Attributes:
        label: how results call it.
        parameters: of the address.
        isolation: whether the page may have threads.
    """

    label: str
    parameters: Mapping[str, str]
    isolation: bool = True


VARIANTS = {
    "default": Variant("", {}),
    "2-threads": Variant("2 threads", {"threads": "2"}),
    "1-thread": Variant("1 thread", {"threads": "1"}),
    "no-isolation": Variant("no isolation", {}, isolation=False),
}


@dataclass(frozen=True)
class Answer:
    """What the page tells of an answer.

    Attributes:
        marks: the page's performance marks, name → milliseconds since the navigation.
        attributes: the `data-` attributes of the finished answer, in JavaScript's spelling (`newTokens`).
    """

    marks: Mapping[str, float]
    attributes: Mapping[str, str]

    @property
    def prompt_tokens(self) -> int:
        """Tokens of the prompt, those in the cache included."""
        return int(self.attributes["promptTokens"])

    @property
    def cached_tokens(self) -> int:
        """Tokens of the prompt that needed no computing."""
        return int(self.attributes["cachedTokens"])

    @property
    def new_tokens(self) -> int:
        """Tokens of the answer."""
        return int(self.attributes["newTokens"])

    @property
    def ttft_ms(self) -> float:
        """From the click on Send until the first text was posted to the page."""
        return self.marks["first-token"] - self.marks["send"]

    @property
    def first_paint_ms(self) -> float:
        """From the click on Send until the first text was painted."""
        return self.marks["first-paint"] - self.marks["send"]

    @property
    def prefill_tps(self) -> float:
        """Tokens of the prompt computed in a second."""
        return (
            1000 * (self.prompt_tokens - self.cached_tokens) / (self.marks["prefill-done"] - self.marks["prompt-ready"])
        )

    @property
    def decode_tps(self) -> float:
        """Tokens of the answer in a second, behind the first."""
        return 1000 * (self.new_tokens - 1) / (self.marks["done"] - self.marks["first-token"])

    def check(self, *, prompt_tokens: int | None = None, new_tokens: int | None = None, cached: int = 0) -> Answer:
        """This answer, if it is what was meant to be measured; ToolingError otherwise."""
        for what, found, wanted in (
            ("prompt tokens", self.prompt_tokens, prompt_tokens),
            ("cached tokens", self.cached_tokens, cached),
            ("new tokens", self.new_tokens, new_tokens),
        ):
            if wanted is not None and found != wanted:
                raise ToolingError(f"the answer has {found} {what} where {wanted} were to be measured")
        return self


class BenchPage:
    """The app in a tab, loaded.

    Args:
        page: Playwright's.
        url: the app's address with its parameters.
    """

    def __init__(self, page: Page, url: str) -> None:
        self.page, self._url = page, url
        page.set_default_timeout(0)

    def url_of(self, path: str) -> str:
        """The address of another file of the site."""
        return urljoin(self._url, path)

    def visit(self) -> dict[str, float]:
        """Go to the page and wait until it takes messages; its marks."""
        self.page.goto(self._url)
        return self.wait_until_ready()

    def reload(self) -> dict[str, float]:
        """The same, on a reload; the conversation that comes back is left for a new one."""
        self.page.reload()
        marks = self.wait_until_ready()
        self.page.get_by_test_id("new-chat").click()
        return marks

    def ask(self, text: str) -> Answer:
        """Send a message as a user does, and wait until its answer has ended."""
        found = self.page.evaluate(_ASK, text)
        if "newTokens" not in found["attributes"]:
            raise ToolingError(f"the page gave no answer: {found['notice'] or 'it says nothing about it'}")
        return Answer(found["marks"], found["attributes"])

    def ask_anew(self, text: str) -> Answer:
        """As `ask`, in a new conversation, with nothing of it in the cache."""
        self.start_anew()
        return self.ask(text)

    def start_anew(self) -> None:
        """A new conversation, and an empty cache."""
        self.page.get_by_test_id("new-chat").click()
        self.probe("forget")

    def probe(self, name: str, *arguments: object) -> Any:
        """What `page_probe.py` answers."""
        return json.loads(self.page.evaluate(_PROBE_CALL, json.dumps([name, *arguments])))

    def wait_until_ready(self) -> dict[str, float]:
        """The page's marks, when it takes messages; ToolingError when it says that it will not."""
        self.page.wait_for_selector(
            'html:is([data-app-state="ready"], [data-app-state="error"])', timeout=READY_WITHIN_MS
        )
        if self.page.locator('html[data-app-state="error"]').count():
            raise ToolingError(f"the page does not start: {self.page.get_by_test_id('notice').inner_text()}")
        if self.page.get_by_test_id("notice").is_visible():
            raise ToolingError(f"the page says: {self.page.get_by_test_id('notice').inner_text()}")
        marks: dict[str, float] = self.page.evaluate(
            "Object.fromEntries(performance.getEntriesByType('mark').map(({ name, startTime }) =>"
            " [name.replace('tinypylm:', ''), startTime]))"
        )
        return marks


@dataclass(frozen=True)
class Subject:
    """The model under measurement.

    Attributes:
        path: its file.
        seed: how it is served in place of the default model; None for the default model itself.
    """

    path: Path
    seed: Seed | None

    def open(self) -> OpenedModel:
        """For its tokenizer and template."""
        return open_model(self.path)


def add_page_options(parser: argparse.ArgumentParser) -> None:
    """The options that say which page is measured."""
    parser.add_argument("--model", type=Path, metavar="FILE", help="a GGUF file (default: the site's default model)")
    parser.add_argument("--executor", help="the address's `executor` (default: what the page takes by itself)")
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=["default"], help="ways to run the page")
    parser.add_argument("--busy", action="store_true", help="with one core taken by another process of ours")


def subject(path: Path | None) -> Subject:
    """The model of `--model`, or the default one."""
    if path is None:
        model = read_pins().model
        return Subject(cache.obtain([model])[model.name], None)
    return Subject(path, seed_for_file(path))


class Browsers:
    """Serves the site and opens browsers; everything ends with the block of `running`.

    Args:
        chromium: Playwright's.
        site: the site's folder.
        model: what it serves.
    """

    def __init__(self, chromium: Any, site: Path, model: Subject) -> None:
        self._chromium, self._site, self._model = chromium, site, model
        self.version = ""

    @contextlib.contextmanager
    def profile(self) -> Iterator[BrowserContext]:
        """A fresh browser: nothing stored, nothing cached."""
        with tempfile.TemporaryDirectory(prefix="tinypylm-profile-", ignore_cleanup_errors=True) as folder:
            context = self._chromium.launch_persistent_context(
                folder, executable_path=find_or_install(), args=CHROMIUM_ARGUMENTS
            )
            with contextlib.closing(context):
                page = context.pages[0]
                self.version = page.evaluate("navigator.userAgent").rpartition("Chrome/")[2].split(" ")[0]
                yield context

    @contextlib.contextmanager
    def page(
        self, variant: Variant, parameters: Mapping[str, object], requests: list[Request] | None = None
    ) -> Iterator[BenchPage]:
        """A tab in a fresh browser, on a server of its own; not yet at the page."""
        with self._served(variant, parameters, requests) as url, self.profile() as context:
            yield BenchPage(context.pages[0], url)

    @contextlib.contextmanager
    def page_loaded_alone(self, variant: Variant, parameters: Mapping[str, object]) -> Iterator[BenchPage]:
        """A tab in a fresh browser that has loaded the page while nothing drove it, as a visitor's does.

        Whoever drives a browser listens to its network, and copies of what was fetched are kept for it in the tab's process.
        """
        with (
            self._served(variant, parameters) as url,
            tempfile.TemporaryDirectory(prefix="tinypylm-profile-", ignore_cleanup_errors=True) as folder,
        ):
            arguments = [
                *CHROMIUM_ARGUMENTS,
                "--headless=new",
                "--remote-debugging-port=0",
                f"--user-data-dir={folder}",
            ]
            process = subprocess.Popen([find_or_install(), *arguments, url], stderr=subprocess.DEVNULL)
            try:
                machine.wait_until_idle(process.pid)
                port = (Path(folder) / "DevToolsActivePort").read_text(encoding="ascii").split()[0]
                browser = self._chromium.connect_over_cdp(f"http://127.0.0.1:{port}")
                page = BenchPage(browser.contexts[0].pages[0], url)
                page.wait_until_ready()
                yield page
            finally:
                process.terminate()
                process.wait()

    @contextlib.contextmanager
    def _served(
        self, variant: Variant, parameters: Mapping[str, object], requests: list[Request] | None = None
    ) -> Iterator[str]:
        """The page's address, on a server of its own."""
        heard = (lambda request: None) if requests is None else requests.append
        server = Server(self._site, isolation=variant.isolation, model=self._model.seed, on_request=heard)
        query = "&".join(f"{name}={value}" for name, value in {**variant.parameters, **parameters}.items())
        with server.running():
            yield f"{server.url}?{query}"


@contextlib.contextmanager
def browsers(model: Subject, *, busy: bool = False) -> Iterator[Browsers]:
    """`Browsers` over the built site with the probe in its worker."""
    from playwright.sync_api import sync_playwright  # noqa: PLC0415 - `--help` needs no browser

    with tempfile.TemporaryDirectory(prefix="tinypylm-site-") as folder, machine.busy_core(wanted=busy):
        site = copy_site(build_site(), Path(folder) / "site", model=True)
        worker = site / "worker.py"
        source = worker.read_text(encoding="utf-8")
        worker.unlink()  # it may be a hard link
        worker.write_text(f"{source}\n\n{_PROBE.read_text(encoding='utf-8')}", encoding="utf-8")
        with sync_playwright() as playwright:
            yield Browsers(playwright.chromium, site, model)


def about(options: argparse.Namespace, model: Subject, opened: Browsers, **facts: object) -> dict[str, object]:
    """What a result says beside its figures."""
    return {
        "model": model.path.name,
        "busy": options.busy,
        **facts,
        "chromium": opened.version,
        "machine": machine.describe(),
    }
