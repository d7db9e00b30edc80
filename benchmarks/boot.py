"""How long the page takes to start: `python -m benchmarks.boot [--runs N]`, with the site built. Prints JSON.

Each run opens the page in a fresh browser context (cold: nothing stored, nothing cached) and reloads it once. Times are
milliseconds since the navigation began, medians over the runs:

    painted         the browser painted the page's first content
    page_python     the page's own Python (MicroPython) is alive
    python_ready    the worker's Python (Pyodide) is up, packages imported
    model_ready     the model takes messages

`piece_ms` is what the page's Python needs to take in one piece of an answer, rendering not included. Bytes and requests
are those of the cold visit, as sent, the model's bytes counted apart.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import statistics
import sys
from typing import TYPE_CHECKING, Any

from tooling.chromium import find_or_install
from tooling.server import Request, Server
from tooling.site import build_site

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

_ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
_PIECES = 2000

# A mark can be set for another moment than now; what is wanted is when the page's Python called.
_NOTE_CALLS = """
    window.called = {};
    const mark = performance.mark.bind(performance);
    performance.mark = (name, options) => { called[name] ??= performance.now(); return mark(name, options) };
"""
_TIMES = """() => {
    const mark = (name) => performance.getEntriesByName('tinypylm:' + name).at(-1).startTime;
    return {
        painted: performance.getEntriesByName('first-contentful-paint')[0].startTime,
        page_python: called['tinypylm:start'],
        python_ready: mark('python-ready'),
        model_ready: mark('model-ready'),
    };
}"""
_TAKE_PIECES = """(count) => {
    const worker = document.querySelector('script[name=engine]').xworker;
    const data = JSON.stringify({ type: 'Delta', id: 1, text: ' word', at: performance.timeOrigin + performance.now() });
    const began = performance.now();
    for (let i = 0; i < count; i++) worker.dispatchEvent(new MessageEvent('message', { data }));
    return (performance.now() - began) / count;
}"""


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="Measures how the page starts, in Chromium; prints JSON.")
    parser.add_argument("--runs", type=int, default=5, help="fresh visits, each with one reload (default: %(default)s)")
    parser.add_argument("--no-isolation", dest="isolation", action="store_false", help="serve without COOP and COEP")
    options = parser.parse_args()

    from playwright.sync_api import sync_playwright  # noqa: PLC0415 - `--help` needs no browser

    requests: list[Request] = []
    site = build_site()
    with (
        Server(site, isolation=options.isolation, on_request=requests.append).running() as server,
        sync_playwright() as playwright,
        contextlib.closing(playwright.chromium.launch(executable_path=find_or_install(), args=_ARGUMENTS)) as browser,
    ):
        visits = [_visit(browser, server.url, requests) for _ in range(options.runs)]
        chromium = browser.version
    first: list[Request] = visits[0]["requests"]
    result = {
        "cold": _medians([visit["cold"] for visit in visits]),
        "reload": _medians([visit["reload"] for visit in visits]),
        "piece_ms": round(statistics.median(visit["piece_ms"] for visit in visits), 3),
        "cold_requests": len(first),
        "cold_bytes": _bytes(first) - _bytes(first, "/seed/files/"),
        "micropython_bytes": _bytes(first, "/micropython/"),
        "page_modules_bytes": _bytes(first, "/ui/") + _bytes(first, "/protocol.py") // 2,  # the worker reads it too
        "model_bytes": _bytes(first, "/seed/files/"),
        "runs": options.runs,
        "isolation": options.isolation,
        "chromium": chromium,
        "machine": f"{platform.machine()}, {os.cpu_count()} CPUs",
    }
    sys.stdout.write(json.dumps(result, indent=2) + "\n")
    return 0


def _visit(browser: Browser, url: str, requests: list[Request]) -> dict[str, Any]:
    with contextlib.closing(browser.new_context()) as context:
        context.add_init_script(_NOTE_CALLS)
        page = context.new_page()
        requests.clear()
        page.goto(url)
        cold = _times(page)
        asked = list(requests)
        page.reload()
        return {"cold": cold, "reload": _times(page), "piece_ms": _piece_ms(page), "requests": asked}


def _bytes(requests: list[Request], path: str = "") -> int:
    return sum(request.size for request in requests if request.path.startswith(path))


def _times(page: Page) -> dict[str, float]:
    page.wait_for_selector('html[data-app-state="ready"]', timeout=120_000)
    times: dict[str, float] = page.evaluate(_TIMES)
    return times


def _piece_ms(page: Page) -> float:
    page.get_by_test_id("composer").fill("Hello")
    page.get_by_test_id("composer").press("Enter")
    page.wait_for_selector('html[data-app-state="busy"]')
    cost: float = page.evaluate(_TAKE_PIECES, _PIECES)
    page.get_by_test_id("stop").click()
    return cost


def _medians(rows: list[dict[str, float]]) -> dict[str, int]:
    return {name: round(statistics.median(row[name] for row in rows)) for name in rows[0]}


if __name__ == "__main__":
    sys.exit(main())
