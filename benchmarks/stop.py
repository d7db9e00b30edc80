"""How soon Stop takes effect while a long prompt is read: `python -m benchmarks stop`. Prints a table and JSON.

A question with a prompt of 1,000 tokens is sent, and Stop is clicked at another moment of the prefill in each round. What is
measured goes from the click until the page has heard that the answer has ended.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
from collections.abc import Iterator

from benchmarks.answers import label
from benchmarks.page import VARIANTS, BenchPage, about, add_page_options, browsers, subject
from benchmarks.prompts import question
from benchmarks.results import Contender, Step, add_result_options, report, take_turns
from tooling.console import ToolingError

PROMPT = 1000
_MOMENTS_MS = (20, 60, 110, 170, 240, 320, 410)  # after the prompt was ready

_STOP = """async ([text, wait]) => {
    const part = (name) => document.querySelector(`[data-testid="${name}"]`);
    const worker = document.querySelector('script[name=engine]').xworker;
    const heard = (kind) => new Promise((resolve) => {
        const listen = ({ data }) => {
            const messages = typeof data === 'string' && data.startsWith('[{') ? JSON.parse(data) : [];
            const message = messages.find(({ type }) => type === kind);
            if (!message) return;
            worker.removeEventListener('message', listen);
            resolve({ ...message, heard: performance.now() });
        };
        worker.addEventListener('message', listen);
    });
    const ready = heard('PromptReady'), finished = heard('Finished');
    part('composer').value = text;
    part('composer').dispatchEvent(new Event('input', { bubbles: true }));
    part('send').click();
    await ready;
    await new Promise((resolve) => setTimeout(resolve, wait));
    const clicked = performance.now();
    part('stop').click();
    const ended = await finished;
    return { took: ended.heard - clicked, new_tokens: ended.new_tokens, reason: ended.reason };
}"""


def main() -> int:
    """Measure and print; the exit code."""
    parser = argparse.ArgumentParser(description="Measures how soon Stop takes effect. Prints a table and JSON.")
    add_page_options(parser)
    add_result_options(parser, rounds=7)
    options = parser.parse_args()
    model = subject(options.model)
    text = question(model.open(), PROMPT)
    parameters: dict[str, object] = {"max-tokens": 1}
    if options.executor:
        parameters["executor"] = options.executor
    with browsers(model, busy=options.busy) as started, contextlib.ExitStack() as stack:
        contenders = {}
        for choice in options.variants:
            page = stack.enter_context(started.page(VARIANTS[choice], parameters))
            page.visit()
            contenders[label(choice, page.probe("about"))] = Contender([_step(page, text)])
        figures = take_turns(contenders, options.rounds)
        facts = about(options, model, started, clicked_after_ms=_MOMENTS_MS[: options.rounds])
    report("stop", options, figures, facts)
    return 0


def _step(page: BenchPage, text: str) -> Step:
    moments: Iterator[int] = itertools.cycle(_MOMENTS_MS)

    def step() -> dict[str, float]:
        page.start_anew()
        found = page.page.evaluate(_STOP, [text, next(moments)])
        if found["reason"] != "cancelled" or found["new_tokens"]:
            raise ToolingError(f"Stop came too late to be measured: the answer says {found}; use a larger model")
        return {"Stop → ended, ms": float(found["took"])}

    return step
