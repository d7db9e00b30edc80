"""How long the page takes to start: `python -m benchmarks boot`. Prints a table and JSON.

Each round opens the page in a fresh browser (nothing stored, nothing cached) and reloads it once. Times are milliseconds
since the navigation began:

    painted         the browser painted the page's first content
    page_python     the page's own Python (MicroPython) is alive
    python_ready    the worker's Python (Pyodide) is up, packages imported
    model_ready     the model takes messages

`bunch_ms` is what the page's Python needs to take in a bunch of 20 words of an answer, rendering not included. Bytes and requests
are those of a first visit, as sent, the model's bytes counted apart.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
from collections.abc import Mapping
from typing import Any

from benchmarks.page import VARIANTS, BenchPage, Browsers, about, add_page_options, browsers, subject
from benchmarks.peers import add_peer_option, peer_contenders
from benchmarks.results import OURS, Contender, add_result_options, report, take_turns
from tooling.server import Request

FIRST, RELOAD = "first visit", "reload"
_BUNCHES = 200

# A mark can be set for another moment than now; what is wanted is when the page's Python called.
_NOTE_CALLS = """
    window.called = {};
    const mark = performance.mark.bind(performance);
    performance.mark = (name, options) => { called[name] ??= performance.now(); return mark(name, options) };
"""
_TIMES = """() => ({
    painted: performance.getEntriesByName('first-contentful-paint')[0].startTime,
    page_python: called['tinypylm:start'],
})"""
_TAKE_BUNCHES = """(count) => {
    const part = (name) => document.querySelector(`[data-testid="${name}"]`);
    part('composer').value = 'Hello';
    part('composer').dispatchEvent(new Event('input', { bubbles: true }));
    part('send').click();
    const worker = document.querySelector('script[name=engine]').xworker;
    const word = { type: 'Delta', id: 1, text: ' word', at: performance.timeOrigin + performance.now() };
    const data = JSON.stringify(Array(20).fill(word));
    const began = performance.now();
    for (let i = 0; i < count; i++) worker.dispatchEvent(new MessageEvent('message', { data }));
    const took = performance.now() - began;
    part('stop').click();
    return took / count;
}"""


def main() -> int:
    """Measure and print; the exit code."""
    parser = argparse.ArgumentParser(description="Measures how the page starts. Prints a table and JSON.")
    add_page_options(parser)
    add_peer_option(parser)
    add_result_options(parser, rounds=5)
    options = parser.parse_args()
    model = subject(options.model)
    parameters = {"executor": options.executor} if options.executor else {}
    with browsers(model, busy=options.busy) as started, contextlib.ExitStack() as stack:
        contenders, visitors = {}, []
        for choice in options.variants:
            visitors.append(stack.enter_context(contextlib.closing(Visitor(started, choice, parameters))))
            name = ", ".join(part for part in (OURS, VARIANTS[choice].label) if part)
            contenders[f"{name}, {FIRST}"] = Contender([visitors[-1].first_visit])
            contenders[f"{name}, {RELOAD}"] = Contender([visitors[-1].reload])
        for name, peer in peer_contenders(options.peer, lambda told: told).items():
            contenders |= _in_two(name, peer)
        figures = take_turns(contenders, options.rounds)
        facts = about(options, model, started, **visitors[0].facts())
    report("boot", options, figures, facts)
    return 0


class Visitor:
    """One browser that visits and reloads; a first visit begins with a fresh one.

    Args:
        started: opens browsers.
        choice: one of `VARIANTS`.
        parameters: of the address.
    """

    def __init__(self, started: Browsers, choice: str, parameters: Mapping[str, object]) -> None:
        self._started, self._variant, self._parameters = started, VARIANTS[choice], parameters
        self._open = contextlib.ExitStack()
        self._page: BenchPage | None = None
        self._requests: list[Request] = []
        self._bunches: list[float] = []

    def first_visit(self) -> dict[str, float]:
        """The times of a first visit."""
        self._open.close()
        self._requests.clear()
        heard: list[Request] = []
        self._page = self._open.enter_context(self._started.page(self._variant, self._parameters, heard))
        self._page.page.add_init_script(_NOTE_CALLS)
        times = _times(self._page, self._page.visit())
        self._requests = list(heard)
        return times

    def reload(self) -> dict[str, float]:
        """The times of a reload; the page's own Python is measured too."""
        if self._page is None:
            self.first_visit()
        assert self._page is not None  # noqa: S101 - a first visit has just been made
        times = _times(self._page, self._page.reload())
        self._bunches.append(self._page.page.evaluate(_TAKE_BUNCHES, _BUNCHES))
        return times

    def facts(self) -> dict[str, object]:
        """Bytes of the last first visit, and what a bunch of words costs."""

        def size(path: str = "") -> int:
            return sum(request.size for request in self._requests if request.path.startswith(path))

        return {
            "bunch_ms": round(statistics.median(self._bunches), 3),
            "cold_requests": len(self._requests),
            "cold_bytes": size() - size("/seed/files/"),
            "micropython_bytes": size("/micropython/"),
            "page_modules_bytes": size("/ui/") + size("/protocol.py") // 2,  # the worker reads it too
            "model_bytes": size("/seed/files/"),
        }

    def close(self) -> None:
        """Close the browser."""
        self._open.close()


def _times(page: BenchPage, marks: Mapping[str, float]) -> dict[str, float]:
    told: dict[str, float] = page.page.evaluate(_TIMES)
    found = {**told, "python_ready": marks["python-ready"], "model_ready": marks["model-ready"]}
    return {_figure(name): time for name, time in found.items()}


def _figure(name: str) -> str:
    return f"{name}, ms"


def _in_two(name: str, peer: Contender) -> dict[str, Contender]:
    """A peer's first and later visits, which one run of its command tells, as two contenders."""
    told: dict[str, Any] = {}

    def first() -> dict[str, float]:
        told.update(peer.steps[0]())
        return ready("cold")

    def ready(visit: str) -> dict[str, float]:
        time = told.get(visit, {}).get("nav_to_ready_ms")
        return {} if time is None else {_figure("model_ready"): float(time)}

    return {
        f"{name}, {FIRST}": Contender([first], is_ours=False),
        f"{name}, {RELOAD}": Contender([lambda: ready("warm")], is_ours=False),
    }
