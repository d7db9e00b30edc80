"""What running Python in the sandbox costs beside the code itself: `python -m benchmarks sandbox`. Prints a table and JSON.

Each round opens the page in a fresh browser, waits until the model takes messages, and runs `1` twice: the first run fetches
the sandbox's files, the second has them. What is measured goes from the call until the value is there: nearly all of it is a
fresh Python that starts. `fetched_bytes` is what the first run asked of the server.
"""

from __future__ import annotations

import argparse

from benchmarks.page import VARIANTS, Browsers, about, add_page_options, browsers, subject
from benchmarks.results import OURS, Contender, Step, add_result_options, report, take_turns
from tooling.console import ToolingError
from tooling.server import Request

_RUN = """async () => {
    const { start } = await import(new URL('sandbox.mjs', document.baseURI).href);
    const request = JSON.stringify({ run: 1, code: '1', seconds: 10, megabytes: 256, characters: 100 });
    const began = performance.now();
    const answer = JSON.parse(await new Promise((tell) => start(request, tell)));
    return { took: performance.now() - began, ...answer };
}"""


def main() -> int:
    """Measure and print; the exit code."""
    parser = argparse.ArgumentParser(description="Measures what a run in the sandbox costs. Prints a table and JSON.")
    add_page_options(parser)
    add_result_options(parser, rounds=5)
    options = parser.parse_args()
    model, fetched = subject(options.model), [0]
    with browsers(model, busy=options.busy) as started:
        contenders = {}
        for choice in options.variants:
            name = ", ".join(part for part in (OURS, VARIANTS[choice].label) if part)
            contenders[name] = Contender([_step(started, choice, options.executor, fetched)])
        figures = take_turns(contenders, options.rounds)
        facts = about(options, model, started, fetched_bytes=fetched[0])
    report("sandbox", options, figures, facts)
    return 0


def _step(started: Browsers, choice: str, executor: str | None, fetched: list[int]) -> Step:
    def step() -> dict[str, float]:
        heard: list[Request] = []
        with started.page(VARIANTS[choice], {"executor": executor} if executor else {}, heard) as page:
            page.visit()
            before, times = len(heard), []
            for _ in range(2):
                answer = page.page.evaluate(_RUN)
                if answer["text"] != "1":
                    raise ToolingError(f"the sandbox gave no value but {answer}")
                times.append(float(answer["took"]))
            fetched[0] = sum(request.size for request in heard[before:])
        return {"first run, ms": times[0], "later run, ms": times[1]}

    return step
